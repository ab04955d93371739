//! A handler whose effects say what it was called with: an event of the stream `effects`, and a count
//! for each account. So whoever reads both knows which attempt of which event was committed, and
//! whether any was committed twice.

use std::hint::black_box;

use serde::{Deserialize, Serialize};
use wasmill_handler::state::Bucket;
use wasmill_handler::{Delivery, Event, Failure, Result, outbox};

/// What an event asks for.
#[derive(Deserialize)]
struct Task {
    /// So many attempts fail first.
    failures: u32,
    /// Whether these give up instead of asking for another attempt.
    panics: bool,
    /// Whether the one that does not fail rejects.
    rejects: bool,
    /// What is counted.
    account: String,
    /// Rounds of a loop that only takes time.
    work: u32,
}

#[derive(Serialize)]
struct Effect<'a> {
    id: &'a str,
    attempt: u32,
    account: &'a str,
    sum: u64,
}

fn handle(event: Event, delivery: Delivery) -> Result {
    let task: Task = event.json().map_err(|error| Failure::reject(error.to_string()))?;
    // Staged before it fails: what fails must leave nothing.
    let sum = Bucket::open("sums")?.increment(&task.account, 1)?;
    let effect = Effect { id: &event.id, attempt: delivery.attempt, account: &task.account, sum };
    outbox::Event::json(&effect)?.key(&*task.account).append_to("effects")?;
    for round in 0..task.work {
        black_box(round);
    }
    if delivery.attempt <= task.failures {
        assert!(!task.panics, "attempt {} of {}", delivery.attempt, event.id);
        return Err(Failure::retry("as planned").into());
    }
    if task.rejects {
        return Err(Failure::reject("as planned").into());
    }
    Ok(())
}

wasmill_handler::export!(handle);
