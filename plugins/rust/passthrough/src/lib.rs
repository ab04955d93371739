//! Acknowledges every event and logs its id and attempt: the smallest useful handler.

use wasmill_handler::{Delivery, Event, Failure, info};

fn handle(event: Event, delivery: Delivery) -> Result<(), Failure> {
    info!("{} attempt {}", event.id, delivery.attempt);
    Ok(())
}

wasmill_handler::export!(handle);
