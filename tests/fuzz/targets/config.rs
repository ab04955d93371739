//! The text of a pipeline file → what is meant, or messages that point at what is wrong.

use std::path::Path;

use wasmill::config;

/// What every environment variable holds: no message may show it.
const SECRET: &str = "zq9never7shown";

/// The input is the file.
pub(crate) fn config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let base = Path::new(env!("CARGO_MANIFEST_DIR"));
    let env = |_: &str| Some(SECRET.to_owned());
    match config::parse(&text, Path::new("fuzzed.toml"), base, &env) {
        Ok(config) => {
            assert!(!config.pipelines.is_empty());
            assert!(config.pipelines.iter().all(|p| p.concurrency >= 1 && p.max_in_flight >= p.concurrency));
        }
        Err(error) => {
            let message = error.to_string();
            assert!(error.count() > 0 && message.starts_with("error: "), "{message}");
            assert!(message.len() <= 64 * 1024, "{} bytes of messages", message.len());
            assert!(!message.contains(SECRET), "{message}");
        }
    }
}
