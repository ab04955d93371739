//! Acknowledges every event and logs its id and attempt: the smallest useful handler.

use wasmill_handler::{Delivery, Event, Result, info};

fn handle(event: Event, delivery: Delivery) -> Result {
    info!("{} attempt {}", event.id, delivery.attempt);
    Ok(())
}

wasmill_handler::export!(handle);
