//! A guest that misbehaves in the way that the event's type names, for tests of the host.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use wasmill_handler::{Delivery, Event, Failure, Level, config, error, info, log};

#[allow(missing_docs)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "hostile", generate_all });
}

use bindings::wasi::cli::{exit, stderr, stdout};
use bindings::wasi::clocks::monotonic_clock;
use bindings::wasi::http::{outgoing_handler, types as http};
use bindings::wasi::io::streams::OutputStream;

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

fn write(stream: &OutputStream, bytes: &[u8]) {
    stream.blocking_write_and_flush(bytes).expect("the stream takes it");
}

/// Asks for a web page; says what came of it.
fn fetch() -> String {
    let request = http::OutgoingRequest::new(http::Fields::new());
    request.set_scheme(Some(&http::Scheme::Https)).expect("a valid scheme");
    request.set_path_with_query(Some("/")).expect("a valid path");
    request.set_authority(Some("example.com")).expect("a valid authority");
    let answer = match outgoing_handler::handle(request, None) {
        Ok(answer) => answer,
        Err(code) => return format!("refused: {code:?}"),
    };
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(Ok(_))) => "an answer".to_owned(),
        Some(Ok(Err(code))) => format!("failed: {code:?}"),
        other => format!("nothing: {}", other.is_some()),
    }
}

wasmill_handler::export!(handle);
