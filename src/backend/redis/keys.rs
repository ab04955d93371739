//! Names of keys: Rheo's and our own, under one prefix.

use crate::event::{GroupKey, Name};
use crate::state::Bucket;

/// The prefix of all keys of one namespace, and how the keys are made from it.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys of this namespace (Rheo's handle).
    pub(super) fn new(namespace: &str) -> Self {
        Self { prefix: format!("rheo:{namespace}:") }
    }

    /// A stream's metadata (hash).
    pub(super) fn meta(&self, stream: &Name) -> String {
        format!("{}meta:{stream}", self.prefix)
    }

    /// A partition's last sequence (string).
    pub(super) fn seq(&self, stream: &Name, partition: u32) -> String {
        format!("{}seq:{stream}:{partition}", self.prefix)
    }

    /// A partition's index, entry id by sequence (sorted set).
    pub(super) fn index(&self, stream: &Name, partition: u32) -> String {
        format!("{}z:{stream}:{partition}", self.prefix)
    }

    /// A partition's entries (stream).
    pub(super) fn entries(&self, stream: &Name, partition: u32) -> String {
        format!("{}s:{stream}:{partition}", self.prefix)
    }

    /// A group's metadata (hash).
    pub(super) fn group(&self, group: &GroupKey) -> String {
        format!("{}gmeta:{}", self.prefix, Self::of(group))
    }

    /// What the keys of a group's fences begin with; an entry id follows (hashes).
    pub(super) fn fences(&self, group: &GroupKey) -> String {
        format!("{}fence:{}:", self.prefix, Self::of(group))
    }

    /// A group's settled sequences above its frontier (sorted set).
    pub(super) fn done(&self, group: &GroupKey, partition: u32) -> String {
        format!("{}done:{}:{partition}", self.prefix, Self::of(group))
    }

    /// A group's dead letters, of all partitions (stream).
    pub(super) fn dead_letters(&self, group: &GroupKey) -> String {
        format!("{}dlq:{}", self.prefix, Self::of(group))
    }

    /// Ours: a group's parked entries by the time they come back (sorted set).
    pub(super) fn due(&self, group: &GroupKey, partition: u32) -> String {
        format!("{}due:{}:{partition}", self.prefix, Self::of(group))
    }

    /// Ours: entries that may have killed their consumer, see `Claimed::suspects` (sorted set).
    pub(super) fn suspects(&self, group: &GroupKey, partition: u32) -> String {
        format!("{}suspect:{}:{partition}", self.prefix, Self::of(group))
    }

    /// Ours: redriven events that are not settled, entry id by sequence: the durable record of each
    /// (sorted set).
    pub(super) fn redriven(&self, group: &GroupKey, partition: u32) -> String {
        format!("{}redriven:{}:{partition}", self.prefix, Self::of(group))
    }

    /// Ours: the fields of redriven events by entry id, see `codec::decode_copy` (hash).
    pub(super) fn copies(&self, group: &GroupKey, partition: u32) -> String {
        format!("{}copy:{}:{partition}", self.prefix, Self::of(group))
    }

    /// Ours: what the steps of a claim tell each other, and more (hash). Field `{p}`: lease id of the
    /// last claim and the id behind which it read. `recheck:{p}`: up to which sequence the group may
    /// come by entries that are settled. `rewind:{p}`: kind and target sequence of the rewind that is
    /// under way; `rewound:{p}`: how far that came. `missing:{p}`: how many events were removed before
    /// they were settled. `since:{p}`: the entry id behind which this group has read everything, as
    /// far as we know it; `heirs:{p}`: whether it had readers before that. `hole:{p}`: a gap at the
    /// frontier, its first and last sequence and when it was first seen.
    pub(super) fn note(&self, group: &GroupKey) -> String {
        format!("{}note:{}", self.prefix, Self::of(group))
    }

    /// Ours: the sequence up to which each partition of a stream was trimmed, with its index rows
    /// (hash).
    pub(super) fn trimmed(&self, stream: &Name) -> String {
        format!("{}trimmed:{stream}", self.prefix)
    }

    /// Ours: what handlers keep in a bucket, by key: version, a colon, the value's bytes (hash).
    pub(super) fn state(&self, bucket: &Bucket) -> String {
        format!("{}state:{bucket}", self.prefix)
    }

    /// Ours: the version that was given to a key of any bucket last (string).
    pub(super) fn versions(&self) -> String {
        format!("{}versions", self.prefix)
    }

    /// What all keys of this namespace begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A pattern for SCAN that finds the fences of a group whose names are portable.
    pub(super) fn fence_pattern(&self, group: &GroupKey) -> String {
        format!("{}*", escape_glob(&self.fences(group)))
    }

    /// A pattern for SCAN that finds every key of this namespace, and none of another.
    pub(super) fn every_pattern(&self) -> String {
        format!("{}*", escape_glob(&self.prefix))
    }

    /// A pattern for SCAN that finds the metadata of all streams.
    pub(super) fn meta_pattern(&self) -> String {
        format!("{}meta:*", escape_glob(&self.prefix))
    }

    /// The stream whose metadata this key is.
    pub(super) fn stream_of_meta<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(&self.prefix)?.strip_prefix("meta:")
    }

    /// A pattern for SCAN that finds the metadata of all groups of a stream, and perhaps of others.
    pub(super) fn group_pattern(&self, stream: &Name) -> String {
        format!("{}gmeta:{}:*", escape_glob(&self.prefix), escape_glob(stream.as_str()))
    }

    /// The group of this stream whose metadata this key is.
    pub(super) fn group_of_meta<'k>(&self, stream: &Name, key: &'k str) -> Option<&'k str> {
        let rest = key.strip_prefix(&self.prefix)?.strip_prefix("gmeta:")?;
        rest.strip_prefix(stream.as_str())?.strip_prefix(':')
    }

    fn of(group: &GroupKey) -> String {
        format!("{}:{}", group.stream, group.group)
    }
}

/// A text as a pattern that matches only itself.
fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(stream: &str, group: &str) -> GroupKey {
        GroupKey::new(Name::existing(stream).unwrap(), Name::existing(group).unwrap())
    }

    #[test]
    fn are_those_of_rheo() {
        let keys = Keys::new("MyApp.Redis");
        let key = group("orders", "risk");
        assert_eq!(keys.meta(&key.stream), "rheo:MyApp.Redis:meta:orders");
        assert_eq!(keys.seq(&key.stream, 3), "rheo:MyApp.Redis:seq:orders:3");
        assert_eq!(keys.index(&key.stream, 3), "rheo:MyApp.Redis:z:orders:3");
        assert_eq!(keys.entries(&key.stream, 3), "rheo:MyApp.Redis:s:orders:3");
        assert_eq!(keys.group(&key), "rheo:MyApp.Redis:gmeta:orders:risk");
        assert_eq!(keys.fences(&key), "rheo:MyApp.Redis:fence:orders:risk:");
        assert_eq!(keys.done(&key, 3), "rheo:MyApp.Redis:done:orders:risk:3");
        assert_eq!(keys.dead_letters(&key), "rheo:MyApp.Redis:dlq:orders:risk");
        assert_eq!(keys.due(&key, 3), "rheo:MyApp.Redis:due:orders:risk:3");
    }

    #[test]
    fn patterns_match_only_what_is_meant() {
        let keys = Keys::new("a*[b]");
        let stream = Name::existing("s?x").unwrap();
        assert_eq!(keys.every_pattern(), "rheo:a\\*\\[b\\]:*");
        assert_eq!(keys.meta_pattern(), "rheo:a\\*\\[b\\]:meta:*");
        assert_eq!(keys.group_pattern(&stream), "rheo:a\\*\\[b\\]:gmeta:s\\?x:*");
        assert_eq!(keys.stream_of_meta("rheo:a*[b]:meta:x:y"), Some("x:y"));
        assert_eq!(keys.stream_of_meta("rheo:other:meta:x"), None);
        assert_eq!(keys.group_of_meta(&stream, "rheo:a*[b]:gmeta:s?x:g"), Some("g"));
        assert_eq!(keys.group_of_meta(&stream, "rheo:a*[b]:gmeta:s?xy:g"), None);
    }
}
