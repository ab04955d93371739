//! Plain Redis Streams: what any client of a stream pays, without leases, sequences or an index.

use super::rig::{Rig, payload};

const STREAM: &str = "plain";
const GROUP: &str = "group";

/// Appends events with the same fields as ours, in pipelines of `batch`.
pub(crate) async fn append(rig: &Rig, events: usize, batch: usize, bytes: usize) {
    let mut plain = rig.plain.clone();
    let payload = payload(bytes);
    let mut sequence = 0;
    for _ in 0..events / batch {
        let mut pipe = redis::pipe();
        for _ in 0..batch {
            sequence += 1;
            pipe.cmd("XADD").arg(STREAM).arg("*").arg("id").arg(wasmill::event::random_id());
            pipe.arg("sequence").arg(sequence).arg("partition").arg(0);
            pipe.arg("timestamp").arg("2026-01-01T00:00:00.000Z").arg("type").arg("bench");
            pipe.arg("metadata").arg("{}").arg("payload").arg(&payload);
        }
        let _: Vec<redis::Value> = pipe.query_async(&mut plain).await.unwrap();
    }
}

pub(crate) async fn make_group(rig: &Rig) {
    let mut plain = rig.plain.clone();
    let mut create = redis::cmd("XGROUP");
    create.arg("CREATE").arg(STREAM).arg(GROUP).arg("0").arg("MKSTREAM");
    create.exec_async(&mut plain).await.unwrap();
}

/// Reads and acknowledges everything, in batches.
pub(crate) async fn read_ack(rig: &Rig, events: usize, batch: usize) {
    let mut plain = rig.plain.clone();
    let mut done = 0;
    while done < events {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP")
            .arg(GROUP)
            .arg("consumer")
            .arg("COUNT")
            .arg(batch)
            .arg("STREAMS")
            .arg(STREAM)
            .arg(">");
        let read: redis::streams::StreamReadReply = read.query_async(&mut plain).await.unwrap();
        let entries = &read.keys[0].ids;
        let mut ack = redis::cmd("XACK");
        ack.arg(STREAM).arg(GROUP);
        for entry in entries {
            ack.arg(&entry.id);
        }
        ack.exec_async(&mut plain).await.unwrap();
        done += entries.len();
    }
}
