//! What `?` makes of errors, and what a handler's own unit tests have: as far as it can be seen without a
//! host.

use std::error::Error as StdError;
use std::fmt;

use wasmill_handler::{Delivery, Error, Event, Failure, IntoFailure, Result, config, info, outbox, state};

fn said(result: Result) -> String {
    format!("{:?}", result.expect_err("the handler fails"))
}

#[derive(Debug)]
struct Around<E>(E);

impl<E> fmt::Display for Around<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something around it")
    }
}

impl<E: StdError + 'static> StdError for Around<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

fn number() -> Result<u8, std::num::ParseIntError> {
    "x".parse()
}

#[test]
fn other_errors_are_named_by_their_type() {
    let read = || -> Result { Ok(number().map(drop)?) };
    let place = line!() - 1;
    let text = said(read());
    assert!(text.contains("\"ParseIntError: invalid digit found in string\""), "{text}");
    assert!(text.contains(&format!("without_host.rs\", line: {place}")), "{text}");
    let io = || -> Result { Err(std::io::Error::other("the disk is full"))? };
    assert!(said(io()).contains("\"io::Error: the disk is full\""));
    let json = || -> Result { Ok(serde_json::from_str("x")?) };
    assert!(said(json()).contains("\"serde_json::Error: expected value at line 1 column 1\""));
    let boxed = || -> Result { Err(Box::new(Around(std::fmt::Error)))? };
    let text = said(boxed());
    assert!(text.contains("\"without_host::Around: something around it: an error occurred when"), "{text}");
}

#[test]
fn a_failure_stays_what_it_is() {
    let failure = || Failure::reject("never");
    let plain = || -> Result { Err(failure())? };
    let around = || -> Result { Err(Around(failure()))? };
    let boxed: Box<dyn StdError> = failure().into();
    for answer in [
        Failure::from(plain().unwrap_err()),
        Error::into_failure(around().unwrap_err()),
        boxed.into_failure(),
        failure().into_failure(),
    ] {
        assert_eq!(answer, Failure::reject("never"));
    }
}

#[test]
fn the_host_s_errors_say_themselves_what_becomes_of_the_event() {
    let refused = || -> Result { Err(outbox::Error::AccessDenied("allow_streams".to_owned()))? };
    let too_large = || -> Result { Err(outbox::Error::Limit("max_outbox".to_owned()))? };
    let around = || -> Result { Err(Around(outbox::Error::Limit("max_outbox".to_owned())))? };
    let store = || -> Result { Err(state::Error::Other("no answer".to_owned()))? };
    assert!(matches!(Failure::from(refused().unwrap_err()), Failure::Retry(_)));
    assert!(matches!(Failure::from(too_large().unwrap_err()), Failure::Reject(_)));
    assert!(
        matches!(Failure::from(around().unwrap_err()), Failure::Reject(reason) if reason == "max_outbox")
    );
    assert!(matches!(Failure::from(store().unwrap_err()), Failure::Retry(_)));
}

#[test]
fn handlers_can_be_called_without_a_host() {
    let handle = |event: Event, delivery: Delivery| -> Result {
        info!("{} at attempt {}", event.id, delivery.attempt);
        assert_eq!(config("greeting"), None);
        outbox::Event::json(&event.json::<serde_json::Value>()?)?.append_to("audit")?;
        Ok(())
    };
    let answer = handle(Event::default(), Delivery::default()).map_err(Failure::from);
    assert_eq!(answer, Err(Failure::retry("there is no outbox without a host")));
    assert!(state::Bucket::open("default").is_err());
}
