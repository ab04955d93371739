//! Drives a run: breaks one thing after another, waits for progress each time, and checks.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wasmill::backend::{GroupInfo, Shared};

use super::appender::{Appender, Common};
use super::engines::Engines;
use super::gather::gather;
use super::ground::{ATTEMPTS_MAX, Ground, Who, group, open, pipeline_file};
use super::observer::Observer;
use super::plan::{Fault, Plan, Step, StoreKind};
use crate::checker::check;
use crate::history::History;

/// How long it may take, on a busy machine, until something moves again.
const PATIENCE: Duration = Duration::from_secs(90);

/// Events that are settled after a fault before the next one comes.
const PROGRESS: u64 = 20;

pub(crate) struct Settings {
    pub(crate) store: StoreKind,
    pub(crate) seed: u64,
    /// Rounds are begun for so long; without it there is one.
    pub(crate) time: Option<Duration>,
}

/// Runs, and fails with all that went wrong.
pub(crate) fn run(settings: &Settings) {
    println!("chaos on {:?} with the seed {}", settings.store, settings.seed);
    let began = Instant::now();
    let mut run = Run::start(settings);
    let mut plan = Plan::new(settings.store, settings.seed);
    for round in 1.. {
        for step in plan.round() {
            println!("{:>7.1} s  {:?} for {:?}", began.elapsed().as_secs_f64(), step.faults, step.hold);
            run.step(&step);
        }
        run.end_round();
        println!("{:>7.1} s  round {round} is checked", began.elapsed().as_secs_f64());
        if settings.time.is_none_or(|time| began.elapsed() >= time) {
            break;
        }
        run.next_round();
    }
    run.end();
}

struct Run {
    common: Common,
    ground: Ground,
    engines: Engines,
    runtime: tokio::runtime::Runtime,
    threads: Vec<std::thread::JoinHandle<()>>,
    seed: u64,
    _dir: tempfile::TempDir,
}

impl Run {
    fn start(settings: &Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/plugins/witness.wasm");
        assert!(plugin.exists(), "{} is missing: run scripts/build-plugins", plugin.display());
        std::fs::copy(plugin, dir.path().join("witness.wasm")).unwrap();
        std::fs::write(dir.path().join("wasmill.toml"), pipeline_file()).unwrap();
        let common = Common::default();
        let ground = Ground::new(settings.store, dir.path());
        let engines = Engines::start(dir.path().to_owned(), ground.engine_urls(), common.recorder.clone());
        let appender = Appender::new(common.clone(), ground.target(Who::Appender), settings.seed);
        let observer = Observer::new(common.clone(), ground.target(Who::Observer));
        let threads =
            vec![std::thread::spawn(move || appender.run()), std::thread::spawn(move || observer.run())];
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self { common, ground, engines, runtime, threads, seed: settings.seed, _dir: dir }
    }

    fn step(&mut self, step: &Step) {
        for &fault in &step.faults {
            if matches!(fault, Fault::Flush | Fault::Deleted) {
                self.lose_all(fault, step.hold);
            } else {
                self.ground.begin(fault, step.hold, &mut self.engines, &self.common.recorder);
            }
        }
        // What the fault is: so much time without what it takes away.
        std::thread::sleep(step.hold);
        for &fault in step.faults.iter().rev() {
            self.ground.end(fault, &mut self.engines, &self.common.recorder);
        }
        self.go_on();
    }

    /// The store is empty from here on: a new part.
    fn lose_all(&mut self, fault: Fault, hold: Duration) {
        let part_lock = std::sync::Arc::clone(&self.common.part);
        let mut part = part_lock.blocking_write();
        self.ground.begin(fault, hold, &mut self.engines, &self.common.recorder);
        *part += 1;
        self.check_part(*part - 1, None);
    }

    /// Waits until all engines run, and events are settled.
    fn go_on(&mut self) {
        self.engines.all_run();
        let mut from = None;
        self.wait("nothing moves", |info| {
            let settled: u64 = info.partitions.iter().map(|p| p.frontier).sum();
            settled >= *from.get_or_insert(settled) + PROGRESS
        });
    }

    /// Waits until the group is as it should be.
    fn wait(&mut self, what: &str, mut done: impl FnMut(&GroupInfo) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut last = String::new();
        loop {
            match self.look() {
                Ok(info) if done(&info) => return,
                Ok(info) => last = format!("{info:?}"),
                Err(error) => last = format!("{error} after {last}"),
            }
            let ended = self.engines.ended();
            if Instant::now() > until || !ended.is_empty() {
                let troubles = self.common.recorder.take_troubles();
                panic!(
                    "{what}: {last}; ended by themselves: {ended:?}; {troubles:#?}\nlogs:\n{}",
                    self.engines.tails()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn look(&self) -> wasmill::backend::Result<GroupInfo> {
        self.runtime.block_on(async { self.store().await?.group_info(&group()).await })
    }

    async fn store(&self) -> wasmill::backend::Result<Shared> {
        open(&self.ground.target(Who::Observer)).await
    }

    /// Lets everything come to its end, and checks the part under way from its beginning.
    fn end_round(&mut self) {
        self.common.still.store(true, Ordering::Relaxed);
        let part_lock = std::sync::Arc::clone(&self.common.part);
        // An append that is under way ends first.
        let part = *part_lock.blocking_write();
        self.wait("not everything is settled", |info| {
            info.partitions.iter().all(|p| p.lag() == 0 && p.in_flight == 0 && p.parked == 0)
        });
        let store = self.runtime.block_on(self.store()).unwrap();
        self.check_part(part, Some(&store));
    }

    fn next_round(&mut self) {
        *self.common.part.blocking_write() += 1;
        self.common.still.store(false, Ordering::Relaxed);
        self.go_on();
    }

    /// Checks a part; one that came to its end with what the store holds of it.
    fn check_part(&self, part: u32, store: Option<&Shared>) {
        let recorder = &self.common.recorder;
        let mut records = recorder.take(part);
        if let Some(store) = store {
            self.runtime.block_on(gather(store, &mut records)).unwrap();
        }
        let history = History { attempts_max: ATTEMPTS_MAX, complete: store.is_some(), records };
        recorder.count("records checked", history.records.len() as u64);
        let found = check(&history);
        if !found.is_empty() {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}-{part}.txt", self.seed));
            let lines: String = history.records.iter().map(|record| format!("{record:?}\n")).collect();
            std::fs::write(&path, lines).unwrap();
            for violation in found.iter().take(20) {
                recorder.trouble(format!("{violation:?}"));
            }
            recorder.trouble(format!("{} violations; the history is in {}", found.len(), path.display()));
        }
        let troubles = recorder.take_troubles();
        assert!(troubles.is_empty(), "seed {}: {troubles:#?}", self.seed);
    }

    fn end(mut self) {
        for number in 0..self.ground.engine_urls().len() {
            self.engines.drain(number);
        }
        self.common.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        let troubles = self.common.recorder.take_troubles();
        assert!(troubles.is_empty(), "seed {}: {troubles:#?}", self.seed);
        self.common.recorder.count("connections and answers taken away", self.ground.broken());
        for (name, count) in self.common.recorder.counts() {
            println!("{count:>9}  {name}");
        }
        println!("no violation");
    }
}
