//! Where a query goes on: a position in each partition.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::event::NUMBER_MAX;

/// The last sequence looked at in each partition that was looked at. A partition that is not named
/// has not been begun.
///
/// Its text, which is read back, is `0:12,3:4`: partition 0 to sequence 12, partition 3 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub BTreeMap<u32, u64>);

/// Why a text is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is made of pairs of partition and sequence, as in `0:12,3:4`")]
pub struct CursorError;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (partition, sequence)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{partition}:{sequence}")?;
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let mut positions = BTreeMap::new();
        for pair in text.split(',') {
            let (partition, sequence) = pair.split_once(':').ok_or(CursorError)?;
            let partition = partition.parse().map_err(|_| CursorError)?;
            let sequence: u64 = sequence.parse().map_err(|_| CursorError)?;
            if sequence > NUMBER_MAX || positions.insert(partition, sequence).is_some() {
                return Err(CursorError);
            }
        }
        Ok(Self(positions))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_reads_back(positions in prop::collection::btree_map(any::<u32>(), 0..=NUMBER_MAX, 1..9)) {
            let cursor = Cursor(positions);
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0", "0:", ":1", "0:1,", "0:1,0:2", "-1:2", "0:9007199254740992", "a:b", "0:1;2:3"] {
            assert_eq!(text.parse::<Cursor>(), Err(CursorError), "{text}");
        }
    }
}
