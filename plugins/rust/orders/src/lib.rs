//! Checks orders: rejects what can never succeed, retries what may, acknowledges the rest.
//!
//! README.md beside this crate says which fields an order has and which answer each case gets.

use serde::Deserialize;
use wasmill_handler::{Delivery, Event, Failure, config, info};

const CURRENCIES_DEFAULT: &str = "EUR,USD,GBP";
const PAYMENT_ATTEMPTS_DEFAULT: u32 = 3;

/// An order as producers send it. Fields that are not named here are ignored.
#[derive(Deserialize)]
struct Order {
    order_id: String,
    customer: String,
    currency: String,
    items: Vec<Item>,
    total_cents: u64,
    #[serde(default)]
    payment: Payment,
    /// The delivery at which a pending payment has arrived: it stands for the answer of a payment
    /// service that this handler would ask.
    payment_attempts: Option<u32>,
}

#[derive(Deserialize)]
struct Item {
    sku: String,
    quantity: u32,
    unit_price_cents: u64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
enum Payment {
    #[default]
    Authorized,
    Pending,
    Declined,
}

fn handle(event: Event, delivery: Delivery) -> Result<(), Failure> {
    let order: Order = serde_json::from_slice(&event.payload)
        .map_err(|error| Failure::reject(format!("not an order: {error}")))?;
    check(&order)?;
    collect(&order, delivery.attempt)?;
    info!("order {} of {}: {} cents {}", order.order_id, order.customer, order.total_cents, order.currency);
    Ok(())
}

/// What is wrong here stays wrong, however often it is tried.
fn check(order: &Order) -> Result<(), Failure> {
    let currencies = config("currencies").unwrap_or_else(|| CURRENCIES_DEFAULT.to_owned());
    if !currencies.split(',').any(|accepted| accepted.trim() == order.currency) {
        return Err(Failure::reject(format!(
            "currency `{}` is not accepted (accepted: {currencies})",
            order.currency
        )));
    }
    if order.items.is_empty() {
        return Err(Failure::reject("the order has no items"));
    }
    if let Some(item) = order.items.iter().find(|item| item.quantity == 0) {
        return Err(Failure::reject(format!("item `{}` has the quantity 0", item.sku)));
    }
    let sum = order.items.iter().try_fold(0u64, |sum, item| {
        sum.checked_add(item.unit_price_cents.checked_mul(item.quantity.into())?)
    });
    match sum {
        Some(sum) if sum == order.total_cents => Ok(()),
        Some(sum) => Err(Failure::reject(format!(
            "total_cents is {}, but the items add up to {sum}",
            order.total_cents
        ))),
        None => Err(Failure::reject("the items add up to more than 64 bits hold")),
    }
}

/// A pending payment may still arrive; a declined one will not.
fn collect(order: &Order, attempt: u32) -> Result<(), Failure> {
    let arrives = order.payment_attempts.unwrap_or(PAYMENT_ATTEMPTS_DEFAULT);
    match order.payment {
        Payment::Pending if attempt < arrives => {
            Err(Failure::retry(format!("the payment of order {} is pending", order.order_id)))
        }
        Payment::Declined => {
            Err(Failure::reject(format!("the payment of order {} was declined", order.order_id)))
        }
        Payment::Authorized | Payment::Pending => Ok(()),
    }
}

wasmill_handler::export!(handle);
