//! Where a derived event comes from: its id, and what its metadata say of its origin.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::event::{Event, GroupKey, JsonObject};
use crate::outcome::{Effects, Outcome};
use crate::telemetry::short_digest;

/// The metadata field that counts through how many handlers an event came.
const HOPS: &str = "hops";

/// Who derives events.
pub(super) struct Origin<'a> {
    /// The group that the source was claimed for.
    pub(super) group: &'a GroupKey,
    /// The plugin's name.
    pub(super) plugin: &'a str,
    /// The digest of its build.
    pub(super) digest: &'a str,
    /// Handlers that an event may come through before it is stopped.
    pub(super) hops_max: u32,
}

/// Completes what a handler staged: ids that follow from the source and the event's place among what
/// was derived, so that a repeat can be recognised, and Rheo's lineage fields. An event that came
/// through too many handlers derives nothing more.
pub(super) fn complete(outcome: Outcome, source: &Event, origin: &Origin<'_>) -> Outcome {
    let mut effects = match outcome {
        Outcome::Ack(effects) if !effects.appends.is_empty() => effects,
        other => return other,
    };
    let hops = source.metadata.text_field(HOPS).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    if hops >= origin.hops_max {
        return Outcome::TooManyHops { hops, hops_max: origin.hops_max };
    }
    fill_in(&mut effects, source, origin, hops.saturating_add(1));
    Outcome::Ack(effects)
}

fn fill_in(effects: &mut Effects, source: &Event, origin: &Origin<'_>, hops: u32) {
    let producer = format!("{}@{}", origin.plugin, short_digest(origin.digest));
    let correlation = source.metadata.text_field("correlation_id").unwrap_or_else(|| source.id.clone());
    for (index, staged) in effects.appends.iter_mut().enumerate() {
        staged.event.id = Some(derived_id(source, origin.group, index));
        // What the guest staged is an object; were it none, it would say nothing.
        let mut metadata: Map<String, Value> =
            serde_json::from_str(staged.event.metadata.as_str()).unwrap_or_default();
        metadata.entry("correlation_id").or_insert_with(|| correlation.clone().into());
        metadata.insert("causation_id".to_owned(), source.id.clone().into());
        metadata.insert("producer".to_owned(), producer.clone().into());
        metadata.insert(HOPS.to_owned(), hops.into());
        if let Ok(metadata) = JsonObject::parse(Value::Object(metadata).to_string()) {
            staged.event.metadata = metadata;
        }
    }
}

/// 22 characters, as all ids of ours. Ids of producers need not be unique: the place in the log is.
fn derived_id(source: &Event, group: &GroupKey, index: usize) -> String {
    let place =
        format!("{}\0{}\0{}\0{}\0{index}\0", source.stream, group.group, source.partition, source.sequence);
    let hash = Sha256::new().chain_update(place).chain_update(&source.id).finalize();
    URL_SAFE_NO_PAD.encode(&hash[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Name, NewEvent};
    use crate::outcome::StagedEvent;

    fn source(metadata: &str) -> Event {
        Event {
            id: "e1".to_owned(),
            stream: Name::new("s").unwrap(),
            partition: 2,
            sequence: 7,
            timestamp: "2020-01-15T12:00:00.000Z".to_owned(),
            key: None,
            event_type: None,
            metadata: JsonObject::parse(metadata).unwrap(),
            payload: JsonObject::empty(),
        }
    }

    fn derive(source: &Event, group: &str, staged: &[&str]) -> Outcome {
        let group = GroupKey::new(source.stream.clone(), Name::new(group).unwrap());
        let origin = Origin { group: &group, plugin: "enrich", digest: "0123456789abcdef", hops_max: 3 };
        let staged = staged.iter().map(|metadata| StagedEvent {
            stream: Name::new("audit").unwrap(),
            event: NewEvent {
                metadata: JsonObject::parse(*metadata).unwrap(),
                ..NewEvent::new(JsonObject::empty())
            },
        });
        let effects = Effects { appends: staged.collect(), ..Effects::default() };
        complete(Outcome::Ack(effects), source, &origin)
    }

    fn appended(outcome: Outcome) -> Vec<NewEvent> {
        let Outcome::Ack(effects) = outcome else { panic!("{outcome:?}") };
        effects.appends.into_iter().map(|staged| staged.event).collect()
    }

    #[test]
    fn derived_events_say_where_they_come_from() {
        let events =
            appended(derive(&source("{\"correlation_id\":\"trade-42\"}"), "g", &["{}", "{\"a\":\"b\"}"]));
        assert_eq!(
            events[1].metadata.as_str(),
            r#"{"a":"b","causation_id":"e1","correlation_id":"trade-42","hops":1,"producer":"enrich@0123456789ab"}"#
        );
        let first = events[0].metadata.text_field("correlation_id");
        assert_eq!(first.as_deref(), Some("trade-42"));
    }

    #[test]
    fn a_guest_may_say_what_belongs_together_and_nothing_else() {
        let staged = r#"{"correlation_id":"mine","causation_id":"forged","producer":"forged","hops":"0"}"#;
        let events = appended(derive(&source("{\"hops\":1}"), "g", &[staged, "{}"]));
        assert_eq!(
            events[0].metadata.as_str(),
            r#"{"causation_id":"e1","correlation_id":"mine","hops":2,"producer":"enrich@0123456789ab"}"#
        );
        assert_eq!(events[1].metadata.text_field("correlation_id").as_deref(), Some("e1"));
    }

    #[test]
    fn ids_follow_from_the_source_and_the_place() {
        let ids = |source: &Event, group| -> Vec<String> {
            appended(derive(source, group, &["{}", "{}"])).into_iter().filter_map(|event| event.id).collect()
        };
        let (one, again, other) = (ids(&source("{}"), "g"), ids(&source("{}"), "g"), ids(&source("{}"), "h"));
        assert_eq!(one, again);
        assert_eq!(one[0].len(), 22);
        assert_ne!(one[0], one[1]);
        assert_ne!(one[0], other[0]);
        assert_ne!(ids(&Event { sequence: 8, ..source("{}") }, "g")[0], one[0]);
    }

    #[test]
    fn what_goes_in_a_circle_is_stopped() {
        assert_eq!(
            derive(&source("{\"hops\":3}"), "g", &["{}"]),
            Outcome::TooManyHops { hops: 3, hops_max: 3 }
        );
        // Without anything derived the circle ends by itself.
        assert_eq!(derive(&source("{\"hops\":9}"), "g", &[]), Outcome::Ack(Effects::default()));
    }
}
