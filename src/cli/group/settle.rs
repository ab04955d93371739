//! `wasmill group settle`: a verdict by hand, under a lease that is known.

use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::backend::{Backend, Error, SettleRequest, Settled};
use crate::cli::context::{Context, group_key};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config;
use crate::event::{GroupKey, Lease};
use crate::outcome::{Effects, OnFault, Outcome, Settlement, Verdict, decide};
use crate::retry::RetryPolicy;

/// Who settles, in the record of a dead letter.
const CONSUMER: &str = "wasmill-group-settle";

/// Pending entries that one call asks for.
const PAGE: usize = 500;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("verdict").required(true).args(["ack", "retry", "reject"]))]
pub(in crate::cli) struct SettleArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// The event's partition
    #[arg(long, value_name = "P")]
    partition: u32,
    /// The event's sequence
    #[arg(long, value_name = "N")]
    sequence: u64,
    /// The store's id of the entry
    #[arg(long, value_name = "R")]
    receipt: String,
    /// The lease's id, which its holder got with the event
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    lease_id: String,
    /// It is done
    #[arg(long)]
    ack: bool,
    /// It is to be tried again, for this reason; beyond the last attempt it is a dead letter
    #[arg(long, value_name = "REASON")]
    retry: Option<String>,
    /// With --retry: when it is tried again [default: as a pipeline without a `retry` key]
    #[arg(long, value_name = "DURATION", requires = "retry", value_parser = config::duration)]
    delay: Option<Duration>,
    /// It is a dead letter, for this reason
    #[arg(long, value_name = "REASON")]
    reject: Option<String>,
}

pub(super) async fn run(context: &Context, backend: &dyn Backend, args: &SettleArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let max_attempts = check(backend, &key, args.partition).await?;
    // The attempt is not part of what proves the lease, but of what is decided and recorded.
    let attempt = attempt(backend, &key, args).await?.unwrap_or(1);
    let lease = Lease {
        id: args.lease_id.as_str().into(),
        receipt: args.receipt.as_str().into(),
        partition: args.partition,
        sequence: args.sequence,
        attempt,
    };
    let outcome = match (&args.retry, &args.reject) {
        (Some(reason), _) => Outcome::Retry { reason: reason.clone(), delay: args.delay },
        (None, Some(reason)) => Outcome::Reject { reason: reason.clone() },
        (None, None) => Outcome::Ack(Effects::default()),
    };
    let policy = RetryPolicy { max_attempts, ..RetryPolicy::default() };
    let verdict = decide(Ok(outcome), attempt, &policy, OnFault::default(), rand::random());
    let done = said(&verdict);
    let settlements = [Settlement { lease, verdict, plugin: None }];
    let request = SettleRequest { group: &key, consumer: CONSUMER, settlements: &settlements };
    let (receipt, sequence) = (args.receipt.clone(), args.sequence);
    match backend.settle(&request).await?.first() {
        Some(Settled::Done) => {}
        Some(Settled::ReceiptMismatch) => return Err(Error::ReceiptMismatch { receipt, sequence }.into()),
        // Without effects the last two are never answered.
        Some(Settled::Stale | Settled::Conflict | Settled::Refused(_)) | None => {
            return Err(Error::StaleLease { receipt }.into());
        }
    }
    if context.json() {
        return output::json_line(&serde_json::json!({
            "stream": key.stream, "group": key.group, "partition": args.partition, "sequence": sequence,
            "settled": done,
        }));
    }
    output::line(&format!("sequence {sequence} of partition {}: {done}", args.partition))
}

/// Whether group and partition are there. Answers with the group's attempts.
async fn check(backend: &dyn Backend, key: &GroupKey, partition: u32) -> Result<u32, Exit> {
    let info = backend.group_info(key).await?;
    let partitions = u32::try_from(info.partitions.len()).unwrap_or(u32::MAX);
    if partition >= partitions {
        return Err(Error::PartitionNotFound { stream: key.stream.clone(), partition, partitions }.into());
    }
    Ok(info.max_attempts)
}

async fn attempt(backend: &dyn Backend, key: &GroupKey, args: &SettleArgs) -> Result<Option<u32>, Exit> {
    let mut after: Option<String> = None;
    loop {
        let page = backend.pending(key, args.partition, after.as_deref(), PAGE).await?;
        if let Some(entry) = page.iter().find(|entry| entry.receipt == args.receipt) {
            return Ok(Some(entry.attempt));
        }
        let Some(last) = page.last() else { return Ok(None) };
        after = Some(last.receipt.clone());
    }
}

fn said(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Ack(_) => "acked",
        Verdict::Retry { .. } => "parked for a retry",
        Verdict::DeadLetter { .. } => "dead-lettered",
        Verdict::Release => "handed back",
    }
}
