use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::backend::{Repair, RepairKind};
use crate::event::{GroupKey, Name};

#[test]
fn names_follow_the_conventions_and_are_there_once() {
    let mut seen = std::collections::BTreeSet::new();
    for metric in names::ALL {
        let name = metric.name;
        assert!(seen.insert(name), "{name} is there twice");
        assert!(name.starts_with("wasmill_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert_eq!(metric.kind == names::Kind::Counter, name.ends_with("_total"), "{name}");
        assert_eq!(metric.kind == names::Kind::Info, name.ends_with("_info"), "{name}");
        // The library writes one.
        assert!(!metric.help.ends_with('.') && !metric.help.is_empty(), "{name}");
    }
}

#[test]
fn what_is_counted_of_a_pipeline_is_scraped() {
    let metrics = Arc::new(Metrics::default());
    let group = GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap());
    let meters = Meters::new(Arc::clone(&metrics), "p", &group, "x");
    meters.claimed(2, 1);
    meters.repaired(&Repair { kind: RepairKind::Hole, sequences: None, count: 5 });
    let group_meters = GroupMeters::new(Arc::clone(&metrics), "p", &group);
    let lag = "wasmill_group_lag_events{pipeline=\"p\",stream=\"s\",group=\"g\"} 7";
    assert!(!metrics.text(&Now::default()).contains("wasmill_group_lag_events{"), "nothing was read yet");
    group_meters.set(7, 0, 0, None);
    let text = metrics.text(&Now::default());
    for line in [
        "wasmill_events_claimed_total{pipeline=\"p\",stream=\"s\",group=\"g\"} 2",
        "wasmill_events_redelivered_total{pipeline=\"p\",stream=\"s\",group=\"g\"} 1",
        "wasmill_repairs_total{pipeline=\"p\",stream=\"s\",group=\"g\",kind=\"hole\"} 5",
        "wasmill_repairs_total{pipeline=\"p\",stream=\"s\",group=\"g\",kind=\"fence\"} 0",
        "wasmill_store_up 0",
        lag,
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    drop(group_meters);
    assert!(!metrics.text(&Now::default()).contains(lag), "its pipeline has ended");
}

#[test]
fn what_is_gone_has_no_row() {
    let metrics = Metrics::default();
    let plugins = BTreeMap::from([("x".to_owned(), PluginNow { warm: 2, ..PluginNow::default() })]);
    let row = "wasmill_plugin_instances{plugin=\"x\",state=\"warm\"} 2";
    assert!(metrics.text(&Now { store_up: true, plugins, ..Now::default() }).contains(row));
    assert!(!metrics.text(&Now::default()).contains("plugin=\"x\""));
}
