//! What goes to stdout: tables for people, JSON lines for programs.

use std::io::Write as _;

use serde::Serialize;

use super::exit::Exit;

/// One JSON object on a line.
pub(super) fn json_line(value: &impl Serialize) -> Result<(), Exit> {
    let mut text = serde_json::to_string(value).map_err(anyhow::Error::from)?;
    text.push('\n');
    print(&text)
}

/// JSON objects, one a line, written at once.
pub(super) fn json_lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> Result<(), Exit> {
    let mut text = String::new();
    for value in values {
        text.push_str(&serde_json::to_string(&value).map_err(anyhow::Error::from)?);
        text.push('\n');
    }
    print(&text)
}

/// One JSON document over several lines.
pub(super) fn json_pretty(value: &impl Serialize) -> Result<(), Exit> {
    let mut text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    text.push('\n');
    print(&text)
}

/// A line of text.
pub(super) fn line(text: &str) -> Result<(), Exit> {
    print(&format!("{text}\n"))
}

/// Rows under headings, columns as wide as they need to be. Columns whose heading begins with `>`
/// are aligned to the right.
pub(super) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> Result<(), Exit> {
    let right = headings.map(|heading| heading.starts_with('>'));
    let headings = headings.map(|heading| heading.trim_start_matches('>').to_owned());
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| printable(cell))).collect();
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(&rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = std::iter::once(&headings).chain(&rows).map(|row| row[column].chars().count()).max();
            let width = width.unwrap_or_default();
            let gap = if column == 0 { "" } else { "  " };
            let cell =
                if right[column] { format!("{gap}{cell:>width$}") } else { format!("{gap}{cell:<width$}") };
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    print(&text)
}

/// Text of others as it may be shown on a terminal: control characters are escaped, so that no
/// event can move a cursor or change a title.
pub(super) fn printable(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// The beginning of a text, where it is longer than so many characters.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A number of things, in words.
pub(super) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// A time from now, in words.
pub(super) fn in_ms(ms: i64) -> String {
    let magnitude = ms.unsigned_abs();
    let text = match magnitude {
        0..1_000 => format!("{magnitude} ms"),
        1_000..120_000 => format!("{}.{} s", magnitude / 1000, magnitude % 1000 / 100),
        120_000..7_200_000 => format!("{} min", magnitude / 60_000),
        7_200_000..172_800_000 => format!("{} h", magnitude / 3_600_000),
        _ => format!("{} d", magnitude / 86_400_000),
    };
    if ms < 0 { format!("{text} ago") } else { format!("in {text}") }
}

/// A line on stderr. That no one reads it any more is no failure.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn print(text: &str) -> Result<(), Exit> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\nc"), "a\\u{1b}[31mb\\nc");
        assert_eq!(printable("schön"), "schön");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("äöü", 2), "äö…");
        assert_eq!(shortened("äöü", 3), "äöü");
    }

    #[test]
    fn times_read_well() {
        assert_eq!(in_ms(250), "in 250 ms");
        assert_eq!(in_ms(-1500), "1.5 s ago");
        assert_eq!(in_ms(150_000), "in 2 min");
        assert_eq!(in_ms(i64::MIN), format!("{} d ago", i64::MIN.unsigned_abs() / 86_400_000));
    }
}
