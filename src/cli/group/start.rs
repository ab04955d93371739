//! Where a group begins: `--start`, `--after`, `--at`.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::backend::{Backend, Error, Positions, Start, positions_at};
use crate::cli::exit::Exit;
use crate::cli::filter::time;
use crate::event::{NUMBER_MAX, Name};

/// A place in the log; one of the three, or none.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(super) struct StartArgs {
    /// With the first event of the log, or with the next one that is appended
    #[arg(long, value_enum)]
    start: Option<StartArg>,
    /// Behind this sequence in all partitions, or in one (repeatable)
    #[arg(long, value_name = "SEQ|P:SEQ")]
    after: Vec<After>,
    /// With the first event, in the order of the log, of this time or later
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StartArg {
    /// With the first event of the log
    Beginning,
    /// With the next event that is appended
    End,
}

/// One `--after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct After {
    /// `None` means all.
    partition: Option<u32>,
    sequence: u64,
}

impl FromStr for After {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (partition, sequence) = match text.split_once(':') {
            Some((partition, sequence)) => (Some(partition.parse()), sequence),
            None => (None, text),
        };
        let sequence = sequence.parse().ok().filter(|sequence| *sequence <= NUMBER_MAX);
        match (partition.transpose(), sequence) {
            (Ok(partition), Some(sequence)) => Ok(Self { partition, sequence }),
            _ => Err("a sequence as in `12`, or one of a partition as in `0:12`".to_owned()),
        }
    }
}

impl StartArgs {
    /// Whether nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        self.start.is_none() && self.after.is_empty() && self.at.is_none()
    }

    /// Where a new group begins; at the beginning where nothing was said.
    pub(super) async fn start(&self, backend: &dyn Backend, stream: &Name) -> Result<Start, Exit> {
        match self.start {
            Some(StartArg::End) => return Ok(Start::End),
            _ if self.after.is_empty() && self.at.is_none() => return Ok(Start::Beginning),
            _ => {}
        }
        let all = all_partitions(backend, stream).await?;
        Ok(Start::After(self.positions(backend, stream, &all).await?))
    }

    /// The positions of these partitions; with `--after P:SEQ` only of those that are named.
    pub(super) async fn positions(
        &self,
        backend: &dyn Backend,
        stream: &Name,
        partitions: &[u32],
    ) -> Result<Positions, Exit> {
        if let Some(at) = self.at {
            return Ok(positions_at(backend, stream, partitions, at).await?);
        }
        let everywhere = |sequence| Ok(partitions.iter().map(|partition| (*partition, sequence)).collect());
        match (self.start, self.after.as_slice()) {
            (Some(StartArg::End), _) => return everywhere(NUMBER_MAX),
            (_, []) => return everywhere(0),
            (_, [After { partition: None, sequence }]) => return everywhere(*sequence),
            _ => {}
        }
        let mut positions = Positions::new();
        for After { partition, sequence } in &self.after {
            let Some(partition) = partition else {
                return Err(Exit::usage("--after: a sequence of all partitions stands alone"));
            };
            if !partitions.contains(partition) {
                let (stream, partition) = (stream.clone(), *partition);
                let count = u32::try_from(partitions.len()).unwrap_or(u32::MAX);
                return Err(Error::PartitionNotFound { stream, partition, partitions: count }.into());
            }
            if positions.insert(*partition, *sequence).is_some() {
                return Err(Exit::usage(format!("--after names partition {partition} twice")));
            }
        }
        Ok(positions)
    }
}

/// The numbers of a stream's partitions.
pub(super) async fn all_partitions(backend: &dyn Backend, stream: &Name) -> Result<Vec<u32>, Exit> {
    Ok(backend.stream_info(stream).await?.partitions.iter().map(|p| p.partition).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_of_all_or_of_one_partition() {
        let after = |partition, sequence| Ok(After { partition, sequence });
        assert_eq!("12".parse(), after(None, 12));
        assert_eq!("3:12".parse(), after(Some(3), 12));
        for text in ["", ":", "3:", ":3", "x", "1:2:3", "-1", "9007199254740992"] {
            assert!(text.parse::<After>().is_err(), "{text}");
        }
    }
}
