//! Hides passwords of URLs in the source text that messages show.
//!
//! It works on plain text, not on parsed values: a message about a syntax error shows a line that
//! nobody could parse, and even that line must not give a password away.

use std::ops::Range;

use super::vars;

/// Schemes of ours, whose `//` may have been forgotten.
const OUR_SCHEMES: [&str; 4] = ["redis", "rediss", "redis+unix", "unix"];

/// A line with more URLs, or with more bytes, is hidden from its first URL on: no one wrote it by hand,
/// and looking at each URL up to the end of the line would take time by the square of its length.
const URLS_MAX: usize = 32;
const LINE_BYTES_MAX: usize = 8 * 1024;

/// The text with every byte of a URL's password replaced by `*`. Its length in bytes and all
/// positions stay the same; the names of variables (`${NAME}`) stay readable.
pub(super) fn mask(source: &str) -> String {
    let mut hidden = Vec::new();
    let mut line_start = 0;
    for line in source.split_inclusive('\n') {
        find_in_line(line.trim_end_matches(['\n', '\r']), line_start, &mut hidden);
        line_start += line.len();
    }
    let mut masked = String::with_capacity(source.len());
    let mut done = 0;
    for range in hidden {
        // Ranges of one line may overlap where one URL stands inside another.
        let start = range.start.max(done);
        masked.push_str(&source[done..start]);
        masked.extend(std::iter::repeat_n('*', range.end.saturating_sub(start)));
        done = range.end.max(done);
    }
    masked.push_str(&source[done..]);
    masked
}

/// Adds the passwords of a line that begins at `line_start`, in order.
fn find_in_line(line: &str, line_start: usize, hidden: &mut Vec<Range<usize>>) {
    let (mut first, found) = (None, hidden.len());
    for (count, (scheme_start, start)) in urls(line).enumerate() {
        let first = *first.get_or_insert(start);
        if count >= URLS_MAX || line.len() > LINE_BYTES_MAX {
            hidden.push(line_start + first..line_start + line.len());
            break;
        }
        let url = &line[start..url_end(line, scheme_start, start)];
        for secret in secrets(url).into_iter().flatten() {
            let secret = start + secret.start..start + secret.end;
            for part in without_variables(line, secret) {
                hidden.push(line_start + part.start..line_start + part.end);
            }
        }
    }
    hidden[found..].sort_by_key(|range| range.start);
}

/// Where each URL of a line has its scheme, and what stands behind its colon and slashes.
fn urls(line: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut after = 0;
    line.match_indices(':').filter_map(move |(colon, _)| {
        // A scheme has no colon: it begins behind the one before.
        let before = &line[std::mem::replace(&mut after, colon + 1)..colon];
        let scheme = before.rsplit(|c: char| !is_scheme(c)).next().unwrap_or_default();
        let rest = &line[colon + 1..];
        let slashes = rest.starts_with("//");
        let found = !scheme.is_empty() && (slashes || OUR_SCHEMES.contains(&scheme));
        found.then_some((colon - scheme.len(), colon + 1 + if slashes { 2 } else { 0 }))
    })
}

fn is_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

/// Where a URL ends: at the quote that also stands before its scheme, else with the line.
fn url_end(line: &str, scheme_start: usize, start: usize) -> usize {
    let Some(quote) = line[..scheme_start].chars().next_back().filter(|c| matches!(c, '"' | '\'')) else {
        return line.len();
    };
    let mut escaped = false;
    for (at, c) in line[start..].char_indices() {
        if c == quote && !escaped {
            return start + at;
        }
        escaped = quote == '"' && c == '\\' && !escaped;
    }
    line.len()
}

/// The passwords in what follows a URL's `scheme://`: before the host, and in the query.
fn secrets(url: &str) -> [Option<Range<usize>>; 3] {
    let parameter = |name: &str| {
        let start = url.find(name)? + name.len();
        let end = url[start..].find(['&', '#']).map_or(url.len(), |at| start + at);
        url[..start - name.len()].ends_with(['?', '&']).then_some(start..end)
    };
    [credentials(url), parameter("pass="), parameter("password=")]
}

/// The password before the host. Rather too much than too little: a password may hold any
/// character, and the host may have been forgotten.
fn credentials(url: &str) -> Option<Range<usize>> {
    if let Some(at) = url.rfind('@') {
        let colon = url[..at].find(':')?;
        return Some(colon + 1..at);
    }
    let host = if url.starts_with('[') { url.find(']')? } else { 0 };
    let colon = host + url[host..].find(':')?;
    let port = &url[colon + 1..];
    let port = &port[..port.find(['/', '?', '#']).unwrap_or(port.len())];
    let is_port = port.chars().all(|c| c.is_ascii_digit());
    (!is_port).then_some(colon + 1..url.len())
}

/// Cuts `${NAME}` out of a range of the line, since messages must be able to point at it. A
/// default stays hidden.
fn without_variables(line: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut done = range.start;
    for (at, _) in line[range.clone()].match_indices("${") {
        let start = range.start + at;
        let Some(length) = line[start..range.end].find('}') else { break };
        let name = &line[start + 2..start + length];
        if start >= done && vars::is_name(name) && !line[..start].ends_with('$') {
            parts.push(done..start);
            done = start + length + 1;
        }
    }
    parts.push(done..range.end);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any password but with `"` and `\`, which would have to be escaped, and `$`, which may
    /// begin a variable.
    const PASSWORD: &str = r"[!#%-\[\]-~é]{0,6}SECRET[!#%-\[\]-~é]{0,6}";

    #[test]
    fn hides_passwords() {
        for (source, expected) in [
            (r#"url = "redis://u:pw@h:1/0""#, r#"url = "redis://u:**@h:1/0""#),
            (r#"url = "rediss://:p@w/x@h" # c"#, r#"url = "rediss://:*****@h" # c"#),
            (r#"url = "redis://u:p'w\"x@h""#, r#"url = "redis://u:******@h""#),
            (r#"url = 'redis://u:p"w@h', x = "a@b""#, r#"url = 'redis://u:***@h', x = "a@b""#),
            (r#"url = "redis://u:pw"#, r#"url = "redis://u:**"#),
            (r#"url = "redis:u:pw@h""#, r#"url = "redis:u:**@h""#),
            ("url = redis://u:pw@h", "url = redis://u:**@h"),
            ("url = \"redis://u:pé@h\"", "url = \"redis://u:***@h\""),
            ("é = \"postgres://u:pw@h\"\r\nb", "é = \"postgres://u:**@h\"\r\nb"),
            (r#""unix:///s?db=1&pass=pw&user=u""#, r#""unix:///s?db=1&pass=**&user=u""#),
            (r#""redis://h?password=pw""#, r#""redis://h?password=**""#),
            (r#""redis://u:${PW}@h""#, r#""redis://u:${PW}@h""#),
            (r#""redis://u:a${PW}b$${x}@h""#, r#""redis://u:*${PW}******@h""#),
            (r#""redis://u:${PW:-dev}@h""#, r#""redis://u:**********@h""#),
        ] {
            assert_eq!(mask(source), expected, "{source}");
        }
    }

    #[test]
    fn leaves_the_rest() {
        for source in [
            "url = \"redis://127.0.0.1:6379/0\"",
            "url = \"redis://[::1]:6379\"",
            "url = \"redis://h:99999\"\nx = \"a@b\"",
            "url = \"sqlite:wasmill.db\" # mail: a@b",
            "a = 1979-05-27T07:32:00Z",
            "",
        ] {
            assert_eq!(mask(source), source);
        }
    }

    #[test]
    fn a_line_that_no_one_wrote_is_hidden_from_its_first_url_on() {
        let many = format!("x = \"{}", "redis:pw@".repeat(URLS_MAX + 1));
        let long = format!("x = \"redis://{}:pw@h", "u".repeat(LINE_BYTES_MAX));
        for line in [many, long] {
            let masked = mask(&format!("a\n{line}\nb"));
            assert!(masked.starts_with("a\nx = \"redis:") && masked.ends_with("*\nb"), "{masked}");
            assert!(!masked.contains("pw"), "{masked}");
            assert_eq!(masked.len(), line.len() + 4);
        }
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_length_and_lines(source in "([\"':/@?&#\\\\ ${}\\r\\n*é]|redis|pass=|://|PW|unix){0,40}") {
            let masked = mask(&source);
            prop_assert_eq!(masked.len(), source.len());
            prop_assert_eq!(masked.lines().count(), source.lines().count());
        }

        #[test]
        fn a_password_is_never_shown(before in "[a-z]{0,4}", password in PASSWORD) {
            let source = format!("url = \"redis://{before}:{password}@host:1/0\" # x");
            prop_assert!(!mask(&source).contains("SECRET"), "{}", mask(&source));
        }
    }
}
