//! Moves money between accounts: balances are state, what was done is an event of the stream `audit`.
//!
//! README.md beside this crate says which fields an event has and which answer each case gets.

use serde::{Deserialize, Serialize};
use wasmill_handler::state::Bucket;
use wasmill_handler::{Delivery, Event, Failure, Result, outbox};

/// The pipeline's own bucket: a key for each account, its balance as decimal text.
const ACCOUNTS: &str = "accounts";
/// Where it is written down what was done.
const AUDIT: &str = "audit";

/// Money that comes in; the first deposit opens the account.
#[derive(Deserialize)]
struct Deposit {
    account: String,
    amount: u64,
}

/// Money that goes from one account to another.
#[derive(Deserialize)]
struct Transfer {
    from: String,
    to: String,
    amount: u64,
}

/// What the audit says of a deposit.
#[derive(Serialize)]
struct Deposited<'a> {
    account: &'a str,
    amount: u64,
    balance: u64,
}

/// What the audit says of a transfer.
#[derive(Serialize)]
struct Transferred<'a> {
    from: &'a str,
    to: &'a str,
    amount: u64,
    from_balance: u64,
    to_balance: u64,
}

fn handle(event: Event, _delivery: Delivery) -> Result {
    match event.event_type.as_deref() {
        Some("deposit") => deposit(&parse(&event)?),
        Some("transfer") => transfer(&parse(&event)?),
        _ => Err(Failure::reject("the event's type is neither `deposit` nor `transfer`").into()),
    }
}

fn parse<'a, T: Deserialize<'a>>(event: &'a Event) -> Result<T, Failure> {
    event.json().map_err(|error| Failure::reject(format!("the payload: {error}")))
}

fn deposit(Deposit { account, amount }: &Deposit) -> Result {
    let accounts = Bucket::open(ACCOUNTS)?;
    let balance = accounts.increment(account, *amount)?;
    audit("deposited", account, &Deposited { account, amount: *amount, balance })
}

/// Nothing here has to fear another transfer: if a balance that was read changes before the commit, the
/// host runs the handler again.
fn transfer(Transfer { from, to, amount }: &Transfer) -> Result {
    if from == to {
        return Err(Failure::reject("an account cannot pay itself").into());
    }
    let accounts = Bucket::open(ACCOUNTS)?;
    let balances = accounts.get_many([from, to])?;
    let [from_balance, to_balance] = balances.as_slice() else {
        return Err(Failure::retry("the store gave another number of balances").into());
    };
    let from_balance = balance_of(from, from_balance.as_deref())?;
    let to_balance = balance_of(to, to_balance.as_deref())?;
    let from_balance = from_balance.checked_sub(*amount).ok_or_else(|| {
        Failure::reject(format!("`{from}` has {from_balance}, which does not cover {amount}"))
    })?;
    let to_balance = to_balance
        .checked_add(*amount)
        .ok_or_else(|| Failure::reject(format!("the balance of `{to}` would exceed 64 bits")))?;
    accounts.set(from, from_balance.to_string())?;
    accounts.set(to, to_balance.to_string())?;
    audit("transferred", from, &Transferred { from, to, amount: *amount, from_balance, to_balance })
}

/// An account without a balance was not opened yet: its first deposit may be on its way.
fn balance_of(account: &str, balance: Option<&[u8]>) -> Result<u64, Failure> {
    let balance = balance.ok_or_else(|| Failure::retry(format!("there is no account `{account}` yet")))?;
    std::str::from_utf8(balance)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::retry(format!("the balance of `{account}` is no number")))
}

/// Events of one account are in one partition of the audit, in the order in which they were committed.
fn audit(event_type: &str, account: &str, payload: &impl Serialize) -> Result {
    outbox::Event::json(payload)?.event_type(event_type).key(account).append_to(AUDIT)?;
    Ok(())
}

wasmill_handler::export!(handle);
