//! Limits of a call and of a plugin: each error names the key that raises it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmill::outcome::{Effects, FaultKind, Outcome};
use wasmill::plugin::PluginSpec;

use crate::support::{
    Memory, ask, ask_with, component_around, guest_lines, host, load, logged, retry, written,
};

const ACK: Outcome = Outcome::Ack(Effects { appends: Vec::new(), writes: Vec::new(), reads: Vec::new() });

#[tokio::test]
async fn computing_for_too_long_is_a_timeout_that_names_its_key() {
    let plugin = load("hostile", |spec| spec.limits.cpu_max = Some(Duration::from_millis(30))).await;
    let start = Instant::now();
    let fault = ask(&plugin, "loop").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert_eq!(
        fault.message.lines().next(),
        Some("it computed for more than 30 ms (`max_cpu` raises it)"),
        "{}",
        fault.message
    );
    assert!(start.elapsed() < Duration::from_secs(15), "the timeout of 30 s did not end it");
    // Waiting does not count: the nap is longer than what may be computed.
    assert_eq!(ask(&plugin, "nap").await, Ok(ACK));
    // Each call has its own budget.
    for _ in 0..20 {
        assert_eq!(ask(&plugin, "ok").await, Ok(ACK));
    }
}

#[tokio::test]
async fn calls_of_the_host_in_a_loop_are_cut_off() {
    let plugin = load("hostile", |spec| spec.limits.timeout = Duration::from_millis(200)).await;
    let fault = ask(&plugin, "host-calls").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert_eq!(
        fault.message.lines().next(),
        Some("no answer within 200 ms (`timeout` raises it): the guest was still running")
    );
}

#[tokio::test]
async fn calls_above_the_instances_wait_within_their_time() {
    let plugin = load("hostile", |spec| {
        spec.limits.instances_max = 1;
        spec.limits.timeout = Duration::from_secs(20);
    })
    .await;
    let start = Instant::now();
    let (a, b, c) = tokio::join!(ask(&plugin, "nap"), ask(&plugin, "nap"), ask(&plugin, "nap"));
    assert_eq!((a, b, c), (Ok(ACK), Ok(ACK), Ok(ACK)));
    assert!(start.elapsed() >= Duration::from_millis(150), "one after the other: {:?}", start.elapsed());
    assert_eq!(plugin.warm_count(), 1);

    let plugin = load("hostile", |spec| {
        spec.limits.instances_max = 1;
        spec.limits.timeout = Duration::from_millis(300);
    })
    .await;
    // The time of each began with it: who is next when one is cut off may have some left, but of so
    // many that began together not everyone.
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let plugin = plugin.clone();
        calls.spawn(async move { ask(&plugin, "sleep").await });
    }
    let faults: Vec<_> = calls.join_all().await.into_iter().map(Result::unwrap_err).collect();
    assert!(faults.iter().all(|fault| fault.kind == FaultKind::Timeout), "{faults:?}");
    let crowded = "no instance was free within 300 ms: 1 were busy (`max_instances` raises it)";
    let waited = faults.iter().filter(|fault| fault.message == crowded).count();
    assert!((1..16).contains(&waited), "{faults:?}");
    assert_eq!(ask(&plugin, "ok").await, Ok(ACK), "the place is free again");
}

/// What a guest keeps between calls may live on the runtime that it was called on: another pipeline's
/// threads must not meet it when that one is gone. And the instances of all pipelines count together.
#[test]
fn an_instance_stays_on_the_runtime_that_it_was_used_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (main, other) = (runtime(), runtime());
    let plugin = main.block_on(load("hostile", |spec| spec.limits.instances_max = 2));
    let count = |on: &tokio::runtime::Runtime| retry(on.block_on(ask(&plugin, "count")));
    assert_eq!((count(&main), count(&main)), ("call 1".to_owned(), "call 2".to_owned()));
    assert_eq!(count(&other), "call 1");
    assert_eq!((count(&main), count(&other)), ("call 3".to_owned(), "call 2".to_owned()));
    drop(other);
    let third = runtime();
    assert_eq!(count(&third), "call 1");
    assert_eq!(plugin.warm_count(), 2, "the one that waited longest made room");
    assert_eq!(count(&third), "call 2");
}

#[tokio::test]
async fn lines_above_the_limit_are_counted_only() {
    let plugin = load("hostile", |spec| spec.limits.lines_max = 2).await;
    let (outcome, events) = logged(ask(&plugin, "log-flood")).await;
    assert_eq!(outcome, Ok(ACK));
    assert_eq!(
        guest_lines(&events),
        [
            "INFO line 0",
            "INFO line 1",
            "WARN 19998 more lines dropped: a call may log 2 (`max_log_lines` raises it)"
        ]
    );
}

#[tokio::test]
async fn a_table_that_grows_without_end_is_a_memory_fault() {
    let dir = tempfile::tempdir().unwrap();
    let core = r#"(table $t 1 funcref)
        (func $grow (loop
            (br_if 0 (i32.ne (i32.const -1) (table.grow $t (ref.null func) (i32.const 100000))))))"#;
    let path = written(&dir, "tables.wasm", &component_around("(call $grow) unreachable", core));
    let plugin = host().load(&PluginSpec::new("tables", path)).await.unwrap();
    let fault = ask(&plugin, "x").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Memory);
    assert_eq!(
        fault.message.lines().next(),
        Some("the guest wanted 1000001 elements in its tables, the limit is 1000000")
    );
}

#[tokio::test]
async fn handles_without_end_are_a_fault() {
    let plugin = load("hostile", |_| {}).await;
    let fault = ask(&plugin, "handles").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap, "{}", fault.message);
}

#[tokio::test]
async fn a_list_longer_than_the_memory_is_a_trap() {
    let plugin = load("hostile", |_| {}).await;
    let fault = ask(&plugin, "huge-list").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(fault.message.contains("out of bounds"), "{}", fault.message);
}

/// A list that fits into the guest takes several times as much in the host: there is an end to it
/// before the host has read the first string.
#[tokio::test]
async fn a_list_that_is_too_much_for_the_host_is_a_trap() {
    let plugin = load("hostile", |_| {}).await;
    let memory = Arc::new(Memory::default());
    let fault = ask_with(&plugin, "many-strings", &memory).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(fault.message.contains("fuel allocated for hostcalls"), "{}", fault.message);
}
