-- One file holds the streams of all namespaces. Sequences count from 1 in each partition; times are
-- milliseconds since 1970.

-- The largest time that any process has used: time never steps back behind it.
CREATE TABLE clock (
  id     INTEGER PRIMARY KEY CHECK (id = 1),
  now_ms INTEGER NOT NULL
) STRICT;
INSERT INTO clock VALUES (1, 0);

CREATE TABLE streams (
  id         INTEGER PRIMARY KEY,
  namespace  TEXT NOT NULL,
  name       TEXT NOT NULL,
  partitions INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  UNIQUE (namespace, name)
) STRICT;

CREATE TABLE partitions (
  stream_id      INTEGER NOT NULL,
  partition      INTEGER NOT NULL,
  high_watermark INTEGER NOT NULL DEFAULT 0,
  length         INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (stream_id, partition)
) STRICT, WITHOUT ROWID;

-- With a rowid: a table without one keeps only a quarter of a page of each row in the tree, and
-- would give every event of 1 KiB a page of its own. `timestamp` is what the producer says;
-- `appended_ms` is the store's time, never falls along the sequences, and is what retention goes by.
CREATE TABLE events (
  row_id      INTEGER PRIMARY KEY,
  stream_id   INTEGER NOT NULL,
  partition   INTEGER NOT NULL,
  sequence    INTEGER NOT NULL,
  appended_ms INTEGER NOT NULL,
  id          TEXT NOT NULL,
  timestamp   TEXT NOT NULL,
  key         TEXT,
  type        TEXT,
  metadata    TEXT NOT NULL,
  payload     TEXT NOT NULL,
  UNIQUE (stream_id, partition, sequence)
) STRICT;

CREATE TABLE consumer_groups (
  id           INTEGER PRIMARY KEY,
  stream_id    INTEGER NOT NULL,
  name         TEXT NOT NULL,
  max_attempts INTEGER NOT NULL,
  UNIQUE (stream_id, name)
) STRICT;

-- `delivered` is the highest sequence that was ever claimed. Of the events at or below it, those
-- with a row in `pending` are unsettled and all others are settled: the frontier follows from that.
-- A row that is there by a redrive does not count: its event was settled before. `missing` counts
-- the events that were gone from the log before they were settled.
CREATE TABLE group_partitions (
  group_id  INTEGER NOT NULL,
  partition INTEGER NOT NULL,
  frontier  INTEGER NOT NULL,
  delivered INTEGER NOT NULL,
  missing   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (group_id, partition)
) STRICT, WITHOUT ROWID;

-- What was delivered and is not settled. `ready_ms` is when the lease ends (lanes 0 and 2) or the
-- retry is due (lanes 1 and 3); `failure` and `reason` are about the last attempt that counted.
-- Lanes: see lane.rs.
CREATE TABLE pending (
  group_id  INTEGER NOT NULL,
  partition INTEGER NOT NULL,
  sequence  INTEGER NOT NULL,
  lane      INTEGER NOT NULL,
  ready_ms  INTEGER NOT NULL,
  attempt   INTEGER NOT NULL,
  lease_id  TEXT,
  consumer  TEXT NOT NULL,
  failure   TEXT,
  reason    TEXT,
  redriven  INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (group_id, partition, sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_by_time ON pending (group_id, lane, partition, ready_ms);

-- What was redriven and is not settled since, with a copy of the event, which the log may have no
-- more: from the step that takes the dead letter away until the event is settled. With a rowid, as
-- the events.
CREATE TABLE redriven (
  row_id    INTEGER PRIMARY KEY,
  group_id  INTEGER NOT NULL,
  partition INTEGER NOT NULL,
  sequence  INTEGER NOT NULL,
  id        TEXT NOT NULL,
  timestamp TEXT NOT NULL,
  key       TEXT,
  type      TEXT,
  metadata  TEXT NOT NULL,
  payload   TEXT NOT NULL,
  UNIQUE (group_id, partition, sequence)
) STRICT;

-- Replays, resets and deletions under way: one row for each partition that is not done yet. Nothing
-- of it is claimed, and its frontier stands, until the row goes. `target` is the position to come to;
-- pending rows up to `passed` have been dealt with.
CREATE TABLE rewinds (
  group_id  INTEGER NOT NULL,
  partition INTEGER NOT NULL,
  kind      TEXT NOT NULL,
  target    INTEGER NOT NULL,
  passed    INTEGER NOT NULL,
  PRIMARY KEY (group_id, partition)
) STRICT, WITHOUT ROWID;

-- The event is copied, so that it outlives the trimming of its stream. Without one (`event_id` is
-- null) its body was missing.
CREATE TABLE dead_letters (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  group_id         INTEGER NOT NULL,
  partition        INTEGER NOT NULL,
  sequence         INTEGER NOT NULL,
  event_id         TEXT,
  timestamp        TEXT,
  key              TEXT,
  type             TEXT,
  metadata         TEXT,
  payload          TEXT,
  reason           TEXT NOT NULL,
  cause            TEXT NOT NULL,
  failure          TEXT,
  attempts         INTEGER NOT NULL,
  consumer         TEXT NOT NULL,
  plugin           TEXT,
  dead_lettered_at TEXT NOT NULL
) STRICT;
CREATE INDEX dead_letters_by_group ON dead_letters (group_id);

-- What handlers keep. A key's version is another one for each commit that wrote it, and never comes
-- twice: `state_versions` counts them all. With a rowid, since values can be large.
CREATE TABLE state (
  row_id    INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  bucket    TEXT NOT NULL,
  key       TEXT NOT NULL,
  version   INTEGER NOT NULL,
  value     BLOB NOT NULL,
  UNIQUE (namespace, bucket, key)
) STRICT;
CREATE INDEX state_by_row ON state (namespace, bucket, row_id);

CREATE TABLE state_versions (
  id   INTEGER PRIMARY KEY CHECK (id = 1),
  last INTEGER NOT NULL
) STRICT;
INSERT INTO state_versions VALUES (1, 0);
