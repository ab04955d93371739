//! What the log holds: [`Event`], and what a producer hands in: [`NewEvent`].
//!
//! Plain values without I/O, clock or runtime. Payload and metadata keep the very text that was
//! stored ([`JsonObject`]), because a handler must see what the producer wrote, byte for byte.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Longest name of a stream or group that we create, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Default upper bound of one event's stored size, in bytes (4 MiB).
pub const EVENT_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;

/// Largest sequence and largest timestamp in milliseconds: 2^53 − 1, what a double holds exactly
/// (scores of a sorted set and JavaScript's numbers are doubles).
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// The name of a stream or of a consumer group.
///
/// Cheap to clone. Two constructors, since names of others are accepted where they exist, but
/// only portable ones are created: see [`Name::new`] and [`Name::existing`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// Why a text cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name cannot be empty")]
    Empty,
    /// The text is longer than [`NAME_BYTES_MAX`].
    #[error("`{0}` is longer than {NAME_BYTES_MAX} bytes")]
    TooLong(String),
    /// The text has a character outside `[A-Za-z0-9._-]`.
    #[error("`{name}` has the character {character:?}: names are made of letters, digits, `.`, `_` and `-`")]
    Character {
        /// The refused text.
        name: String,
        /// Its first character that is not allowed.
        character: char,
    },
}

impl Name {
    /// A name that may be created: 1 to 128 characters of `[A-Za-z0-9._-]`.
    ///
    /// # Errors
    /// Empty, too long, or a character outside that set.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(character) = text.chars().find(|c| !portable(*c)) {
            return Err(NameError::Character { name: text.to_owned(), character });
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// The name of something that exists already; anything but the empty text.
    ///
    /// # Errors
    /// The text is empty.
    pub fn existing(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        Ok(Self(text.into()))
    }

    /// Whether [`Name::new`] would take it. Other names are never put into a pattern.
    #[must_use]
    pub fn is_portable(&self) -> bool {
        Self::new(&self.0).is_ok()
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn portable(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// One consumer group of one stream. Groups are independent of each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// The stream that the group reads.
    pub stream: Name,
    /// The group's own name.
    pub group: Name,
}

impl GroupKey {
    /// The group `group` of the stream `stream`.
    #[must_use]
    pub fn new(stream: Name, group: Name) -> Self {
        Self { stream, group }
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.group)
    }
}

/// The text of a JSON object, kept as it was written: never parsed and written again.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct JsonObject(Box<RawValue>);

/// Why a text is not the text of a JSON object.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at all.
    #[error("not valid JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    /// JSON, but of another type.
    #[error("must be a JSON object, but is {0}")]
    NotAnObject(&'static str),
}

impl JsonObject {
    /// Takes a text that is one JSON object. White space around it is dropped, inside it is kept.
    ///
    /// # Errors
    /// The text is not JSON, or its value is not an object.
    pub fn parse(text: impl Into<String>) -> Result<Self, JsonError> {
        Self::from_raw(RawValue::from_string(text.into())?)
    }

    /// Takes a value that a parser kept raw.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn from_raw(raw: Box<RawValue>) -> Result<Self, JsonError> {
        match raw.get().as_bytes().first() {
            Some(b'{') => Ok(Self(raw)),
            Some(b'[') => Err(JsonError::NotAnObject("an array")),
            Some(b'"') => Err(JsonError::NotAnObject("a string")),
            Some(b't' | b'f') => Err(JsonError::NotAnObject("a boolean")),
            Some(b'n') => Err(JsonError::NotAnObject("null")),
            _ => Err(JsonError::NotAnObject("a number")),
        }
    }

    /// The object `{}`.
    #[must_use]
    pub fn empty() -> Self {
        // `{}` is an object: the fallback is never taken, and would be harmless.
        Self(RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// The object's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The object's top level as pairs in the order written, each value as its JSON text. A key
    /// that occurs twice is listed twice.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, &RawValue)> {
        struct Pairs;
        impl<'de> serde::de::Visitor<'de> for Pairs {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<String, &'de RawValue>()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        // A key with a lone surrogate is JSON, but no Rust string: such an object has no entries
        // that we could name.
        let mut reader = serde_json::Deserializer::from_str(self.as_str());
        serde::Deserializer::deserialize_map(&mut reader, Pairs).unwrap_or_default()
    }

    /// The top-level field `name` as text: a string's content, any other value's JSON text; `None`
    /// where it is absent or null. Of a key that occurs twice the first one counts.
    #[must_use]
    pub fn text_field(&self, name: &str) -> Option<String> {
        let (_, raw) = self.entries().into_iter().find(|(key, _)| key == name)?;
        raw_text(raw)
    }
}

/// A value as text: a string's content, any other value's JSON text, nothing for null.
fn raw_text(raw: &RawValue) -> Option<String> {
    match raw.get() {
        "null" => None,
        text if text.starts_with('"') => serde_json::from_str(text).ok(),
        text => Some(text.to_owned()),
    }
}

impl PartialEq for JsonObject {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonObject {}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// One stored event. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The producer's id, or one of ours: 22 characters of base64url.
    pub id: String,
    /// The stream that holds it.
    pub stream: Name,
    /// Its partition, from 0.
    pub partition: u32,
    /// Its place in the partition, from 1 and without gaps; at most [`NUMBER_MAX`].
    pub sequence: u64,
    /// The stored text of its time, as a rule ISO 8601 with milliseconds and `Z`.
    pub timestamp: String,
    /// The routing key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The event's type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Metadata: lineage, schema and whatever the producer added.
    pub metadata: JsonObject,
    /// The payload.
    pub payload: JsonObject,
}

impl Event {
    /// The instant that [`Event::timestamp`] names, in milliseconds since 1970-01-01T00:00Z;
    /// `None` where the text is no time with an offset, or lies outside ± 2^53 ms.
    #[must_use]
    pub fn timestamp_ms(&self) -> Option<i64> {
        let at: jiff::Timestamp = self.timestamp.parse().ok()?;
        let ms = at.as_millisecond();
        (ms.unsigned_abs() <= NUMBER_MAX).then_some(ms)
    }

    /// Metadata as pairs of text, as a handler receives them: strings as they are, other values
    /// as their JSON text, null values left out.
    #[must_use]
    pub fn metadata_pairs(&self) -> Vec<(String, String)> {
        let entries = self.metadata.entries().into_iter();
        entries.filter_map(|(key, raw)| Some((key, raw_text(raw)?))).collect()
    }
}

/// An event that is to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The event's id; without one, the store makes one. Ids are not forced to be unique.
    pub id: Option<String>,
    /// The partition; without one, [`NewEvent::key`] decides, without a key it is 0.
    pub partition: Option<u32>,
    /// The routing key.
    pub key: Option<String>,
    /// The event's type.
    pub event_type: Option<String>,
    /// The event's time as text; without one, the store's time.
    pub timestamp: Option<String>,
    /// Metadata.
    pub metadata: JsonObject,
    /// The payload.
    pub payload: JsonObject,
}

/// Why an event is refused before anything is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// Above the size limit.
    #[error(
        "the event has {bytes} bytes, more than the limit of {bytes_max} (`max_event_bytes` in `[engine]` raises it)"
    )]
    TooLarge {
        /// The event's size.
        bytes: usize,
        /// The limit in force.
        bytes_max: usize,
    },
    /// An id that is the empty text.
    #[error("an event's id cannot be empty")]
    EmptyId,
}

impl NewEvent {
    /// An event with this payload and nothing else.
    #[must_use]
    pub fn new(payload: JsonObject) -> Self {
        let metadata = JsonObject::empty();
        Self { id: None, partition: None, key: None, event_type: None, timestamp: None, metadata, payload }
    }

    /// The size that counts against `max_event_bytes`: payload, metadata, id, key and type.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.payload.as_str().len()
            + self.metadata.as_str().len()
            + optional(&self.id)
            + optional(&self.key)
            + optional(&self.event_type)
            + optional(&self.timestamp)
    }

    /// Checks what can be known without a store.
    ///
    /// # Errors
    /// Larger than `bytes_max`, or with an empty id.
    pub fn check(&self, bytes_max: usize) -> Result<(), InvalidEvent> {
        if self.id.as_deref() == Some("") {
            return Err(InvalidEvent::EmptyId);
        }
        let bytes = self.bytes();
        if bytes > bytes_max {
            return Err(InvalidEvent::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}

/// What proves that its holder may settle an event: the fencing token and the store's receipt.
///
/// Every delivery has a token that no other delivery of the same entry shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The fencing token (22 characters of base64url). Entries of one claim may share it.
    pub id: Arc<str>,
    /// The store's own id of the entry.
    pub receipt: Arc<str>,
    /// The entry's partition.
    pub partition: u32,
    /// The entry's sequence.
    pub sequence: u64,
    /// How often the entry was delivered, this time included; from 1.
    pub attempt: u32,
}

/// An event under lease.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The event.
    pub event: Event,
    /// The proof that this consumer holds it.
    pub lease: Lease,
}

/// Sixteen random bytes as 22 characters of base64url: an event id or a lease id.
#[must_use]
pub fn random_id() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>())
}

#[cfg(test)]
mod tests;
