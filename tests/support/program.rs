//! The program as a user runs it: a folder of its own, commands, and engines that run.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of this")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::redis::RedisServer;

/// How long anything may take on a busy machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A store to run on.
pub enum Store {
    /// The embedded file `wasmill.db` of the folder.
    Sqlite,
    /// A server of the test's own.
    Redis(RedisServer),
}

impl Store {
    pub fn redis() -> Self {
        Self::Redis(RedisServer::start())
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite => "sqlite:wasmill.db".to_owned(),
            Self::Redis(server) => server.url(),
        }
    }
}

/// A folder with a pipeline file and plugins, and the store that it works on.
pub struct Site {
    dir: tempfile::TempDir,
    pub store: Store,
}

impl Site {
    pub fn new(store: Store) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), store }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// Writes `wasmill.toml` for one pipeline `p` over the stream `s`, with a built plugin.
    /// `plugin_keys` and `pipeline_keys` are further lines of their tables.
    pub fn pipeline(&self, plugin: &str, plugin_keys: &str, pipeline_keys: &str) {
        self.plugin(plugin);
        self.write(
            "wasmill.toml",
            format!(
                "{engine}[plugins.{plugin}]\npath = \"{plugin}.wasm\"\n{plugin_keys}\n\
                 [[pipeline]]\nname = \"p\"\nstream = \"s\"\ngroup = \"g\"\nplugin = \"{plugin}\"\n{pipeline_keys}\n",
                engine = "[engine]\ndrain_timeout = \"1s\"\n",
            ),
        );
    }

    /// Copies a built plugin into the folder.
    pub fn plugin(&self, name: &str) {
        std::fs::copy(built_plugin(name), self.path().join(format!("{name}.wasm"))).unwrap();
    }

    /// A command of the program on this folder's store.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wasmill"));
        command.args(args).args(["--backend", &self.store.url()]).current_dir(self.path());
        command.env_remove("WASMILL_BACKEND").env_remove("WASMILL_LOG").stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed, and gives its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command with `--json` and reads its lines.
    pub fn json(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let args: Vec<_> = args.iter().copied().chain(["--json"]).collect();
        self.ok(&args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Appends lines to the stream `s`.
    pub fn append(&self, lines: &[String]) {
        self.write("lines.jsonl", lines.join("\n"));
        let appended = self.json(&["append", "s", "--file", "lines.jsonl"]);
        assert_eq!(appended[0]["appended"], lines.len());
    }

    /// The state of the group `g` of the stream `s`.
    pub fn group(&self) -> serde_json::Value {
        self.json(&["group", "info", "s", "g"]).remove(0)
    }

    /// All dead letters of the group `g` of the stream `s`.
    pub fn dead_letters(&self) -> Vec<serde_json::Value> {
        self.json(&["dead-letter", "list", "s", "g", "--limit", "1000000"])
    }

    /// Runs until idle and gives the summary of the one pipeline.
    pub fn until_idle(&self, more: &[&str]) -> serde_json::Value {
        let args = [&["run", "wasmill.toml", "--until-idle", "--log", "warn"], more].concat();
        self.json(&args).remove(0)
    }

    /// Starts an engine; it is killed when dropped.
    pub fn engine(&self, args: &[&str]) -> Engine {
        Engine::start(self.command(&[&["run", "wasmill.toml", "--json"], args].concat()))
    }
}

/// A component that `scripts/build-plugins` has built.
pub fn built_plugin(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/plugins").join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is missing: run scripts/build-plugins", path.display());
    path
}

/// An engine that runs.
pub struct Engine {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Engine {
    /// Starts a command that runs pipelines; it is killed when dropped.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap());
        let reader = std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in lines.lines().map_while(Result::ok) {
                    let mut log = log.lock().unwrap();
                    log.push_str(&line);
                    log.push('\n');
                }
            }
        });
        Self { child, log, reader: Some(reader) }
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// What the log has behind its first `from` bytes.
    pub fn log_from(&self, from: usize) -> String {
        self.log.lock().unwrap().get(from..).unwrap_or_default().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a line of the log has all these texts.
    pub fn wait_for(&mut self, texts: &[&str]) {
        let until = Instant::now() + PATIENCE;
        while !self.log().lines().any(|line| texts.iter().all(|text| line.contains(text))) {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the engine ended ({ended:?}) before {texts:?}; its log:\n{}",
                self.log()
            );
            assert!(Instant::now() < until, "no {texts:?} in the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Kills the engine: it can do nothing about it.
    pub fn kill9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end, and gives exit status, stdout and log.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the engine does not end; its log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = self.child.wait().unwrap();
        let mut stdout = String::new();
        std::io::Read::read_to_string(&mut self.child.stdout.take().unwrap(), &mut stdout).unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status, stdout, self.log())
    }

    /// Drains the engine, and gives its summary.
    pub fn drain(self) -> serde_json::Value {
        self.signal("-TERM");
        let (status, stdout, log) = self.end();
        assert!(status.success(), "{status}; log:\n{log}");
        serde_json::from_str(stdout.lines().next().unwrap()).unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `done`.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Site {
    /// Everything that the store holds, for comparison.
    pub fn contents(&self) -> Vec<String> {
        match &self.store {
            Store::Sqlite => dump_sqlite(&self.path().join("wasmill.db")),
            Store::Redis(server) => dump_redis(&server.url()),
        }
    }

    /// Works on the folder's store through the library.
    pub fn with_store<T>(&self, work: impl AsyncFnOnce(wasmill::backend::Shared) -> T) -> T {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { work(self.open().await).await })
    }

    /// Everything that the stream `s` holds, read through the library.
    pub fn events(&self) -> Vec<wasmill::event::Event> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let backend = self.open().await;
            let stream = wasmill::event::Name::new("s").unwrap();
            let mut events = Vec::new();
            for partition in backend.stream_info(&stream).await.unwrap().partitions {
                let mut after = 0;
                loop {
                    let page = backend.read(&stream, partition.partition, after, 100).await.unwrap();
                    let Some(last) = page.last() else { break };
                    after = last.sequence;
                    events.extend(page);
                }
            }
            events
        })
    }

    async fn open(&self) -> wasmill::backend::Shared {
        use wasmill::backend::{redis::Redis, sqlite};
        let settings = wasmill::backend::Settings::default();
        match wasmill::target::Target::parse(&self.store.url(), self.path()).unwrap() {
            wasmill::target::Target::Redis(url) => Arc::new(Redis::connect(&url, &settings).await.unwrap()),
            wasmill::target::Target::Sqlite(path) => {
                let location = sqlite::Location::File(path);
                let clock = sqlite::Clock::System;
                Arc::new(
                    sqlite::Sqlite::open(location, sqlite::Mode::Existing, &settings, clock).await.unwrap(),
                )
            }
            wasmill::target::Target::Memory => unreachable!("no site works in memory"),
        }
    }
}

/// All rows of all tables.
fn dump_sqlite(file: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(file).unwrap();
    let mut names =
        connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1").unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut dump = Vec::new();
    for name in names {
        let mut rows = connection.prepare(&format!("SELECT * FROM \"{name}\"")).unwrap();
        let columns = rows.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let values = (0..columns).map(|column| row.get::<_, rusqlite::types::Value>(column).unwrap());
            Ok(format!("{name}: {:?}", values.collect::<Vec<_>>()))
        };
        dump.extend(rows.query_map([], row).unwrap().map(Result::unwrap));
    }
    dump
}

/// All keys with the serialized form of what they hold.
fn dump_redis(url: &str) -> Vec<String> {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    keys.sort();
    let mut dump = Vec::new();
    for key in keys {
        let bytes: Vec<u8> = redis::cmd("DUMP").arg(&key).query(&mut connection).unwrap();
        dump.push(format!("{}: {bytes:?}", String::from_utf8_lossy(&key)));
    }
    dump
}
