//! The probe in Rust: README.md in the folder above says what it does, and for what.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use serde::Deserialize;
use wasmill_handler::state::Bucket;
use wasmill_handler::{Delivery, Event, Failure, Result, config, outbox};

/// What `leak` keeps.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// What an event asks for; the first word is its `do`.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Task {
    Ack,
    Retry { reason: String, delay_ms: Option<u64> },
    Reject { reason: String },
    Raise { reason: String },
    Crash { reason: String },
    Log { level: log::Level, message: String },
    Print { message: String },
    Config { key: String },
    Count { key: String },
    Set { key: String, value: String },
    Append { stream: String, payload: serde_json::Value },
    Echo,
    Leak { bytes: usize },
}

/// An error of this crate's own.
#[derive(Debug)]
struct Trouble(String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

fn handle(event: Event, delivery: Delivery) -> Result {
    let task = event.json().map_err(|_| Failure::reject(unknown(&event)))?;
    match task {
        Task::Ack => {}
        Task::Retry { reason, delay_ms: None } => return Err(Failure::retry(reason).into()),
        Task::Retry { reason, delay_ms: Some(delay) } => {
            return Err(Failure::retry_after(reason, Duration::from_millis(delay)).into());
        }
        Task::Reject { reason } => return Err(Failure::reject(reason).into()),
        Task::Raise { reason } => return Err(Trouble(reason).into()),
        Task::Crash { reason } => panic!("{reason}"),
        Task::Log { level, message } => log::log!(level, "{message}"),
        Task::Print { message } => print(&message),
        Task::Config { key } => {
            return Err(Failure::retry(config(&key).unwrap_or_else(|| "none".to_owned())).into());
        }
        Task::Count { key } => {
            let count = Bucket::open("default")?.increment(&key, 1)?;
            return Err(Failure::retry(count.to_string()).into());
        }
        Task::Set { key, value } => {
            let bucket = Bucket::open("default")?;
            bucket.set(&key, value)?;
            let read = String::from_utf8(bucket.get(&key)?.unwrap_or_default())?;
            return Err(Failure::retry(read).into());
        }
        Task::Append { stream, payload } => {
            let event = outbox::Event::json(&payload)?.event_type("probe").key("k").metadata("a", "b");
            event.append_to(&stream)?;
        }
        Task::Echo => return Err(Failure::retry(echo(&event, &delivery)).into()),
        Task::Leak { bytes } => {
            KEPT.lock().map_err(|_| Trouble("poisoned".to_owned()))?.push(vec![1; bytes]);
        }
    }
    Ok(())
}

/// Not every target has a stdout: where there is none, the line goes where the host would put it.
fn print(message: &str) {
    if cfg!(target_os = "unknown") {
        log::info!("{message}");
    } else {
        println!("{message}");
    }
}

fn unknown(event: &Event) -> String {
    let payload: serde_json::Value = event.json().unwrap_or_default();
    format!("unknown: {}", payload["do"].as_str().unwrap_or_default())
}

fn echo(event: &Event, delivery: &Delivery) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    format!(
        "id={} stream={} partition={} sequence={} timestamp={} ms={} key={} type={} metadata={} bytes={} \
         pipeline={} group={} attempt={} max={}",
        event.id,
        event.stream_name,
        event.partition,
        event.sequence,
        event.timestamp,
        or_none(&event.timestamp_ms.map(|ms| ms.to_string())),
        or_none(&event.key),
        or_none(&event.event_type),
        event.metadata.len(),
        event.payload.len(),
        delivery.pipeline,
        delivery.group,
        delivery.attempt,
        delivery.max_attempts,
    )
}

wasmill_handler::export!(handle);
