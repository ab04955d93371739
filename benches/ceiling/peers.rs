//! The sides of the row `peers`: each enqueues a backlog of no-op work, and drains it in a process of its
//! own. benches/peers/README.md says what is counted, and where the peers' settings come from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::own;
use super::rig::Rig;
use super::support::program::built_plugin;

/// What one side did in one round, in events a second and in microseconds of Redis an event.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) enqueued_per_second: f64,
    pub(crate) drained_per_second: f64,
    pub(crate) redis_us: f64,
}

/// Something that enqueues and drains.
pub(crate) enum Side {
    /// Wasmill's release build, in this folder.
    Own(tempfile::TempDir),
    /// A program that knows `enqueue URL EVENTS BYTES` and `drain URL EVENTS SETTINGS`.
    Peer { program: Vec<PathBuf>, settings: String },
}

impl Side {
    pub(crate) fn own(concurrency: usize, in_flight_max: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plugin = built_plugin("passthrough");
        let file = format!(
            "[plugins.passthrough]\npath = {plugin:?}\n\n[[pipeline]]\nname = \"peers\"\nstream = \"orders\"\n\
             group = \"bench\"\nplugin = \"passthrough\"\nconcurrency = {concurrency}\n\
             max_in_flight = {in_flight_max}\n"
        );
        std::fs::write(dir.path().join("wasmill.toml"), file).unwrap();
        Self::Own(dir)
    }

    pub(crate) fn bullmq(concurrency: usize, workers: usize, processes: usize, keep: bool) -> Self {
        let settings = serde_json::json!({
            "concurrency": concurrency, "workers": workers, "processes": processes, "keep": keep,
        });
        let program = vec!["node".into(), installed("bullmq/peer.js")];
        Self::Peer { program, settings: settings.to_string() }
    }

    /// A concurrency of 0 is none at all.
    pub(crate) fn apalis(
        batch: usize,
        workers: usize,
        (concurrency, parallel): (usize, bool),
        lock: bool,
    ) -> Self {
        let settings = serde_json::json!({
            "batch": batch, "workers": workers, "concurrency": concurrency, "parallel": parallel, "lock": lock,
        });
        let program = vec![installed("apalis/release/wasmill-peer-apalis")];
        Self::Peer { program, settings: settings.to_string() }
    }

    /// Empties the server, enqueues and drains.
    pub(crate) fn round(&self, rig: &Rig, events: usize, bytes: usize) -> Round {
        rig.clear();
        let enqueued_per_second = match self {
            Self::Own(_) => {
                rig.run(own::make(&rig.store, 1));
                let began = Instant::now();
                rig.run(own::append(&rig.store, events, 64, bytes));
                events as f64 / began.elapsed().as_secs_f64()
            }
            Self::Peer { program, .. } => {
                events as f64 / seconds(program, &["enqueue", &rig.url(), &text(events), &text(bytes)])
            }
        };
        let mut drained_per_second = 0.0;
        let redis_us = rig.server_us(async {
            drained_per_second = match self {
                Self::Own(dir) => drain(dir.path(), &rig.url(), events),
                Self::Peer { program, settings } => {
                    events as f64 / seconds(program, &["drain", &rig.url(), &text(events), settings])
                }
            };
        });
        Round { enqueued_per_second, drained_per_second, redis_us: redis_us / events as f64 }
    }
}

fn text(number: usize) -> String {
    number.to_string()
}

/// What `benches/peers/run` has put there.
fn installed(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers").join(name);
    if !path.exists() {
        eprintln!("the peers are not installed: run `benches/peers/run --install`");
        std::process::exit(2);
    }
    path
}

/// Runs the engine until it is idle, and gives its events a second.
fn drain(dir: &Path, url: &str, events: usize) -> f64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmill"));
    command.args(["run", "wasmill.toml", "--until-idle", "--json", "--log", "warn", "--backend", url]);
    command.env_remove("WASMILL_LOG").current_dir(dir);
    let summary = answer(&mut command);
    assert_eq!(summary["acked"], events, "{summary}");
    summary["events_per_second"].as_f64().unwrap()
}

/// The seconds that a peer says it took.
fn seconds(program: &[PathBuf], args: &[&str]) -> f64 {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(args);
    answer(&mut command)["seconds"].as_f64().unwrap()
}

fn answer(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    serde_json::from_str(stdout.lines().next().unwrap_or_default()).unwrap()
}
