//! What a guest's end means, in words.

use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::limits::TABLE_ELEMENTS_MAX;
use super::meter::Spent;
use super::state::State;
use crate::outcome::{Fault, FaultKind};

/// Functions of a backtrace that are named.
const FRAMES_MAX: usize = 6;

/// Longest name of one function there, in characters.
const FRAME_CHARS_MAX: usize = 60;

/// The error that ends a call at its deadline.
#[derive(Debug, thiserror::Error)]
#[error("the deadline has passed")]
pub(super) struct Overdue;

/// What an error of the engine means for the attempt.
pub(super) fn classify(error: &wasmtime::Error, state: &State, timeout_ms: u128) -> Fault {
    let trap = error.downcast_ref::<Trap>();
    let (kind, reason) = if error.is::<Overdue>() || trap == Some(&Trap::Interrupt) {
        (
            FaultKind::Timeout,
            format!("no answer within {timeout_ms} ms (`timeout` raises it): the guest was still running"),
        )
    } else if error.is::<Spent>() {
        let max_ms = state.meter.max().unwrap_or_default().as_millis();
        (FaultKind::Timeout, format!("it computed for more than {max_ms} ms (`max_cpu` raises it)"))
    } else if let Some(refused) = state.guard.refused_bytes {
        // A guest that is refused memory aborts in one of many ways: the cause is the same.
        (FaultKind::Memory, memory(refused, state.guard.bytes_max()))
    } else if let Some(refused) = state.guard.refused_elements {
        let reason =
            format!("the guest wanted {refused} elements in its tables, the limit is {TABLE_ELEMENTS_MAX}");
        (FaultKind::Memory, reason)
    } else if let Some(I32Exit(code)) = error.downcast_ref() {
        (FaultKind::Trap, format!("the guest called exit with code {code} instead of answering"))
    } else if let Some(trap) = trap {
        (FaultKind::Trap, trapped(*trap))
    } else {
        (FaultKind::Trap, format!("the call failed: {}", error.root_cause()))
    };
    Fault { kind, message: told(reason, state, error.downcast_ref()) }
}

/// A call that did not come back from the host in its time.
pub(super) fn overdue(state: &State, timeout_ms: u128) -> Fault {
    let reason = format!("no answer within {timeout_ms} ms (`timeout` raises it): the guest was waiting");
    Fault { kind: FaultKind::Timeout, message: told(reason, state, None) }
}

/// A call that got no instance in its time.
pub(super) fn crowded(instances_max: usize, timeout_ms: u128) -> Fault {
    let message = format!(
        "no instance was free within {timeout_ms} ms: {instances_max} were busy (`max_instances` raises it)"
    );
    Fault { kind: FaultKind::Timeout, message }
}

/// A directory that was there when the plugin was loaded cannot be opened any more.
pub(super) fn no_directory(reason: String) -> Fault {
    Fault { kind: FaultKind::Trap, message: reason }
}

fn memory(wanted: usize, bytes_max: usize) -> String {
    let mib = |bytes: usize| bytes.div_ceil(1024 * 1024);
    format!(
        "the guest wanted {} MiB of memory, its limit is {} MiB (`max_memory` raises it)",
        mib(wanted),
        mib(bytes_max)
    )
}

fn trapped(trap: Trap) -> String {
    match trap {
        Trap::StackOverflow => "the call stack is exhausted: recursion is too deep".to_owned(),
        Trap::UnreachableCodeReached => "the guest gave up (a panic or an abort)".to_owned(),
        Trap::MemoryOutOfBounds => "a memory access was out of bounds".to_owned(),
        Trap::IntegerDivisionByZero => "an integer was divided by zero".to_owned(),
        other => {
            let text = other.to_string();
            text.strip_prefix("wasm trap: ").unwrap_or(&text).to_owned()
        }
    }
}

/// The reason, the guest's last words, and where it was.
fn told(reason: String, state: &State, backtrace: Option<&WasmBacktrace>) -> String {
    let mut message = reason;
    let tail = state.output.tail();
    if !tail.is_empty() {
        message.push_str("\nlast output: ");
        message.push_str(&tail);
    }
    let functions = backtrace.map(functions).unwrap_or_default();
    if !functions.is_empty() {
        message.push_str("\nat: ");
        message.push_str(&functions.join(" < "));
    }
    message
}

/// The names of the innermost functions, as far as the component has names.
fn functions(backtrace: &WasmBacktrace) -> Vec<String> {
    // Only the text of a backtrace has names in the form that their language writes them.
    let text = backtrace.to_string();
    text.lines()
        .filter_map(|line| Some(line.split_once(" - ")?.1.split_once('!')?.1))
        .take(FRAMES_MAX)
        .map(|name| without_hash(name).chars().take(FRAME_CHARS_MAX).collect())
        .collect()
}

/// Rust ends a function's name with a hash that tells nothing.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((rest, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => rest,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_hash_only() {
        assert_eq!(
            without_hash("core::panicking::panic_fmt::h0123456789abcdef"),
            "core::panicking::panic_fmt"
        );
        assert_eq!(without_hash("a::hello"), "a::hello");
        assert_eq!(without_hash("handle"), "handle");
    }

    #[test]
    fn sizes_are_told_in_mebibytes() {
        assert_eq!(
            memory(65 * 1024 * 1024 + 1, 64 * 1024 * 1024),
            "the guest wanted 66 MiB of memory, its limit is 64 MiB (`max_memory` raises it)"
        );
    }
}
