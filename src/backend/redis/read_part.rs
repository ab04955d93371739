//! A part of a scan: some rows of the index, and what of the log belongs to them.

use std::collections::{HashMap, HashSet};

use super::codec;
use super::read::AROUND;
use super::reply::{Entry, parse_id};
use crate::backend::{Order, ScanRange};
use crate::event::{Event, Name};

/// A row of the index: sequence and entry id.
pub(super) type Row = (u64, String);

/// An entry in its place.
pub(super) struct Placed {
    /// Its sequence; of an entry without one, that of the entry behind it.
    pub(super) place: u64,
    pub(super) sequence: Option<u64>,
    pub(super) receipt: String,
    /// The event, or why it is none.
    pub(super) row: Result<Event, String>,
}

/// What the index says of a part.
pub(super) struct Part {
    /// What was asked for.
    pub(super) range: ScanRange,
    /// In the direction of the scan.
    pub(super) rows: Vec<Row>,
    /// No row of the range follows.
    pub(super) end: bool,
    /// The next rows below and above, the nearest first.
    below: Vec<Row>,
    above: Vec<Row>,
    /// Sequences that belong to this part have no row, or may have none yet.
    gapped: bool,
    now_ms: i64,
    /// The sequence up to which the log was trimmed.
    trimmed: u64,
}

impl Part {
    /// A part of `count` rows, or a few more where several have one sequence; `found` holds more, and
    /// `beside` is what the index holds below and above the range.
    pub(super) fn new(
        range: ScanRange,
        count: usize,
        mut found: Vec<Row>,
        beside: (Vec<Row>, Vec<Row>),
        now_ms: i64,
        trimmed: u64,
    ) -> Self {
        let mut count = count.min(found.len());
        while count > 0 && found.get(count).is_some_and(|row| row.0 == found[count - 1].0) {
            count += 1;
        }
        let mut ahead = found.split_off(count);
        let end = ahead.is_empty();
        let (mut below, mut above) = beside;
        let side = match range.order {
            Order::Ascending => &mut above,
            Order::Descending => &mut below,
        };
        ahead.append(side);
        *side = ahead;
        for side in [&mut below, &mut above] {
            side.retain(|(_, id)| parse_id(id).is_some());
        }
        let mut part = Self { range, rows: found, end, below, above, gapped: false, now_ms, trimmed };
        let last = range.order == Order::Descending || part.end;
        part.gapped = part.above.is_empty() && last || part.is_gapped();
        part
    }

    /// The lowest and the highest sequence that belong to this part.
    fn bounds(&self) -> (u64, u64) {
        let last = self.rows.last().map(|(sequence, _)| *sequence);
        let (low, high) = (self.range.after.saturating_add(1), self.range.until);
        match (self.range.order, last.filter(|_| !self.end)) {
            (_, None) => (low, high),
            (Order::Ascending, Some(last)) => (low, last),
            (Order::Descending, Some(last)) => (last, high),
        }
    }

    fn is_gapped(&self) -> bool {
        let (low, high) = self.bounds();
        let low = low.max(self.trimmed.saturating_add(1));
        let mut sequences: Vec<u64> = self.rows.iter().map(|row| row.0).filter(|s| *s >= low).collect();
        sequences.sort_unstable();
        sequences.dedup();
        // Above the last row of all nothing is missing that could stand in front of it.
        let top = if self.above.is_empty() { sequences.last().copied().unwrap_or(0) } else { high };
        low <= top && (sequences.len() as u64) <= top - low
    }

    /// The first and the last entry id of the part of the log to read, for XRANGE: from the row below on,
    /// since what has no sequence belongs to what stands behind it; up to the row above where the scan comes
    /// from there, or ends.
    pub(super) fn span(&self) -> (String, String) {
        let by_id = |id: &&String| parse_id(id);
        let valid = || self.rows.iter().map(|(_, id)| id).filter(|id| parse_id(id).is_some());
        let (lowest, highest) = (valid().min_by_key(by_id), valid().max_by_key(by_id));
        let ascending = self.range.order == Order::Ascending;
        let from = match (lowest, self.below.first()) {
            _ if self.gapped && self.below.len() < AROUND => "-".to_owned(),
            (lowest, _) if self.gapped => {
                let all = self.below.iter().map(|(_, id)| id).chain(lowest);
                all.min_by_key(by_id).cloned().unwrap_or_default()
            }
            (Some(lowest), Some((_, below))) if parse_id(below) >= parse_id(lowest) => lowest.clone(),
            (_, Some((_, below))) => format!("({below}"),
            (_, None) => "-".to_owned(),
        };
        let to = match (highest, self.above.first()) {
            _ if self.gapped && self.above.len() < AROUND => "+".to_owned(),
            (highest, _) if self.gapped => {
                let all = self.above.iter().map(|(_, id)| id).chain(highest);
                all.max_by_key(by_id).cloned().unwrap_or_default()
            }
            (Some(highest), _) if ascending && !self.end => highest.clone(),
            (Some(highest), Some((_, above))) if parse_id(above) <= parse_id(highest) => highest.clone(),
            (_, Some((_, above))) => format!("({above}"),
            (_, None) => "+".to_owned(),
        };
        (from, to)
    }

    /// Whether entries without a sequence behind all others belong to this part.
    pub(super) fn holds_tail(&self, to: &str) -> bool {
        to == "+" && self.above.is_empty() && (self.range.order == Order::Descending || self.end)
    }

    /// Takes in those entries that belong to this part. What the index says of an entry counts, else what
    /// it says itself; one without either (kept in `unplaced`) stands before the next one.
    pub(super) fn place(
        &self,
        stream: &Name,
        partition: u32,
        entries: Vec<Entry>,
        unplaced: &mut Vec<Placed>,
        found: &mut Vec<Placed>,
    ) {
        let known = [&self.rows, &self.below, &self.above].into_iter().flatten();
        let known: HashMap<&str, u64> = known.map(|(sequence, id)| (id.as_str(), *sequence)).collect();
        let (low, high) = self.bounds();
        for Entry { id: receipt, fields } in entries {
            let own = codec::raw_sequence(codec::borrowed(&fields));
            let sequence = known.get(receipt.as_str()).copied().or(own);
            let mut row = codec::decode(stream, partition, codec::borrowed(&fields));
            let Some(place) = sequence else {
                unplaced.push(Placed { place: u64::MAX, sequence, receipt, row });
                continue;
            };
            if !(low..=high).contains(&place) {
                unplaced.clear();
                continue;
            }
            if let Ok(event) = &mut row {
                event.sequence = place;
            }
            found.extend(unplaced.drain(..).map(|before| Placed { place, ..before }));
            found.push(Placed { place, sequence, receipt, row });
        }
    }

    /// Puts what was found in the order of the scan.
    pub(super) fn sort(&self, found: &mut [Placed]) {
        match self.range.order {
            Order::Ascending => found.sort_by_key(|placed| placed.place),
            Order::Descending => found.sort_by_key(|placed| std::cmp::Reverse(placed.place)),
        }
    }

    /// Keeps so many of the first ones in the order of the scan, once there are twice as many. What is
    /// behind the last one that was ever kept, `bound`, is of no use any more.
    pub(super) fn cut(&self, found: &mut Vec<Placed>, count: usize, bound: &mut Option<u64>) {
        if let Some(bound) = *bound {
            found.retain(|placed| match self.range.order {
                Order::Ascending => placed.place <= bound,
                Order::Descending => placed.place >= bound,
            });
        }
        if found.len() <= 2 * count {
            return;
        }
        self.sort(found);
        let mut keep = count;
        while found.get(keep).is_some_and(|next| next.place == found[keep - 1].place) {
            keep += 1;
        }
        if keep < found.len() {
            found.truncate(keep);
            *bound = found.last().map(|last| last.place);
        }
    }

    /// Cuts what stands behind a gap in which an append may still be under way: what fills it would be
    /// passed over. Whether anything was cut.
    pub(super) fn stop_at_gap(&self, found: &mut Vec<Placed>, age_ms: i64) -> bool {
        // A sequence with an index row was written, even if its entry is gone by now.
        let indexed: HashSet<u64> = self.rows.iter().map(|(sequence, _)| *sequence).collect();
        let mut expected = self.bounds().0.max(self.trimmed.saturating_add(1));
        for at in 0..found.len() {
            let Some(sequence) = found[at].sequence else { continue };
            let bound = self.rows.len() + 1;
            let gap = (expected..sequence).take(bound).any(|missing| !indexed.contains(&missing));
            let ms = parse_id(&found[at].receipt).and_then(|(ms, _)| i64::try_from(ms).ok()).unwrap_or(0);
            // An id far ahead of the clock (which was set back, or another writer chose it) tells nothing:
            // no later id is lower, and what stands behind the gap would be out of sight for good.
            let far = ms > self.now_ms.saturating_add(age_ms);
            if gap && !far && ms.saturating_add(age_ms) > self.now_ms {
                found.truncate(at);
                return true;
            }
            expected = expected.max(sequence.saturating_add(1));
        }
        false
    }
}
