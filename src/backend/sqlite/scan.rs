//! Reading the log back, in pages.

use super::rows::{self, NoEvent, Place, event_columns, number, receipt, stored};
use super::worker::Op;
use crate::backend::{Order, Result, ScanPage, ScanRange, Unreadable};
use crate::event::{Event, Name};

/// Events of a range in one direction, `?3` < sequence <= `?4`.
pub(super) const SCAN_UP: &str = concat!(
    "SELECT e.sequence, ",
    event_columns!(),
    " FROM events e WHERE e.stream_id = ?1 AND e.partition = ?2 AND e.sequence > ?3 AND e.sequence <= ?4",
    " ORDER BY e.sequence LIMIT ?5"
);
pub(super) const SCAN_DOWN: &str = concat!(
    "SELECT e.sequence, ",
    event_columns!(),
    " FROM events e WHERE e.stream_id = ?1 AND e.partition = ?2 AND e.sequence > ?3 AND e.sequence <= ?4",
    " ORDER BY e.sequence DESC LIMIT ?5"
);

/// Bytes of entries after which a page ends.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Rows of one page at most, whatever the caller asks for: a snapshot must not be held for long.
const PAGE_ROWS_MAX: usize = 1000;

pub(super) fn scan(op: &mut Op<'_>, name: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
    let stream = op.stream(name)?;
    stream.has(partition)?;
    let mut statement = op.conn.prepare_cached(match range.order {
        Order::Ascending => SCAN_UP,
        Order::Descending => SCAN_DOWN,
    })?;
    let limit = range.limit.clamp(1, PAGE_ROWS_MAX);
    let bounds = (stored(range.after), stored(range.until));
    let mut rows = statement.query((stream.id, partition, bounds.0, bounds.1, rows::limit(limit)))?;
    let (mut page, mut count, mut bytes) = (ScanPage::default(), 0, 0);
    while let Some(row) = rows.next()? {
        let sequence = number(row, 0)?;
        count += 1;
        match rows::event(row, 1, Place { stream: name, partition, sequence })? {
            Ok(event) => {
                bytes += bytes_of(&event);
                page.events.push(event);
            }
            Err(NoEvent::Undecodable { detail, fields, .. }) => {
                bytes += fields.iter().map(|(_, value)| value.len()).sum::<usize>();
                let receipt = receipt(partition, sequence);
                page.unreadable.push(Unreadable { sequence: Some(sequence), receipt, detail });
            }
            Err(NoEvent::Missing) => {}
        }
        if count == limit || bytes >= PAGE_BYTES_MAX {
            page.next = Some(sequence);
            break;
        }
    }
    Ok(page)
}

/// About what the event takes in memory.
fn bytes_of(event: &Event) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let texts = event.id.len() + event.timestamp.len() + length(&event.key) + length(&event.event_type);
    texts + event.payload.as_str().len() + event.metadata.as_str().len()
}
