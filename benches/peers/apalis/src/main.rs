//! No-op tasks with apalis-redis:
//!
//! ```text
//! wasmill-peer-apalis enqueue URL EVENTS BYTES
//! wasmill-peer-apalis drain URL EVENTS '{"batch": 100, "workers": 1, "parallel": true, "concurrency": 0, "lock": false}'
//! ```
//!
//! Each prints one line of JSON, `{"seconds": …}`. A drain is timed from the start of the workers, whose
//! connections are there by then, until all of them have stopped and every task is in the set of those
//! that are done. `../README.md` says where the settings come from.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use apalis::prelude::*;
use apalis_redis::{Config, ConnectionManager, RedisStorage};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

const QUEUE: &str = "peer";
const BULK: usize = 100;

/// What is moved in one step when the backlog is made ready; Redis unpacks no more than 8,000 in Lua.
const PROMOTE: usize = 4000;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Serialize, Deserialize)]
struct Noop {
    text: String,
}

#[derive(Deserialize)]
struct Settings {
    /// `batch_size`: what one fetch takes.
    batch: usize,
    workers: usize,
    /// `parallelize(tokio::spawn)`.
    parallel: bool,
    /// `concurrency` of a worker; 0 for no such layer.
    concurrency: usize,
    /// `lock_tasks`.
    lock: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let seconds = match args[..] {
        ["enqueue", url, events, bytes] => enqueue(url, events.parse()?, bytes.parse()?).await?,
        ["drain", url, events, settings] => {
            drain(url, events.parse()?, &serde_json::from_str(settings)?).await?
        }
        _ => return Err("usage: enqueue URL EVENTS BYTES, or drain URL EVENTS SETTINGS".into()),
    };
    println!("{{\"seconds\":{seconds}}}");
    Ok(())
}

fn config() -> Config {
    // Without the messages to subscribers, since there are none.
    Config::default().queue(QUEUE).emit_events(false)
}

async fn enqueue(url: &str, events: usize, bytes: usize) -> Result<f64> {
    let mut connection = apalis_redis::connect(url).await?;
    let mut storage = RedisStorage::new(connection.clone()).with_config(config());
    let text = "x".repeat(bytes - "{\"text\":\"\"}".len());
    let began = Instant::now();
    let mut left = events;
    while left > 0 {
        let bulk = left.min(BULK);
        left -= bulk;
        let tasks: Vec<Noop> = (0..bulk).map(|_| Noop { text: text.clone() }).collect();
        storage.push_bulk(tasks).await?;
    }
    let seconds = began.elapsed().as_secs_f64();
    promote(&mut connection).await?;
    Ok(seconds)
}

/// Makes the backlog ready. This version pushes each task as scheduled for now, and the next fetch moves
/// all that are due in one step, which fails for a backlog of more than 8,000: so they are moved here, in
/// smaller steps, with the same commands. It takes that work off the drain.
async fn promote(connection: &mut ConnectionManager) -> Result<()> {
    let (scheduled, active) = (config().scheduled_jobs_set(), config().active_jobs_list());
    loop {
        let mut range = redis::cmd("ZRANGE");
        let ids: Vec<String> = range.arg(&scheduled).arg(0).arg(PROMOTE - 1).query_async(connection).await?;
        if ids.is_empty() {
            break;
        }
        let mut pipe = redis::pipe();
        pipe.atomic().rpush(&active, &ids).ignore().zrem(&scheduled, &ids).ignore();
        pipe.exec_async(connection).await?;
    }
    let mut signal = redis::cmd("LPUSH");
    Ok(signal.arg(config().signal_list()).arg(1).exec_async(connection).await?)
}

/// Counts the calls, and stops the workers with the last one.
struct Count {
    left: AtomicUsize,
    workers: Vec<WorkerContext>,
}

async fn noop(_: Noop, count: Data<Arc<Count>>) -> std::result::Result<(), BoxDynError> {
    if count.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        for worker in &count.workers {
            worker.stop()?;
        }
    }
    Ok(())
}

async fn drain(url: &str, events: usize, settings: &Settings) -> Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..settings.workers {
        connections.push(apalis_redis::connect(url).await?);
    }
    let names = (0..settings.workers).map(|number| format!("worker-{number}"));
    let workers: Vec<WorkerContext> = names.map(|name| WorkerContext::new(&name)).collect();
    let count = Arc::new(Count { left: AtomicUsize::new(events), workers: workers.clone() });

    let began = Instant::now();
    let mut running = JoinSet::new();
    for (worker, connection) in workers.into_iter().zip(connections) {
        let config = config().batch_size(settings.batch).lock_tasks(settings.lock);
        let storage = RedisStorage::new(connection).with_config(config);
        let builder = WorkerBuilder::new(worker).backend(storage).data(Arc::clone(&count));
        // Each combination of layers is a type of its own.
        match (settings.concurrency, settings.parallel) {
            (0, false) => running.spawn(builder.build(noop).run()),
            (0, true) => running.spawn(builder.parallelize(tokio::spawn).build(noop).run()),
            (most, false) => running.spawn(builder.concurrency(most).build(noop).run()),
            (most, true) => {
                running.spawn(builder.concurrency(most).parallelize(tokio::spawn).build(noop).run())
            }
        };
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let seconds = began.elapsed().as_secs_f64();
    all_done(url, events).await?;
    Ok(seconds)
}

async fn all_done(url: &str, events: usize) -> Result<()> {
    let mut connection = apalis_redis::connect(url).await?;
    let mut members = redis::cmd("SCARD");
    let done: usize = members.arg(config().done_jobs_set()).query_async(&mut connection).await?;
    if done == events { Ok(()) } else { Err(format!("{done} of {events} tasks are done").into()) }
}
