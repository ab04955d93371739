//! Checks orders, enriches those that pass, and sends them on.
//!
//! ../../orders.md says which fields an order has, which answer each case gets, and where it goes: it is
//! the same handler in every language.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use wasmill_handler::{Delivery, Event, Failure, Result, config, config_as, info, outbox};

const CURRENCIES_DEFAULT: &str = "EUR,USD,GBP";
const PAYMENT_ATTEMPTS_DEFAULT: u64 = 3;
const REVIEW_ABOVE_CENTS_DEFAULT: u64 = 100_000;
/// The largest integer of a payload: 2^53 − 1, so that every language reads the same number.
const INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// An order as producers send it. Fields that are not named here are ignored.
#[derive(Deserialize)]
struct Order {
    order_id: String,
    customer: String,
    currency: String,
    items: Vec<Item>,
    #[serde(deserialize_with = "integer")]
    total_cents: u64,
    #[serde(default)]
    payment: Payment,
    /// The delivery at which a pending payment has arrived: it stands for the answer of a payment
    /// service that this handler would ask.
    #[serde(default = "payment_attempts_default", deserialize_with = "integer")]
    payment_attempts: u64,
}

#[derive(Deserialize)]
struct Item {
    sku: String,
    quantity: u32,
    #[serde(deserialize_with = "integer")]
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

/// An order that passed, as those who work on it get it.
#[derive(Serialize)]
struct Enriched<'a> {
    order_id: &'a str,
    customer: &'a str,
    currency: &'a str,
    total_cents: u64,
    lines: usize,
    units: u64,
    trace: Option<&'a str>,
}

fn handle(event: Event, delivery: Delivery) -> Result {
    let order: Order = event.json().map_err(|error| Failure::reject(format!("not an order: {error}")))?;
    check(&order)?;
    collect(&order, delivery.attempt)?;
    let enriched = enrich(&order, event.metadata("trace_id"));
    info!("order {} of {}: {} cents {}", order.order_id, order.customer, order.total_cents, order.currency);
    route(&enriched)
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
        let sum = sum.checked_add(item.unit_price_cents.checked_mul(item.quantity.into())?)?;
        (sum <= INTEGER_MAX).then_some(sum)
    });
    match sum {
        Some(sum) if sum == order.total_cents => Ok(()),
        Some(sum) => Err(Failure::reject(format!(
            "total_cents is {}, but the items add up to {sum}",
            order.total_cents
        ))),
        None => Err(Failure::reject(format!("the items add up to more than {INTEGER_MAX}"))),
    }
}

/// A pending payment may still arrive; a declined one will not.
fn collect(order: &Order, attempt: u32) -> Result<(), Failure> {
    match order.payment {
        Payment::Pending if u64::from(attempt) < order.payment_attempts => {
            Err(Failure::retry(format!("the payment of order {} is pending", order.order_id)))
        }
        Payment::Declined => {
            Err(Failure::reject(format!("the payment of order {} was declined", order.order_id)))
        }
        Payment::Authorized | Payment::Pending => Ok(()),
    }
}

fn enrich<'a>(order: &'a Order, trace: Option<&'a str>) -> Enriched<'a> {
    Enriched {
        order_id: &order.order_id,
        customer: &order.customer,
        currency: &order.currency,
        total_cents: order.total_cents,
        lines: order.items.len(),
        units: order.items.iter().map(|item| u64::from(item.quantity)).sum(),
        trace,
    }
}

/// Appends the order where the operator wants to have it, if anywhere.
fn route(order: &Enriched) -> Result {
    if let Some(review) = config("review_stream") {
        let bound = config_as("review_above_cents")?.unwrap_or(REVIEW_ABOVE_CENTS_DEFAULT);
        if order.total_cents > bound {
            return append(order, "order-review", &review);
        }
    }
    match config("shipping_stream") {
        Some(shipping) => append(order, "order-accepted", &shipping),
        None => Ok(()),
    }
}

fn append(order: &Enriched, event_type: &str, stream: &str) -> Result {
    outbox::Event::json(order)?
        .event_type(event_type)
        .key(order.customer)
        .metadata("order_id", order.order_id)
        .append_to(stream)?;
    Ok(())
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let integer = u64::deserialize(deserializer)?;
    if integer > INTEGER_MAX {
        return Err(D::Error::custom(format_args!("{integer} is above {INTEGER_MAX}")));
    }
    Ok(integer)
}

fn payment_attempts_default() -> u64 {
    PAYMENT_ATTEMPTS_DEFAULT
}

wasmill_handler::export!(handle);
