//! The engines: the program as a user runs it, killed and started again.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::recorder::Recorder;
use super::{clock, log_line};

/// How long an engine may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of a log that are kept to be shown.
const TAIL: usize = 40;

pub(super) struct Engines {
    dir: PathBuf,
    urls: Vec<String>,
    recorder: Recorder,
    running: Vec<Engine>,
}

struct Engine {
    child: Child,
    said: Arc<Mutex<Said>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Said {
    /// Its name in the store, once it runs.
    run: Option<String>,
    tail: VecDeque<String>,
}

impl Engines {
    /// Starts an engine for each URL, with the file `wasmill.toml` of the folder.
    pub(super) fn start(dir: PathBuf, urls: Vec<String>, recorder: Recorder) -> Self {
        let mut engines = Self { dir, urls, recorder, running: Vec::new() };
        for number in 0..engines.urls.len() {
            let engine = engines.spawn(number);
            engines.running.push(engine);
        }
        engines.all_run();
        engines
    }

    fn spawn(&self, number: usize) -> Engine {
        // A write beyond the limit is an error then, as it is on a full disk, and not the process's end.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_wasmill")]);
        command.args(["run", "wasmill.toml", "--log-format", "json", "--log"]);
        command.args(["info,wasmill::engine=debug,wasmill::telemetry=debug,guest=off"]);
        command.args(["--backend", &self.urls[number]]).current_dir(&self.dir);
        command.env_remove("WASMILL_BACKEND").env_remove("WASMILL_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(Said::default()));
        let log = child.stderr.take().unwrap();
        let reader = std::thread::spawn({
            let (said, recorder) = (Arc::clone(&said), self.recorder.clone());
            move || read(log, &said, &recorder)
        });
        self.recorder.count("engines started", 1);
        Engine { child, said, reader: Some(reader) }
    }

    /// Waits until all run. Fails where one has ended by itself.
    pub(super) fn all_run(&mut self) {
        let until = Instant::now() + PATIENCE;
        for engine in &mut self.running {
            while engine.said().run.is_none() {
                let ended = engine.child.try_wait().unwrap();
                assert!(ended.is_none(), "an engine ended ({ended:?}):\n{}", engine.tail());
                assert!(Instant::now() < until, "an engine does not start:\n{}", engine.tail());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// The engines that have ended by themselves, with the ends of their logs.
    pub(super) fn ended(&mut self) -> Vec<(usize, String)> {
        let running = self.running.iter_mut().enumerate();
        running
            .filter_map(|(number, engine)| {
                let status = engine.child.try_wait().unwrap()?;
                Some((number, format!("{status}:\n{}", engine.tail())))
            })
            .collect()
    }

    pub(super) fn tails(&self) -> String {
        self.running.iter().map(Engine::tail).collect::<Vec<_>>().join("\n--\n")
    }

    pub(super) fn kill(&mut self, number: usize) {
        self.running[number].kill();
    }

    /// Starts the successor of an engine that has ended.
    pub(super) fn start_again(&mut self, number: usize) {
        self.running[number] = self.spawn(number);
    }

    /// Tells an engine to drain, and waits for its end.
    pub(super) fn drain(&mut self, number: usize) {
        let run = self.running[number].said().run.clone();
        if let Some(run) = run {
            // Before the signal: from here on it may hand back.
            self.recorder.drained(clock::now(), run);
        }
        self.signal(number, "-TERM");
        let engine = &mut self.running[number];
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = engine.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "an engine does not drain:\n{}", engine.tail());
            std::thread::sleep(Duration::from_millis(10));
        };
        engine.read_to_the_end();
        if !status.success() {
            let tail = engine.tail();
            self.recorder.trouble(format!("an engine drained with {status}:\n{tail}"));
        }
    }

    /// Waits until all have ended by themselves, failed and saying this, and starts their successors.
    pub(super) fn all_end_saying(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        for number in 0..self.running.len() {
            let engine = &mut self.running[number];
            let status = loop {
                if let Some(status) = engine.child.try_wait().unwrap() {
                    break status;
                }
                assert!(Instant::now() < until, "an engine does not end:\n{}", engine.tail());
                std::thread::sleep(Duration::from_millis(10));
            };
            engine.read_to_the_end();
            let tail = engine.tail();
            assert!(status.code() == Some(1) && tail.contains(text), "{status} without {text:?}:\n{tail}");
            self.start_again(number);
        }
    }

    /// Lets no engine that runs write a file beyond so many bytes; or lifts that.
    pub(super) fn limit_files(&self, bytes: Option<u64>) {
        let soft = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        for engine in &self.running {
            let pid = engine.child.id().to_string();
            let limit = format!("--fsize={soft}:unlimited");
            // One that was killed meanwhile writes nothing either.
            let _ = Command::new("prlimit").args(["--pid", &pid, &limit]).stderr(Stdio::null()).status();
        }
    }

    pub(super) fn signal(&self, number: usize, signal: &str) {
        let pid = self.running[number].child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Engine {
    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tail(&self) -> String {
        self.said().tail.iter().map(|line| format!("{line}\n")).collect()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
        self.read_to_the_end();
    }

    fn read_to_the_end(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(log: ChildStderr, said: &Mutex<Said>, recorder: &Recorder) {
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        let run = said.lock().unwrap().run.clone();
        let named = log_line::take_in(recorder, run.as_deref(), &line);
        let mut said = said.lock().unwrap();
        said.run = said.run.take().or(named);
        // Handled events say little of what went wrong.
        if !line.contains("\"level\":\"DEBUG\"") && !line.contains("as planned") {
            said.tail.push_back(line);
            if said.tail.len() > TAIL {
                said.tail.pop_front();
            }
        }
    }
}
