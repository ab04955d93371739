//! Guests that answer: outcomes, what they see, what they log, how instances are reused.

use std::time::Duration;

use tracing::Instrument;
use wasmill::outcome::{Effects, Outcome};
use wasmill::plugin::{Delivery, LINE_BYTES_MAX, LINES_MAX};

use crate::support::{DELIVERY, ask, event, guest_lines, load, logged, rejection, retry};

#[tokio::test]
async fn every_answer_becomes_its_outcome() {
    let plugin = load("hostile", |_| {}).await;
    assert_eq!(ask(&plugin, "ok").await, Ok(Outcome::Ack(Effects::default())));
    let reason = "not now".to_owned();
    assert_eq!(ask(&plugin, "retry").await, Ok(Outcome::Retry { reason, delay: None }));
    let delay = Some(Duration::from_millis(1500));
    assert!(matches!(ask(&plugin, "count").await, Ok(Outcome::Retry { delay: d, .. }) if d == delay));
    assert_eq!(rejection(ask(&plugin, "other").await), "no behaviour `other`");
}

#[tokio::test]
async fn the_event_arrives_as_it_is_stored() {
    let plugin = load("hostile", |spec| spec.limits.timeout = Duration::from_secs(20)).await;
    let mut event = event("echo", r#"{"z" : 1.0, "ü":"\u00e9"}"#);
    let delivery = Delivery { pipeline: "risk", group: "g2", attempt: 3, max_attempts: 9, state: None };
    let (seen, left) = {
        let text = rejection(plugin.handle(&event, &delivery).await);
        let (seen, left) = text.rsplit_once(' ').unwrap();
        (seen.to_owned(), left.parse::<u32>().unwrap())
    };
    assert_eq!(
        seen,
        r#"e-1 s 2 7 2026-01-02T03:04:05.678Z Some(1767323045678) Some("k") Some("echo") [("a", "x"), ("n", "1")] {"z" : 1.0, "ü":"\u00e9"} | risk g2 3 9"#
    );
    assert!((10_000..=20_000).contains(&left), "{left}");

    event.timestamp = "yesterday".to_owned();
    event.key = None;
    let text = rejection(plugin.handle(&event, &delivery).await);
    assert!(text.contains(r#" yesterday None None Some("echo") "#), "{text}");
}

#[tokio::test]
async fn settings_are_what_the_operator_gave() {
    let plugin = load("hostile", |spec| spec.config = vec![("a".to_owned(), "one".to_owned())]).await;
    assert_eq!(rejection(ask(&plugin, "config").await), r#"Some("one") None"#);
}

#[tokio::test]
async fn passthrough_acknowledges_and_logs_in_the_attempts_span() {
    let plugin = load("passthrough", |_| {}).await;
    let handled = async {
        let span = tracing::info_span!("attempt", pipeline = "risk");
        plugin.handle(&event("t", "{}"), &DELIVERY).instrument(span).await
    };
    let (outcome, events) = logged(handled).await;
    assert_eq!(outcome, Ok(Outcome::Ack(Effects::default())));
    assert_eq!(guest_lines(&events), ["INFO e-1 attempt 1"]);
    assert_eq!(events[0]["span"]["pipeline"], "risk");
}

#[tokio::test]
async fn output_becomes_lines_with_levels() {
    let plugin = load("hostile", |_| {}).await;
    let (outcome, events) = logged(ask(&plugin, "log-lines")).await;
    assert_eq!(outcome, Ok(Outcome::Ack(Effects::default())));
    let expected = [
        "INFO first line",
        "INFO second line",
        "DEBUG a detail",
        "ERROR an error",
        "INFO half a line, the other half",
        "WARN a complaint",
        "INFO no line end",
    ];
    assert_eq!(guest_lines(&events), expected);
}

#[tokio::test]
async fn a_flood_of_output_is_cut() {
    let plugin = load("hostile", |_| {}).await;
    for (behaviour, first) in [("log-flood", "INFO line 0"), ("stdout-flood", "INFO a line of the flood")] {
        let (outcome, events) = logged(ask(&plugin, behaviour)).await;
        assert_eq!(outcome, Ok(Outcome::Ack(Effects::default())));
        let lines = guest_lines(&events);
        assert_eq!(lines.len(), LINES_MAX as usize + 1);
        assert_eq!(lines[0], first);
        assert_eq!(
            lines.last().unwrap(),
            "WARN 19000 more lines dropped: a call may log 1000 (`max_log_lines` raises it)"
        );
    }
    let (_, events) = logged(ask(&plugin, "long-line")).await;
    let lines = guest_lines(&events);
    assert_eq!(lines[0].len(), "INFO ".len() + LINE_BYTES_MAX + " … (cut)".len());
}

#[tokio::test]
async fn an_instance_is_reused_as_often_as_allowed() {
    let plugin = load("hostile", |spec| spec.limits.reuse_count_max = 2).await;
    let mut counts = Vec::new();
    for _ in 0..5 {
        counts.push(retry(ask(&plugin, "count").await));
    }
    assert_eq!(counts, ["call 1", "call 2", "call 1", "call 2", "call 1"]);
}

#[tokio::test]
async fn calls_at_once_have_an_instance_each() {
    let plugin = load("hostile", |_| {}).await;
    assert_eq!(plugin.warm_count(), 1, "the one that loading tried");
    let (a, b, c) = tokio::join!(ask(&plugin, "nap"), ask(&plugin, "nap"), ask(&plugin, "nap"));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(plugin.warm_count(), 3);
    assert_eq!(retry(ask(&plugin, "count").await), "call 2");
    assert_eq!(retry(ask(&plugin, "count").await), "call 3", "the one used last comes first");
}

#[tokio::test]
async fn unused_instances_are_dropped_in_time() {
    let plugin = load("hostile", |spec| spec.limits.idle_max = Duration::from_millis(50)).await;
    let dropped = async {
        while plugin.warm_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), dropped).await.unwrap();
    assert_eq!(retry(ask(&plugin, "count").await), "call 1");
}

/// The cases of `plugins/orders.md`.
#[tokio::test]
async fn orders_answers_as_its_contract_says() {
    let order = |change: &str, total: u64| {
        format!(
            r#"{{"order_id":"o-1","customer":"c-1","currency":"EUR","total_cents":{total},
                "items":[{{"sku":"A-1","quantity":2,"unit_price_cents":100}},{{"sku":"B-2","quantity":1,"unit_price_cents":50}}],
                "note":"ignored"{change}}}"#
        )
    };
    let plugin = load("orders", |_| {}).await;
    let answer = async |payload: &str, attempt: u32| {
        let delivery = Delivery { attempt, ..DELIVERY };
        plugin.handle(&event("order", payload), &delivery).await
    };
    let ack = Ok(Outcome::Ack(Effects::default()));
    assert_eq!(answer(&order("", 250), 1).await, ack);
    assert_eq!(answer(&order(r#","payment":"authorized""#, 250), 1).await, ack);

    let pending = order(r#","payment":"pending""#, 250);
    assert_eq!(retry(answer(&pending, 1).await), "the payment of order o-1 is pending");
    assert_eq!(retry(answer(&pending, 2).await), "the payment of order o-1 is pending");
    assert_eq!(answer(&pending, 3).await, ack);
    let slow = order(r#","payment":"pending","payment_attempts":9"#, 250);
    assert_eq!(retry(answer(&slow, 8).await), "the payment of order o-1 is pending");
    assert_eq!(answer(&slow, 9).await, ack);

    let rejected = [
        (order(r#","payment":"declined""#, 250), "the payment of order o-1 was declined"),
        (order("", 100), "total_cents is 100, but the items add up to 250"),
        (order("", 250).replace("EUR", "XBT"), "currency `XBT` is not accepted (accepted: EUR,USD,GBP)"),
        (order("", 250).replace(r#""quantity":1"#, r#""quantity":0"#), "item `B-2` has the quantity 0"),
        (
            order("", 250).replace(r#"_cents":50"#, r#"_cents":9007199254740991"#),
            "the items add up to more than 9007199254740991",
        ),
        (
            r#"{"order_id":"o","customer":"c","currency":"EUR","items":[],"total_cents":0}"#.to_owned(),
            "the order has no items",
        ),
    ];
    for (payload, reason) in rejected {
        assert_eq!(rejection(answer(&payload, 1).await), reason);
    }
    let shape = rejection(answer(r#"{"order_id":"o-1"}"#, 1).await);
    assert_eq!(shape, "not an order: missing field `customer` at line 1 column 18");

    let dollars =
        load("orders", |spec| spec.config = vec![("currencies".to_owned(), "USD, CHF".to_owned())]).await;
    let refused = rejection(dollars.handle(&event("order", &order("", 250)), &DELIVERY).await);
    assert_eq!(refused, "currency `EUR` is not accepted (accepted: USD, CHF)");
    let swiss = order("", 250).replace("EUR", "CHF");
    assert_eq!(dollars.handle(&event("order", &swiss), &DELIVERY).await, ack);
}
