//! Guests that do not answer: each ends as its own fault, and nothing else suffers.

use std::time::{Duration, Instant};

use wasmill::outcome::{Effects, Fault, FaultKind, Outcome};
use wasmill::plugin::PluginSpec;

use crate::support::{DELIVERY, ask, event, handler_component, host, load, logged, retry, written};

fn ack() -> Result<Outcome, Fault> {
    Ok(Outcome::Ack(Effects::default()))
}

/// The fault that a behaviour ends in; the plugin must answer the next call, on a fresh instance.
async fn fault(behaviour: &str) -> Fault {
    fault_within(behaviour, Duration::from_secs(30)).await
}

async fn fault_within(behaviour: &str, timeout: Duration) -> Fault {
    let plugin = load("hostile", |spec| {
        spec.limits.timeout = timeout;
        spec.limits.memory_bytes_max = 32 * 1024 * 1024;
    })
    .await;
    assert_eq!(ask(&plugin, "ok").await, ack());
    let fault = ask(&plugin, behaviour).await.unwrap_err();
    assert_eq!(plugin.warm_count(), 0, "the instance is gone");
    assert_eq!(retry(ask(&plugin, "count").await), "call 1");
    fault
}

/// The first line of a fault's message, which is its reason.
fn reason(fault: &Fault) -> &str {
    fault.message.lines().next().unwrap()
}

#[tokio::test]
async fn a_loop_without_end_is_a_timeout() {
    let start = Instant::now();
    let fault = fault_within("loop", Duration::from_millis(200)).await;
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert_eq!(reason(&fault), "no answer within 200 ms (`timeout` raises it): the guest was still running");
    assert!(fault.message.contains("\nat: "), "{}", fault.message);
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn waiting_without_end_is_a_timeout() {
    let fault = fault_within("sleep", Duration::from_millis(200)).await;
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert_eq!(fault.message, "no answer within 200 ms (`timeout` raises it): the guest was waiting");
}

#[tokio::test]
async fn memory_beyond_the_limit_is_a_memory_fault() {
    let fault = fault("eat-memory").await;
    assert_eq!(fault.kind, FaultKind::Memory);
    assert_eq!(
        reason(&fault),
        "the guest wanted 33 MiB of memory, its limit is 32 MiB (`max_memory` raises it)"
    );
}

#[tokio::test]
async fn a_trap_names_the_function() {
    let fault = fault("trap").await;
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(reason(&fault), "the guest gave up (a panic or an abort)");
    assert!(fault.message.contains("\nat: "), "{}", fault.message);
}

#[tokio::test]
async fn a_panic_keeps_its_text() {
    let fault = fault("panic").await;
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(fault.message.contains("the guest gave up on e-1"), "{}", fault.message);
}

#[tokio::test]
async fn last_words_on_stderr_are_kept() {
    let (fault, _) = logged(fault("last-words")).await;
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(fault.message.contains("\nlast output: something is wrong here\n"), "{}", fault.message);
}

#[tokio::test]
async fn recursion_without_end_exhausts_the_stack() {
    let fault = fault("recurse").await;
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(reason(&fault), "the call stack is exhausted: recursion is too deep");
}

#[tokio::test]
async fn exit_is_a_trap_with_its_code() {
    let fault = fault("exit").await;
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(reason(&fault), "the guest called exit with code 1 instead of answering");
}

#[tokio::test]
async fn text_that_is_not_utf8_is_a_trap() {
    let fault = fault("bad-utf8").await;
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(fault.message.contains("utf-8"), "{}", fault.message);
}

/// On one thread: a guest that loops lets others have their turn.
#[tokio::test]
async fn others_go_on_while_a_guest_loops() {
    let bad = load("hostile", |spec| spec.limits.timeout = Duration::from_secs(3600)).await;
    let good = load("passthrough", |_| {}).await;
    let looping = tokio::spawn(async move { ask(&bad, "loop").await });
    for _ in 0..20 {
        assert_eq!(good.handle(&event("t", "{}"), &DELIVERY).await, ack());
        // Lets the looping guest in before the next call.
        tokio::task::yield_now().await;
    }
    assert!(!looping.is_finished());
    looping.abort();
    assert!(looping.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_dropped_call_discards_its_instance() {
    let plugin = load("hostile", |_| {}).await;
    assert_eq!(plugin.warm_count(), 1);
    let cut_off = tokio::time::timeout(Duration::from_millis(20), ask(&plugin, "sleep")).await;
    assert!(cut_off.is_err());
    assert_eq!(plugin.warm_count(), 0);
    let cut_off = tokio::time::timeout(Duration::from_millis(20), ask(&plugin, "loop")).await;
    assert!(cut_off.is_err());
    assert_eq!(plugin.warm_count(), 0);
    assert_eq!(retry(ask(&plugin, "count").await), "call 1");
}

/// Loads a component made by hand around the code `core`, and calls it.
async fn made_by_hand(core: &str) -> Result<Outcome, Fault> {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, "hand.wasm", &handler_component(core));
    let plugin = host().load(&PluginSpec::new("hand", path)).await.unwrap();
    ask(&plugin, "x").await
}

#[tokio::test]
async fn an_answer_that_points_nowhere_is_a_trap() {
    assert_eq!(made_by_hand("").await, ack(), "without data it is an ack");
    let nowhere = r#"(data (i32.const 0) "\01\00\00\00\01\00\00\00\00\00\00\00\ff\ff\ff\ff")"#;
    let fault = made_by_hand(nowhere).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(reason(&fault).contains("out of bounds"), "{}", fault.message);
    let unknown_case = r#"(data (i32.const 0) "\07")"#;
    assert_eq!(made_by_hand(unknown_case).await.unwrap_err().kind, FaultKind::Trap);
}
