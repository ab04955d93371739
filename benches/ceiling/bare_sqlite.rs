//! A bare loop over SQLite: what any log with leases pays for its rows, written by hand for one stream,
//! one partition and one group. Prepared statements, one transaction a batch, one key a table and no other
//! index; no names to look up, no retries, no other process, no thread between caller and database.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, params};
use wasmill::backend::Synchronous;

use super::rig::payload;

const TABLES: &str = "
    CREATE TABLE events (
      sequence INTEGER PRIMARY KEY, appended_ms INTEGER NOT NULL, id TEXT NOT NULL, timestamp TEXT NOT NULL,
      key TEXT, type TEXT, metadata TEXT NOT NULL, payload TEXT NOT NULL
    ) STRICT;
    CREATE TABLE pending (
      sequence INTEGER PRIMARY KEY, lane INTEGER NOT NULL, ready_ms INTEGER NOT NULL, attempt INTEGER NOT NULL,
      lease_id TEXT, consumer TEXT NOT NULL
    ) STRICT;
    CREATE TABLE counters (
      id INTEGER PRIMARY KEY, high_watermark INTEGER NOT NULL, delivered INTEGER NOT NULL,
      frontier INTEGER NOT NULL, now_ms INTEGER NOT NULL
    ) STRICT;
    INSERT INTO counters VALUES (1, 0, 0, 0, 0);
";

/// What a reader of the log has in its hands.
struct Claimed {
    sequence: i64,
    texts: [Option<String>; 6],
}

pub(crate) struct Bare {
    conn: Connection,
    now_ms: i64,
}

impl Bare {
    /// A database beside the engine's own, set up as the engine sets up its own.
    pub(crate) fn open(directory: &Path, synchronous: Synchronous) -> Self {
        let conn = Connection::open(directory.join("bare.db")).unwrap();
        let synchronous = match synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        };
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).unwrap();
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
        conn.pragma_update(None, "synchronous", synchronous).unwrap();
        conn.pragma_update(None, "cache_size", -8192).unwrap();
        conn.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(())).unwrap();
        conn.execute_batch(TABLES).unwrap();
        Self { conn, now_ms: 1_767_225_600_000 }
    }

    pub(crate) fn append(&mut self, events: usize, batch: usize, bytes: usize) {
        let payload = payload(bytes);
        for _ in 0..events / batch {
            self.begin();
            let mut insert = self
                .conn
                .prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")
                .unwrap();
            let from = self.counter("SELECT high_watermark FROM counters WHERE id = 1");
            for sequence in (from + 1..).take(batch) {
                insert
                    .execute(params![
                        sequence,
                        self.now_ms,
                        wasmill::event::random_id(),
                        "2026-01-01T00:00:00.000Z",
                        None::<&str>,
                        "bench",
                        "{}",
                        payload
                    ])
                    .unwrap();
            }
            self.count("UPDATE counters SET high_watermark = high_watermark + ?1, now_ms = ?2", batch);
            self.run("COMMIT");
        }
    }

    /// Leases and deletes everything, in batches.
    pub(crate) fn claim_ack(&mut self, events: usize, batch: usize) {
        let mut done = 0;
        while done < events {
            let lease_id = wasmill::event::random_id();
            let claimed = self.claim(batch, &lease_id);
            assert!(!claimed.is_empty(), "{done} of {events} were claimed, and there are no more");
            self.ack(&claimed, &lease_id);
            done += claimed.len();
        }
    }

    fn claim(&mut self, batch: usize, lease_id: &str) -> Vec<Claimed> {
        self.begin();
        let mut read = self
            .conn
            .prepare_cached(
                "SELECT sequence, id, timestamp, key, type, metadata, payload FROM events
                 WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
            )
            .unwrap();
        let delivered = self.counter("SELECT delivered FROM counters WHERE id = 1");
        let claimed = read.query_map((delivered, batch as i64), |row| {
            let texts = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
            Ok(Claimed { sequence: row.get(0)?, texts })
        });
        let claimed: Vec<Claimed> = claimed.unwrap().map(Result::unwrap).collect();
        let mut lease =
            self.conn.prepare_cached("INSERT INTO pending VALUES (?1, 0, ?2, 1, ?3, 'bench')").unwrap();
        for claimed in &claimed {
            lease.execute((claimed.sequence, self.now_ms + 30_000, lease_id)).unwrap();
        }
        self.count("UPDATE counters SET delivered = delivered + ?1, now_ms = ?2", claimed.len());
        self.run("COMMIT");
        claimed
    }

    fn ack(&mut self, claimed: &[Claimed], lease_id: &str) {
        assert!(claimed.iter().all(|claimed| claimed.texts[0].is_some()));
        self.begin();
        let mut delete =
            self.conn.prepare_cached("DELETE FROM pending WHERE sequence = ?1 AND lease_id = ?2").unwrap();
        for claimed in claimed {
            assert_eq!(delete.execute((claimed.sequence, lease_id)).unwrap(), 1);
        }
        self.count("UPDATE counters SET frontier = frontier + ?1, now_ms = ?2", claimed.len());
        self.run("COMMIT");
    }

    fn begin(&self) {
        self.run("BEGIN IMMEDIATE");
    }

    fn run(&self, sql: &str) {
        self.conn.prepare_cached(sql).unwrap().execute([]).unwrap();
    }

    fn counter(&self, sql: &str) -> i64 {
        self.conn.prepare_cached(sql).unwrap().query_row([], |row| row.get(0)).unwrap()
    }

    fn count(&self, sql: &str, by: usize) {
        let mut update = self.conn.prepare_cached(sql).unwrap();
        update.execute((by as i64, self.now_ms)).unwrap();
    }
}
