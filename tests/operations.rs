//! What an operator does, through the program: dead letters, settling by hand, retention, healing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::program::{Site, Store, wait_until};
use wasmill::backend::{ClaimRequest, NewGroup, SettleRequest, Settled, Start};
use wasmill::event::{GroupKey, Leased, Name};
use wasmill::outcome::{Cause, Settlement, Verdict};

on_every_store!(
    dead_letters_are_selected_redriven_and_purged,
    a_verdict_by_hand_needs_the_lease,
    a_replay_takes_leases_away,
    the_engine_trims_what_all_groups_have_behind_them,
    a_run_until_idle_takes_redriven_events_too,
    what_was_trimmed_by_force_does_not_hold_a_run,
    listings_and_questions_write_nothing,
);

fn group() -> GroupKey {
    GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap())
}

/// A stream with these events and the group `g`.
fn filled(store: Store, events: &[(&str, &str)]) -> Site {
    let site = Site::new(store);
    let line = |(id, event_type): &(&str, &str)| {
        json!({ "id": id, "type": event_type, "payload": { "of": id } }).to_string()
    };
    site.append(&events.iter().map(line).collect::<Vec<_>>());
    site.with_store(async |backend| {
        backend.create_group(&group(), NewGroup { max_attempts: 2, start: Start::Beginning }).await.unwrap();
    });
    site
}

/// Takes all that is ready.
fn claim(site: &Site) -> Vec<Leased> {
    site.with_store(async |backend| {
        let request = ClaimRequest {
            group: &group(),
            consumer: "test",
            partitions: &[0],
            limit: 100,
            lease: Duration::from_secs(600),
            sweep: false,
            alone: false,
        };
        backend.claim(&request).await.unwrap().leased
    })
}

fn reject(site: &Site, leased: &[Leased]) {
    let settlements: Vec<_> = leased
        .iter()
        .map(|leased| Settlement {
            lease: leased.lease.clone(),
            verdict: Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None },
            plugin: None,
        })
        .collect();
    site.with_store(async |backend| {
        let request = SettleRequest { group: &group(), consumer: "test", settlements: &settlements };
        let answers = backend.settle(&request).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Settled::Done), "{answers:?}");
    });
}

/// Runs a command that must fail so, and gives its stderr.
fn fails(site: &Site, code: i32, args: &[&str]) -> String {
    let output = site.run(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    stderr
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["event"]["id"].as_str().unwrap()).collect()
}

fn dead_letters_are_selected_redriven_and_purged(store: Store) {
    let site = filled(store, &[("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b"), ("a3", "a"), ("c1", "c")]);
    reject(&site, &claim(&site));
    let list = |more: &[&str]| site.json(&[&["dead-letter", "list", "s", "g"], more].concat());
    let all = list(&[]);
    assert_eq!(ids(&all), ["a1", "b1", "a2", "b2", "a3", "c1"]);
    assert_eq!(ids(&list(&["--type", "a", "--limit", "2"])), ["a1", "a2"]);
    assert_eq!(ids(&list(&["--where", "of=b2", "--cause", "rejected"])), ["b2"]);
    assert_eq!(ids(&list(&["--cause", "undecodable"])), [""; 0]);
    assert_eq!(ids(&list(&["--older-than", "1h"])), [""; 0]);
    assert_eq!(list(&["--newer-than", "1h"]).len(), 6);

    // Nothing happens without a selection and without a confirmation.
    let redrive = ["dead-letter", "redrive", "s", "g"];
    assert!(fails(&site, 2, &redrive).contains("say which dead letters"));
    let asked = fails(&site, 1, &[&redrive[..], &["--type", "a"]].concat());
    assert!(asked.contains("3 dead letters") && asked.contains("confirm with --yes"), "{asked}");
    assert_eq!(list(&[]).len(), 6);

    let row = all[0]["row"].as_str().unwrap();
    let one = site.json(&[&redrive[..], &[row, "--yes"]].concat());
    assert_eq!(one[0]["events"], json!({ "redriven": 1, "gone": 0, "no_event": 0, "underway": 0 }));
    let again = fails(&site, 1, &[&redrive[..], &[row, "--yes"]].concat());
    assert!(again.contains(&format!("has no dead letter `{row}`")), "{again}");
    let none = fails(&site, 1, &[&redrive[..], &["--event", "zz", "--yes"]].concat());
    assert!(none.contains("has no dead letter `zz`"), "{none}");
    site.ok(&[&redrive[..], &["--event", "b1", "--yes"]].concat());
    let said = site.ok(&[&redrive[..], &["--type", "a", "--newer-than", "1h", "--yes"]].concat());
    assert_eq!(said, "2 events will be delivered again\n");
    assert_eq!(ids(&list(&[])), ["b2", "c1"]);
    let state = site.group();
    assert_eq!((&state["redriven"], &state["lag"]), (&json!(4), &json!(0)), "{state}");

    let delivered = claim(&site);
    let mut found: Vec<_> = delivered.iter().map(|leased| leased.event.id.as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, ["a1", "a2", "a3", "b1"]);
    assert!(delivered.iter().all(|leased| leased.lease.attempt == 1), "attempts begin afresh");

    let purge = ["dead-letter", "purge", "s", "g"];
    assert!(fails(&site, 1, &[&purge[..], &["--all"]].concat()).contains("2 dead letters"));
    assert_eq!(site.json(&[&purge[..], &["--type", "c", "--yes"]].concat())[0]["purged"], 1);
    assert_eq!(ids(&list(&[])), ["b2"]);
    assert_eq!(
        site.ok(&[&purge[..], &["--all", "--yes"]].concat()),
        "removed 1 dead letter of the group `g`\n"
    );
    assert_eq!(site.group()["dead_letters"], 0);
}

fn a_verdict_by_hand_needs_the_lease(store: Store) {
    let site = filled(store, &[("a", "a"), ("b", "b"), ("c", "c")]);
    let leased = claim(&site);
    let settle = |place: usize, receipt: &str, lease: &str, verdict: &[&str]| {
        let sequence = (place + 1).to_string();
        let fixed = ["group", "settle", "s", "g", "--partition", "0", "--sequence", &sequence, "--receipt"];
        let args = [&fixed[..], &[receipt, "--lease-id", lease], verdict].concat();
        site.run(&args)
    };
    let said = |output: &std::process::Output| String::from_utf8(output.stderr.clone()).unwrap();
    let lease = |place: usize| leased[place].lease.clone();

    let stale = settle(0, &lease(0).receipt, "nonsense", &["--ack"]);
    assert!(
        stale.status.code() == Some(1) && said(&stale).contains("is no longer yours"),
        "{}",
        said(&stale)
    );
    let mismatch = settle(0, &lease(1).receipt, &lease(0).id, &["--ack"]);
    let expected = format!("the receipt {} is not that of sequence 1", lease(1).receipt);
    assert!(mismatch.status.code() == Some(1) && said(&mismatch).contains(&expected), "{}", said(&mismatch));
    assert_eq!(site.group()["lag"], 3);

    assert!(settle(0, &lease(0).receipt, &lease(0).id, &["--ack"]).status.success());
    let twice = settle(0, &lease(0).receipt, &lease(0).id, &["--ack"]);
    assert!(said(&twice).contains("is no longer yours"), "{}", said(&twice));
    assert!(settle(1, &lease(1).receipt, &lease(1).id, &["--reject", "by hand"]).status.success());
    let parked = settle(2, &lease(2).receipt, &lease(2).id, &["--retry", "later", "--delay", "0s"]);
    assert!(parked.status.success(), "{}", said(&parked));
    let pending = site.json(&["group", "pending", "s", "g"]);
    assert_eq!((&pending[0]["state"], &pending[0]["reason"]), (&json!("parked"), &json!("later")));

    // The second attempt is the group's last one.
    let mut last = Vec::new();
    wait_until("the retry is due", || {
        last = claim(&site);
        !last.is_empty()
    });
    let dead = settle(2, &last[0].lease.receipt, &last[0].lease.id, &["--retry", "never"]);
    assert_eq!(String::from_utf8(dead.stdout).unwrap(), "sequence 3 of partition 0: dead-lettered\n");
    let dead = site.dead_letters();
    assert_eq!(ids(&dead), ["b", "c"]);
    assert_eq!((&dead[0]["reason"], &dead[0]["cause"]), (&json!("by hand"), &json!("rejected")));
    assert_eq!((&dead[1]["attempts"], &dead[1]["cause"]), (&json!(2), &json!("attempts-exhausted")));
    assert_eq!(site.group()["lag"], 0);
}

fn a_replay_takes_leases_away(store: Store) {
    let site = filled(store, &[("a", "a"), ("b", "b"), ("c", "c")]);
    let leased = claim(&site);
    let preview = site.run(&["group", "replay", "s", "g", "--from", "2", "--json"]);
    assert_eq!(preview.status.code(), Some(1));
    let row: Value = serde_json::from_slice(&preview.stdout).unwrap();
    assert_eq!(
        row,
        json!({ "partition": 0, "frontier": 0, "new_frontier": 0, "to_deliver": 2, "dropped": 2 })
    );
    let done = site.json(&["group", "replay", "s", "g", "--from", "2", "--yes"]);
    assert_eq!(done[0]["dropped"], 2);
    let settled = |place: usize| {
        let lease = &leased[place].lease;
        let (partition, sequence) = (lease.partition.to_string(), lease.sequence.to_string());
        let args = ["group", "settle", "s", "g", "--ack", "--partition", &partition, "--sequence", &sequence];
        site.run(&[&args[..], &["--receipt", &lease.receipt, "--lease-id", &lease.id]].concat()).status.code()
    };
    assert_eq!((settled(0), settled(1), settled(2)), (Some(0), Some(1), Some(1)));
    let again: Vec<_> = claim(&site).into_iter().map(|leased| leased.event.id).collect();
    assert_eq!(again, ["b", "c"]);
}

fn the_engine_trims_what_all_groups_have_behind_them(store: Store) {
    let site = Site::new(store);
    site.pipeline("passthrough", "", "");
    let file = std::fs::read_to_string(site.path().join("wasmill.toml")).unwrap();
    site.write("wasmill.toml", format!("{file}\n[streams.s]\nmax_length = 10\n"));
    let line = |n| json!({ "id": format!("e{n}"), "payload": {} }).to_string();
    site.append(&(1..=50).map(line).collect::<Vec<_>>());
    site.ok(&["group", "create", "s", "abandoned"]);
    site.until_idle(&[]);

    let mut engine = site.engine(&["--log", "info,guest=warn"]);
    engine.wait_for(&["the retention waits for a group", "`wasmill group delete s abandoned`"]);
    engine.drain();
    let first = || site.json(&["stream", "info", "s"])[0]["partitions"][0]["first"].clone();
    assert_eq!(first(), 1);

    site.ok(&["group", "delete", "s", "abandoned", "--yes"]);
    let mut engine = site.engine(&["--log", "info,guest=warn"]);
    engine.wait_for(&["old events were removed", "removed=40"]);
    engine.drain();
    assert_eq!(first(), 41);
}

fn a_run_until_idle_takes_redriven_events_too(store: Store) {
    let site = filled(store, &[("a", "a"), ("b", "b")]);
    reject(&site, &claim(&site));
    site.ok(&["dead-letter", "redrive", "s", "g", "--all", "--yes"]);
    site.pipeline("passthrough", "", "");
    let summary = site.until_idle(&[]);
    assert_eq!((&summary["acked"], &summary["left"]), (&json!(2), &Value::Null), "{summary}");
    let state = site.group();
    assert_eq!((&state["redriven"], &state["dead_letters"]), (&json!(0), &json!(0)), "{state}");
}

fn what_was_trimmed_by_force_does_not_hold_a_run(store: Store) {
    let site = filled(store, &[("a", "a"), ("b", "b"), ("c", "c")]);
    let held = site.json(&["stream", "trim", "s", "--until", "3", "--yes"]);
    assert_eq!(held[0], json!({ "stream": "s", "partition": 0, "removed": 0, "held_by": "g", "held_at": 1 }));
    let removed = site.json(&["stream", "trim", "s", "--until", "3", "--force", "--yes"]);
    assert_eq!(removed[0]["removed"], 3);
    // The step that trims passes what is gone, or the next one that meets it does.
    let holder = &site.json(&["group", "explain", "s", "g"])[0]["holder"];
    assert!(holder.is_null() || holder["state"] == "missing", "{holder}");

    site.pipeline("passthrough", "", "");
    let summary = site.until_idle(&[]);
    assert_eq!(summary["left"], Value::Null, "{summary}");
    let state = site.group();
    assert_eq!((&state["lag"], &state["missing"]), (&json!(0), &json!(3)), "{state}");
}

fn listings_and_questions_write_nothing(store: Store) {
    let site = filled(store, &[("a", "a"), ("b", "b"), ("c", "c")]);
    let leased = claim(&site);
    reject(&site, &leased[..1]);
    let before = site.contents();
    for args in [
        &["query", "s", "--type", "a"][..],
        &["query", "s", "--desc"],
        &["stream", "list"],
        &["stream", "info", "s"],
        &["group", "list", "s"],
        &["group", "info", "s", "g"],
        &["group", "pending", "s", "g"],
        &["group", "explain", "s", "g"],
        &["dead-letter", "list", "s", "g"],
        &["dead-letter", "show", "s", "g", "a"],
        &["group", "replay", "s", "g", "--from", "1"],
        &["group", "replay", "s", "g", "--event", "a"],
        &["group", "reset", "s", "g", "--start", "end"],
        &["group", "delete", "s", "g"],
        &["dead-letter", "redrive", "s", "g", "--all"],
        &["dead-letter", "purge", "s", "g", "--all"],
        &["stream", "trim", "s", "--max-length", "1"],
    ] {
        site.run(args);
        assert_eq!(site.contents(), before, "{args:?} wrote something");
    }
}

/// A frontier that stands behind what is settled, as another program may leave it.
#[test]
fn a_frontier_that_was_left_behind_does_not_hold_a_run() {
    let site = filled(Store::Sqlite, &[("a", "a"), ("b", "b")]);
    reject(&site, &claim(&site));
    let file = rusqlite::Connection::open(site.path().join("wasmill.db")).unwrap();
    assert_eq!(file.execute("UPDATE group_partitions SET frontier = 0", []).unwrap(), 1);
    site.pipeline("passthrough", "", "");
    assert_eq!(site.group()["lag"], 2);
    let summary = site.until_idle(&[]);
    assert_eq!(
        (&summary["repairs"], &summary["left"]),
        (&json!({ "frontier": 1 }), &Value::Null),
        "{summary}"
    );
    assert_eq!(site.group()["lag"], 0);
}

/// A producer that took a sequence and died before it wrote the event.
#[test]
fn a_hole_does_not_hold_a_run() {
    let site = filled(Store::redis(), &[("a", "a"), ("b", "b")]);
    let Store::Redis(server) = &site.store else { unreachable!() };
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let _: u64 = redis::cmd("INCR").arg("rheo:Rheo.Redis:seq:s:0").query(&mut connection).unwrap();
    site.append(&[json!({ "id": "d", "payload": {} }).to_string()]);
    site.pipeline("passthrough", "", "");
    let summary = site.until_idle(&[]);
    assert_eq!((&summary["acked"], &summary["left"]), (&json!(3), &Value::Null), "{summary}");
    assert_eq!(summary["repairs"]["hole"], 1, "{summary}");
    let state = site.group();
    assert_eq!((&state["frontier"], &state["lag"]), (&json!([4]), &json!(0)), "{state}");
}

/// A way to the server that breaks once what is asked holds a text: after the server has answered,
/// before the answer is passed on.
fn breaking_proxy(port: u16, at: &'static str) -> u16 {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own_port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            std::thread::spawn(move || {
                let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (cut, cut_seen) = std::sync::mpsc::channel::<()>();
                std::thread::spawn(move || {
                    let mut buffer = [0; 65536];
                    while let Ok(length @ 1..) = answers.read(&mut buffer) {
                        if cut_seen.try_recv().is_ok() {
                            let _ = to_client.shutdown(std::net::Shutdown::Both);
                            return;
                        }
                        let _ = to_client.write_all(&buffer[..length]);
                    }
                });
                let mut buffer = [0; 65536];
                while let Ok(length @ 1..) = client.read(&mut buffer) {
                    if String::from_utf8_lossy(&buffer[..length]).contains(at) {
                        cut.send(()).unwrap();
                    }
                    server.write_all(&buffer[..length]).unwrap();
                }
            });
        }
    });
    own_port
}

#[test]
fn an_answer_that_was_cut_off_leaves_a_write_unknown() {
    let site = Site::new(Store::redis());
    let Store::Redis(server) = &site.store else { unreachable!() };
    site.ok(&["stream", "create", "s"]);
    site.write("line.jsonl", r#"{"payload":{"mark":"cut-here"}}"#);
    let port = breaking_proxy(server.port(), "cut-here");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_wasmill"));
    command.args(["append", "s", "--file", "line.jsonl", "--backend", &format!("redis://127.0.0.1:{port}")]);
    let output = command.current_dir(site.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("lines 1 to 1 may be stored or not"), "{stderr}");
    assert!(stderr.contains("whether it did the work is unknown"), "{stderr}");
    assert_eq!(site.events().len(), 1, "this one was stored");
}
