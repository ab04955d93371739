//! The program itself, with a real plugin, in one group with Rheo's consumers: killed, and started again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wasmill::backend::Backend as _;

use crate::engines::connect;
use crate::mixed::{Scene, at_end, group};
use crate::support::program::{Site, Store};

const PATIENCE: Duration = Duration::from_secs(60);

/// Counts the lines of logs that end an attempt for good, by event.
fn settled_lines(logs: &[String]) -> BTreeMap<String, usize> {
    let mut settled = BTreeMap::new();
    for line in logs.iter().flat_map(|log| log.lines()) {
        if ["acked", "dead-lettered"].iter().any(|word| line.contains(word))
            && let Some(event) = event_of(line)
        {
            *settled.entry(event).or_default() += 1;
        }
    }
    settled
}

fn event_of(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("event=")?;
    let end = rest.find([' ', '}']).unwrap_or(rest.len());
    Some(rest[..end].trim_matches('"').to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_is_killed_beside_rheo() {
    let site = Site::new(Store::redis());
    let Store::Redis(server) = &site.store else { unreachable!() };
    let url = server.url();
    // Its retries and traps go on until the attempts are used up: dead letters of ours.
    let keys =
        "lease = \"1s\"\nconcurrency = 4\nmax_in_flight = 16\nretry = { initial = \"20ms\", max = \"50ms\" }";
    site.pipeline("hostile", "", keys);
    let backend = connect(&url).await;
    let scene = Arc::new(Scene::new(&backend, &url, 2).await);
    let run = || site.engine(&["--log", "debug", "--namespace", "T"]);
    let mut engine = run();
    engine.wait_for(&["running"]);

    let consumer = Arc::clone(&scene);
    let consumer = std::thread::spawn(move || consumer.consume_like_rheo("rheo"));
    let deadline = Instant::now() + PATIENCE;
    let mut logs = Vec::new();
    let mut rounds = 0;
    for _ in 0..2 {
        // In the middle of its work: the peer may have taken most of a round before the program got
        // to it.
        while engine.log().matches("acked").count() < 5 {
            assert!(Instant::now() < deadline, "{}", engine.log());
            tokio::task::block_in_place(|| scene.produce_like_rheo(rounds));
            rounds += 1;
        }
        engine.signal("-KILL");
        logs.push(engine.end().2);
        engine = run();
        engine.wait_for(&["running"]);
    }
    // The program's own sweeper mends what the producer and the deaths have left.
    loop {
        let info = backend.group_info(&group()).await.unwrap();
        if at_end(&info) {
            break;
        }
        assert!(Instant::now() < deadline, "{info:?}\n{}", engine.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scene.done.store(true, Ordering::Relaxed);
    consumer.join().unwrap();
    logs.push(engine.log());
    let repaired = engine.log().contains("repaired");
    engine.drain();
    assert!(at_end(&backend.group_info(&group()).await.unwrap()));
    assert!(repaired || logs.iter().any(|log| log.contains("repaired")), "the producer left holes");

    let settled = settled_lines(&logs);
    let twice: Vec<_> = settled.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "settled more than once by us: {twice:?}");
    // Each event was in someone's hands.
    let started: BTreeSet<String> = logs
        .iter()
        .flat_map(|log| log.lines())
        .filter(|line| line.contains("started"))
        .filter_map(event_of)
        .collect();
    let mut events = 0;
    for partition in 0..2 {
        for event in backend.read(&group().stream, partition, 0, 10_000).await.unwrap() {
            let place = (event.partition, event.sequence);
            assert!(started.contains(&event.id) || scene.checker.was_fetched(place), "{place:?} was lost");
            events += 1;
        }
    }
    assert_eq!(events, scene.events.lock().unwrap().len());
    assert!(settled.len() > 10 && scene.checker.theirs() > 10, "both sides took part");
    // A dead letter of ours says why; there is one at most an event.
    let mut dead = BTreeMap::<String, usize>::new();
    for letter in backend.dead_letters(&group(), None, 10_000).await.unwrap() {
        if let (Some(_), wasmill::backend::DeadEvent::Event(event)) = (letter.cause, letter.event) {
            *dead.entry(event.id).or_default() += 1;
        }
    }
    assert!(!dead.is_empty() && dead.values().all(|times| *times == 1), "{dead:?}");
}
