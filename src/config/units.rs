//! Durations (`200ms`, `1h30m`) and sizes (`64MiB`) as people write them.

use std::time::Duration;

/// What a duration looks like, as a sentence for messages.
pub(super) const DURATION_FORM: &str = "a duration is a whole number with its unit, as in \"200ms\", \"5s\", \"1m\", \"2h\", \"1h30m\" or \"7d\"";

/// What a size looks like, as a sentence for messages.
pub(super) const SIZE_FORM: &str =
    "a size is a whole number with its unit, as in \"512KiB\", \"64MiB\", \"1GiB\", \"4MB\" or \"1000B\"";

/// The schema's pattern of a duration; a variable may stand for any part of it.
pub(super) const DURATION_PATTERN: &str =
    r"^(?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$|\$\{";

/// The schema's pattern of a size; a variable may stand for any part of it.
pub(super) const SIZE_PATTERN: &str = r"^[0-9]+ ?(B|KB|kB|MB|GB|KiB|MiB|GiB)$|\$\{";

/// The units of a duration in milliseconds, in the order in which they may follow each other.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The units of a size in bytes.
const SIZE_UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("KB", 1_000),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads a duration: whole numbers with units, from the largest unit to the smallest, each at most
/// once and nothing between them. `None` for anything else, and for more than 2^64 ms.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut units = DURATION_UNITS.iter();
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = split_number(rest)?;
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        // The iterator goes on behind the last unit found: that is the order, and the bound.
        let (_, unit_ms) = units.find(|(name, _)| *name == unit)?;
        total_ms = total_ms.checked_add(number.checked_mul(*unit_ms)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(Duration::from_millis(total_ms))
}

/// Reads a size in bytes: one whole number and its unit, a single space allowed between them.
/// `None` for anything else, and for more than 2^64 bytes.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, after) = split_number(text)?;
    let unit = after.strip_prefix(' ').unwrap_or(after);
    let (_, unit_bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*unit_bytes)
}

/// The number that a text begins with, and what follows it.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    Some((digits.parse().ok()?, after))
}

/// A duration as [`parse_duration`] reads it.
pub(super) fn show_duration(duration: Duration) -> String {
    let mut rest_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, unit_ms) in DURATION_UNITS {
        if rest_ms >= unit_ms {
            text.push_str(&format!("{}{unit}", rest_ms / unit_ms));
            rest_ms %= unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A size as [`parse_size`] reads it, in the largest binary unit that divides it.
pub(super) fn show_size(bytes: u64) -> String {
    let fits = |unit_bytes: &u64| bytes > 0 && bytes.is_multiple_of(*unit_bytes);
    match SIZE_UNITS[5..].iter().rev().find(|(_, unit_bytes)| fits(unit_bytes)) {
        Some((unit, unit_bytes)) => format!("{}{unit}", bytes / unit_bytes),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("0s", 0),
            ("200ms", 200),
            ("5s", 5_000),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1m500ms", 60_500),
            ("90m", 5_400_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "5 s",
            "1.5s",
            "-1s",
            "+1s",
            "5sec",
            "30m1h",
            "1s1s",
            "5S",
            " 5s",
            "5s ",
            "5µs",
            "٣s",
            "99999999999999999999s",
            "18446744073709551615s",
            "213503982334d1d",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0B", 0),
            ("512KiB", 524_288),
            ("64MiB", 67_108_864),
            ("64 MiB", 67_108_864),
            ("4MB", 4_000_000),
            ("1kB", 1_000),
            ("1GiB", 1_073_741_824),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in
            ["", "64", "MiB", "64M", "64mib", "64  MiB", "1.5GiB", "-1B", "64MiB ", "99999999999999GiB"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn durations_read_back(ms in any::<u64>()) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
        }

        #[test]
        fn sizes_read_back(bytes in any::<u64>(), zeros in 0u32..40) {
            let bytes = bytes >> zeros << zeros;
            prop_assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9dhmsKMGiB ]{0,12}") {
            if let Some(duration) = parse_duration(&text) {
                prop_assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
            }
            if let Some(bytes) = parse_size(&text) {
                prop_assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
            }
        }
    }
}
