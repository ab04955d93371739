//! Rheo's own answers about the data that it left are the program's answers too; and to ask changes
//! nothing.

use std::collections::BTreeMap;

use redis::Value as Answer;
use serde_json::{Value, json};

use crate::fixture::{expected, groups, server};
use crate::support::program::{Site, Store};

/// A folder whose commands work on the data.
pub(crate) fn site() -> Site {
    Site::new(Store::Redis(server()))
}

/// Runs a command on the namespace of the data and reads its lines.
pub(crate) fn lines(site: &Site, args: &[&str]) -> Vec<Value> {
    site.json(&[args, &["--namespace", "Fixture"]].concat())
}

#[test]
fn streams_and_groups_are_listed() {
    let (site, expected) = (site(), expected());
    let streams = lines(&site, &["stream", "list"]);
    assert_eq!(json!(streams.iter().map(|s| &s["stream"]).collect::<Vec<_>>()), expected["list_streams"]);
    let multi = streams.iter().find(|s| s["stream"] == "multi").unwrap();
    assert_eq!(multi["partitions"], 4);
    for (stream, about) in expected["streams"].as_object().unwrap() {
        let groups = lines(&site, &["group", "list", stream]);
        let names: Vec<_> = groups.iter().map(|group| &group["group"]).collect();
        assert_eq!(json!(names), about["list_groups"], "{stream}");
    }
}

#[test]
fn groups_stand_where_rheo_says() {
    let (site, expected) = (site(), expected());
    for (stream, group) in groups(&expected) {
        let about = &expected["streams"][&stream]["groups"][&group];
        let info = lines(&site, &["group", "info", &stream, &group]).remove(0);
        assert_eq!(info["lag"], about["lag"]["lag"], "{info}");
        let partitions = about["lag"]["partitions"].as_object().unwrap();
        let frontiers: Vec<_> =
            (0..partitions.len()).map(|p| &partitions[&p.to_string()]["frontier"]).collect();
        assert_eq!(info["frontier"], json!(frontiers), "{info}");
        let pending = info["in_flight"].as_u64().unwrap() + info["parked"].as_u64().unwrap();
        assert_eq!(json!(pending), about["group_info"]["inflight_count"], "{info}");
        assert_eq!(info["dead_letters"], about["group_info"]["dead_letter_count"], "{info}");
    }
}

#[test]
fn dead_letters_come_in_order() {
    let (site, expected) = (site(), expected());
    for (stream, group) in groups(&expected) {
        let rows = lines(&site, &["dead-letter", "list", &stream, &group]);
        let wanted = expected["streams"][&stream]["groups"][&group]["dead_letters"].as_array().unwrap();
        assert_eq!(rows.len(), wanted.len(), "{stream}/{group}");
        for (row, wanted) in rows.iter().zip(wanted) {
            for field in ["reason", "dead_lettered_at"] {
                assert_eq!(row[field], wanted[field], "{row}");
            }
            same_event(&row["event"], &wanted["event"]);
        }
    }
}

/// Whether an event as a command prints it is this one.
pub(crate) fn same_event(shown: &Value, wanted: &Value) {
    for (field, value) in wanted.as_object().unwrap() {
        // What is absent is left out by ours, and null in the expectations.
        assert_eq!(shown.get(field).unwrap_or(&Value::Null), value, "{field} of {shown}");
    }
}

#[test]
fn pending_entries_show_who_holds_them() {
    let site = site();
    let pending = lines(&site, &["group", "pending", "orders", "risk"]);
    let shown: Vec<_> = pending
        .iter()
        .map(|entry| (&entry["sequence"], &entry["state"], &entry["attempt"], &entry["reason"]))
        .map(|(sequence, state, attempt, reason)| json!([sequence, state, attempt, reason]))
        .collect();
    let wanted = [
        json!([3, "leased", 2, ":temporary_error"]),
        json!([8, "leased", 1, null]),
        json!([9, "parked", 1, "{:error, %{code: 42}}"]),
        json!([10, "leased", 1, null]),
    ];
    assert_eq!(shown, wanted);
    assert_eq!(pending[0]["consumer"], "c2");
    assert!(pending[0]["expires_in_ms"].as_i64().unwrap() > 0);
    assert!(pending[1]["expires_in_ms"].as_i64().unwrap() < 0, "it ran out");
    assert_eq!(pending[2]["due_in_ms"], 0);
}

/// Every key of the server with all that it holds.
fn keys(site: &Site) -> BTreeMap<Vec<u8>, (Answer, i64)> {
    let Store::Redis(server) = &site.store else { unreachable!() };
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert!(names.len() >= 62);
    let mut of = |name: Vec<u8>| {
        let dump = redis::cmd("DUMP").arg(&name).query(&mut connection).unwrap();
        let expiry = redis::cmd("PTTL").arg(&name).query(&mut connection).unwrap();
        (name, (dump, expiry))
    };
    names.into_iter().map(&mut of).collect()
}

/// All that shows and changes nothing, each with what it needs to work.
const LOOKS: &[&[&str]] = &[
    &["check", "wasmill.toml"],
    &["stream", "list"],
    &["stream", "info", "multi"],
    &["group", "list", "orders"],
    &["group", "info", "orders", "risk"],
    &["group", "info", "multi", "g"],
    &["group", "pending", "orders", "risk"],
    &["group", "explain", "orders", "risk"],
    &["group", "explain", "multi", "g"],
    &["query", "multi", "--type", "fx"],
    &["query", "orders", "--desc", "--limit", "3"],
    &["dead-letter", "list", "orders", "risk"],
    &["dead-letter", "show", "orders", "risk", "evt-0007"],
];

/// What would change something, and only says so as long as it is not confirmed.
const UNCONFIRMED: &[&[&str]] = &[
    &["group", "replay", "orders", "risk", "--from", "1"],
    &["group", "replay", "orders", "risk", "--event", "evt-0001"],
    &["group", "reset", "orders", "audit", "--start", "beginning"],
    &["group", "delete", "orders", "late"],
    &["dead-letter", "redrive", "orders", "risk", "--all"],
    &["dead-letter", "purge", "orders", "risk", "--all"],
    &["stream", "trim", "orders", "--max-length", "1"],
];

#[test]
fn attaching_changes_nothing() {
    let site = site();
    site.plugin("passthrough");
    site.write(
        "wasmill.toml",
        "[plugins.passthrough]\npath = \"passthrough.wasm\"\n\n\
         [[pipeline]]\nname = \"risk\"\nstream = \"orders\"\ngroup = \"risk\"\nplugin = \"passthrough\"\n\
         [[pipeline]]\nname = \"new\"\nstream = \"orders\"\ngroup = \"new\"\nplugin = \"passthrough\"\n",
    );
    let before = keys(&site);
    for args in LOOKS {
        for json in [&[][..], &["--json"]] {
            site.ok(&[args, json, &["--namespace", "Fixture"][..]].concat());
            assert!(keys(&site) == before, "{args:?} has changed something");
        }
    }
    // What does not exist is not made by looking for it, either.
    for args in [&["group", "info", "orders", "none"], &["stream", "info", "none", "--json"]] {
        assert_eq!(site.run(&[&args[..], &["--namespace", "Fixture"]].concat()).status.code(), Some(1));
    }
    for args in UNCONFIRMED {
        let output = site.run(&[args, &["--namespace", "Fixture"][..]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains("--yes"), "{args:?}: {said}");
        assert!(keys(&site) == before, "{args:?} has changed something");
    }
    assert!(keys(&site) == before);
}

#[test]
fn held_leases_settle_from_the_command_line() {
    let site = site();
    for (group, event, lease) in crate::fixture_leases::leases() {
        let (partition, sequence) = (lease.partition.to_string(), lease.sequence.to_string());
        let settle = |receipt: &str| {
            site.run(&[
                "group",
                "settle",
                group.stream.as_str(),
                group.group.as_str(),
                "--partition",
                &partition,
                "--sequence",
                &sequence,
                "--receipt",
                receipt,
                "--lease-id",
                &lease.id,
                "--ack",
                "--namespace",
                "Fixture",
                "--json",
            ])
        };
        let refused = |receipt: &str, why: &str| {
            let output = settle(receipt);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{event}: {said}");
            assert!(said.contains(why), "{event}: {said}");
        };
        if crate::fixture_leases::OVER.contains(&event.as_str()) {
            refused(&lease.receipt, "no longer yours");
        } else {
            refused("1-1", "is not that of sequence");
            let output = settle(&lease.receipt);
            assert!(output.status.success(), "{event}: {}", String::from_utf8_lossy(&output.stderr));
            refused(&lease.receipt, "no longer yours");
        }
    }
    let info = lines(&site, &["group", "info", "orders", "risk"]).remove(0);
    assert_eq!((&info["frontier"], &info["in_flight"].as_u64()), (&json!([8]), &Some(1)), "{info}");
}
