//! A guest that misbehaves in the way that the event's type names, for tests of the host.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use wasmill_handler::bindings::wasi::logging::logging;
use wasmill_handler::state::Bucket;
use wasmill_handler::{Delivery, Event, Failure, Level, config, error, info, log, outbox};

#[allow(missing_docs)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "hostile", generate_all });
}

use bindings::wasi::cli::{environment, exit, stderr, stdout};
use bindings::wasi::clocks::monotonic_clock;
use bindings::wasi::filesystem::{preopens, types as files};
use bindings::wasi::http::{outgoing_handler, types as http};
use bindings::wasi::io::streams::OutputStream;
use bindings::wasi::sockets::{instance_network, ip_name_lookup};

/// How many calls this instance has had: it tells a reused instance from a fresh one.
static CALLS: AtomicU32 = AtomicU32::new(0);

fn handle(event: Event, delivery: Delivery) -> Result<(), Failure> {
    let calls = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    match event.event_type.as_deref().unwrap_or("ok") {
        "ok" => Ok(()),
        "echo" => Err(Failure::reject(echo(&event, &delivery))),
        "count" => Err(Failure::retry_after(format!("call {calls}"), Duration::from_millis(1500))),
        "retry" => Err(Failure::retry("not now")),
        "config" => Err(Failure::reject(format!("{:?} {:?}", config("a"), config("none")))),
        "loop" => loop {
            black_box(());
        },
        "eat-memory" => eat_memory(),
        "trap" => trap(),
        "panic" => panic!("the guest gave up on {}", event.id),
        "recurse" => Err(Failure::reject(recurse(1).to_string())),
        "exit" => {
            exit::exit(Err(()));
            Ok(())
        }
        "sleep" => {
            monotonic_clock::subscribe_duration(u64::MAX / 2).block();
            Ok(())
        }
        "nap" => {
            monotonic_clock::subscribe_duration(50_000_000).block();
            Ok(())
        }
        "log-lines" => {
            info!("first line\nsecond line");
            log(Level::Debug, format_args!("a detail"));
            error!("an error");
            write(&stdout::get_stdout(), b"half a line, ");
            write(&stdout::get_stdout(), b"the other half\nno line end");
            write(&stderr::get_stderr(), b"a complaint\n");
            Ok(())
        }
        "log-flood" => {
            for n in 0..20_000 {
                info!("line {n}");
            }
            Ok(())
        }
        "stdout-flood" => {
            let out = stdout::get_stdout();
            for _ in 0..20_000 {
                write(&out, b"a line of the flood\n");
            }
            Ok(())
        }
        "long-line" => {
            info!("{}", "x".repeat(1024 * 1024));
            Ok(())
        }
        "bad-utf8" => {
            // SAFETY: none; the text is wrong on purpose, and only travels to the host.
            let text = unsafe { std::str::from_utf8_unchecked(black_box(b"\xff\xfe")) };
            info!("{text}");
            Ok(())
        }
        "last-words" => {
            write(&stderr::get_stderr(), b"something is wrong here\n");
            trap()
        }
        "http" => Err(Failure::reject(fetch())),
        "host-calls" => loop {
            black_box(config("a"));
        },
        "compute" => {
            let until = monotonic_clock::now() + 100_000_000;
            while monotonic_clock::now() < until {}
            Ok(())
        }
        "huge-outbox" => Err(Failure::reject(until_refused(|n| {
            outbox::Event::new(format!("{{\"n\":{n}}}"))
                .append_to("audit")
                .map_err(|error| format!("{error:?}"))
        }))),
        "big-events" => Err(Failure::reject(until_refused(|n| {
            let payload = format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(100_000));
            outbox::Event::new(payload).append_to("audit").map_err(|error| format!("{error:?}"))
        }))),
        "no-json" => Ok(outbox::Event::new("[1]").append_to("audit")?),
        "other-stream" => Ok(outbox::Event::new("{}").append_to("payroll")?),
        "million-keys" => {
            let bucket = Bucket::open("default")?;
            Err(Failure::reject(until_refused(|n| {
                bucket.set(&n.to_string(), "x").map_err(|error| format!("{error:?}"))
            })))
        }
        "big-state" => {
            let bucket = Bucket::open("default")?;
            let value = vec![0; 1 << 20];
            Err(Failure::reject(until_refused(|n| {
                bucket.set(&n.to_string(), &value).map_err(|error| format!("{error:?}"))
            })))
        }
        "stage" => stage(&event).map_err(Failure::reject),
        "stage-then-trap" => {
            stage(&event).map_err(Failure::reject)?;
            trap()
        }
        "stage-then-loop" => {
            stage(&event).map_err(Failure::reject)?;
            loop {
                black_box(());
            }
        }
        "stage-then-reject" => {
            stage(&event).map_err(Failure::reject)?;
            Err(Failure::reject("never"))
        }
        "stage-then-retry" => {
            stage(&event).map_err(Failure::reject)?;
            Err(Failure::retry("not now"))
        }
        "forward" => forward(&event),
        "huge-list" => {
            logging::log(Level::Info, "", absurd_text());
            Ok(())
        }
        "many-strings" => {
            let keys = vec![String::new(); 1_500_000];
            let bucket = Bucket::open("default")?;
            Err(Failure::reject(format!("{:?}", bucket.get_many(keys))))
        }
        "handles" => {
            let mut held = Vec::new();
            loop {
                held.push(monotonic_clock::subscribe_duration(1));
            }
        }
        "env" => Err(Failure::reject(format!("{:?}", environment::get_environment()))),
        "read-file" => Err(Failure::reject(read_file())),
        "write-file" => Err(Failure::reject(write_file())),
        "resolve" => {
            let network = instance_network::instance_network();
            let found = ip_name_lookup::resolve_addresses(&network, "localhost");
            Err(Failure::reject(format!("{:?}", found.err())))
        }
        other => Err(Failure::reject(format!("no behaviour `{other}`"))),
    }
}

fn echo(event: &Event, delivery: &Delivery) -> String {
    format!(
        "{} {} {} {} {} {:?} {:?} {:?} {:?} {} | {} {} {} {} {}",
        event.id,
        event.stream_name,
        event.partition,
        event.sequence,
        event.timestamp,
        event.timestamp_ms,
        event.key,
        event.event_type,
        event.metadata,
        String::from_utf8_lossy(&event.payload),
        delivery.pipeline,
        delivery.group,
        delivery.attempt,
        delivery.max_attempts,
        delivery.timeout_ms,
    )
}

fn eat_memory() -> Result<(), Failure> {
    let mut eaten = Vec::new();
    loop {
        eaten.push(black_box(vec![1u8; 1024 * 1024]));
    }
}

fn trap() -> Result<(), Failure> {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    Ok(())
}

/// Deep without end, and without memory of its own that could run out before the call stack.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 { 0 } else { recurse(depth.wrapping_add(2)).wrapping_mul(3) ^ depth }
}

/// Does it again and again; says how often it worked, and why no more.
fn until_refused(mut step: impl FnMut(u32) -> Result<(), String>) -> String {
    for n in 0..1_000_000 {
        if let Err(error) = step(n) {
            return format!("{n} times, then {error}");
        }
    }
    "a million times".to_owned()
}

/// Stages an event and a count.
fn stage(event: &Event) -> Result<(), String> {
    let bucket = Bucket::open("default").map_err(|error| format!("{error:?}"))?;
    let count = bucket.increment("count", 1).map_err(|error| format!("{error:?}"))?;
    let staged = outbox::Event::new(format!("{{\"count\":{count}}}")).key(event.id.as_str());
    staged.append_to("audit").map_err(|error| format!("{error:?}"))
}

/// Appends two events to the stream that the setting `to` names: one that is handled in the same way, and
/// one that ends there.
fn forward(event: &Event) -> Result<(), Failure> {
    let to = config("to").unwrap_or_default();
    let key = event.key.clone().unwrap_or_default();
    outbox::Event::new(event.payload.as_slice()).event_type("forward").key(key.as_str()).append_to(&to)?;
    outbox::Event::new("{}").event_type("ok").key(key).metadata("correlation_id", "own").append_to(&to)?;
    Ok(())
}

/// A text that claims to be longer than the memory.
fn absurd_text() -> &'static str {
    // SAFETY: none; the length is wrong on purpose, and nothing but the host looks at the text.
    unsafe {
        let bytes = std::slice::from_raw_parts(black_box(1024 as *const u8), black_box(0x7fff_0000));
        std::str::from_utf8_unchecked(bytes)
    }
}

/// The file that the setting `file` names, below the first directory that is granted.
fn open_file(open: files::OpenFlags, flags: files::DescriptorFlags) -> Result<files::Descriptor, String> {
    let file = config("file").unwrap_or_default();
    let dirs = preopens::get_directories();
    let Some((dir, _)) = dirs.first() else { return Err("no directory".to_owned()) };
    let follow = files::PathFlags::SYMLINK_FOLLOW;
    dir.open_at(follow, &file, open, flags).map_err(|code| format!("cannot open: {code:?}"))
}

fn read_file() -> String {
    let file = match open_file(files::OpenFlags::empty(), files::DescriptorFlags::READ) {
        Ok(file) => file,
        Err(why) => return why,
    };
    match file.read(1000, 0) {
        Ok((bytes, _)) => format!("read: {}", String::from_utf8_lossy(&bytes)),
        Err(code) => format!("cannot read: {code:?}"),
    }
}

fn write_file() -> String {
    let file = match open_file(files::OpenFlags::CREATE, files::DescriptorFlags::WRITE) {
        Ok(file) => file,
        Err(why) => return why,
    };
    match file.write(b"from the guest", 0) {
        Ok(bytes) => format!("wrote {bytes} bytes"),
        Err(code) => format!("cannot write: {code:?}"),
    }
}

fn write(stream: &OutputStream, bytes: &[u8]) {
    stream.blocking_write_and_flush(bytes).expect("the stream takes it");
}

/// Asks for a web page, `SCHEME AUTHORITY` of the setting `http`; says what came of it.
fn fetch() -> String {
    let place = config("http").unwrap_or_else(|| "https example.com".to_owned());
    let (scheme, authority) = place.split_once(' ').unwrap_or(("https", &place));
    let scheme = if scheme == "http" { http::Scheme::Http } else { http::Scheme::Https };
    let request = http::OutgoingRequest::new(http::Fields::new());
    request.set_scheme(Some(&scheme)).expect("a valid scheme");
    request.set_path_with_query(Some("/")).expect("a valid path");
    request.set_authority(Some(authority)).expect("a valid authority");
    let answer = match outgoing_handler::handle(request, None) {
        Ok(answer) => answer,
        Err(code) => return format!("refused: {code:?}"),
    };
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(Ok(response))) => format!("status {}", response.status()),
        Some(Ok(Err(code))) => format!("failed: {code:?}"),
        other => format!("nothing: {}", other.is_some()),
    }
}

wasmill_handler::export!(handle);
