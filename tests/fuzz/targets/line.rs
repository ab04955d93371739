//! A line of `append` → an event: the envelope, and `--raw`.

/// The input is the line.
pub(crate) fn line(input: &[u8]) {
    for raw in [false, true] {
        match wasmill::cli::line(input, raw) {
            Ok(event) => {
                assert!(event.payload.as_str().starts_with('{') && event.payload.as_str().ends_with('}'));
                // In an envelope the payload is a part of the line; `--raw` may write names anew.
                let text = std::str::from_utf8(input).unwrap();
                assert!(raw || text.contains(event.payload.as_str()), "stored byte for byte");
                assert!(event.bytes() <= 12 * input.len() + 16, "{} bytes", event.bytes());
                let _ = event.check(1024);
            }
            Err(why) => assert!(!why.is_empty() && why.len() <= 12 * input.len() + 300, "{why}"),
        }
    }
}
