//! {{name}}: an event handler for Wasmill.

use std::time::Duration;

use serde_json::Value;
use wasmill_handler::{Delivery, Event, Failure, Result, config, info};

/// Called once for each event. `Ok(())` acknowledges the event.
fn handle(event: Event, delivery: Delivery) -> Result {
    let payload: Value = event.json()?;

    // Never: trying again would not help, so the event becomes a dead letter.
    let Some(name) = payload["name"].as_str() else {
        return Err(Failure::reject("the payload has no `name`").into());
    };

    // Not now: the event comes again, with `delivery.attempt` one higher.
    let ready_at_attempt = payload["ready_at_attempt"].as_u64().unwrap_or(1);
    if u64::from(delivery.attempt) < ready_at_attempt {
        let reason = format!("{name} is not ready");
        return Err(Failure::retry_after(reason, Duration::from_secs(1)).into());
    }

    // Done. A setting comes from `config` in the pipeline file.
    let greeting = config("greeting").unwrap_or_else(|| "Hello".to_owned());
    info!("{greeting}, {name}!");
    Ok(())
}

wasmill_handler::export!(handle);
