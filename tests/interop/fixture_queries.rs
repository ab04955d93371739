//! Rheo's queries and pages, asked of the library and of the program.

use serde_json::{Value, json};
use wasmill::backend::{Error, Order, Query, query};
use wasmill::event::Event;
use wasmill::query::{Condition, Cursor, Filter};

use crate::fixture::{connect, expected, name, server};
use crate::fixture_commands::{lines, same_event, site};

/// What Rheo was asked, in its words, and the same in words of the command line.
const QUERIES: [(&str, &str, &[&str]); 22] = [
    ("orders", r#"[type: "tick"]"#, &["--type", "tick"]),
    ("orders", r#"[type: "tick", currency: "EUR"]"#, &["--type", "tick", "--where", "currency=EUR"]),
    ("orders", r#"[correlation_id: "trade-42"]"#, &["--where", "correlation_id=trade-42"]),
    ("orders", r#"[producer: "ünï"]"#, &["--where", "producer=ünï"]),
    ("orders", r#"[key: "42"]"#, &["--key", "42"]),
    ("orders", "[key: 42]", KEY_OF_NUMBER),
    ("orders", "[n: 5]", &["--where", "n=5"]),
    ("orders", "[after_sequence: 3, until_sequence: 6]", &["--after", "3", "--until", "6"]),
    ("orders", "[until_sequence: 2]", &["--until", "2"]),
    ("orders", "[order_by: [sequence: :desc], limit: 3]", &["--desc", "--limit", "3"]),
    ("orders", "[order_by: [timestamp: :asc], limit: 4]", &["--order-by", "timestamp", "--limit", "4"]),
    (
        "orders",
        "[order_by: [type: :asc, sequence: :desc], limit: 20]",
        &["--order-by", "type", "--order-by", "sequence:desc", "--limit", "20"],
    ),
    (
        "orders",
        "[from: ~U[2020-01-15 12:00:01.000Z], to: ~U[2020-01-15 12:00:03.000Z]]",
        &["--from", "2020-01-15T12:00:01.000Z", "--to", "2020-01-15T12:00:03.000Z"],
    ),
    ("orders", "[limit: 2, cursor: %{0 => 10}]", &["--limit", "2", "--cursor", "0:10"]),
    // Rheo's older form of a cursor: a sequence for all partitions.
    ("orders", "[cursor: %{after_sequence: 10}]", &["--after", "10"]),
    ("multi", r#"[type: "fx", limit: 1000]"#, &["--type", "fx", "--limit", "1000"]),
    ("multi", "[partition: 3]", &["--partition", "3"]),
    ("multi", "[limit: 5]", &["--limit", "5"]),
    ("multi", "[cursor: %{0 => 1, 1 => 2}]", &["--cursor", "0:1,1:2"]),
    ("multi", "[after_sequence: 2]", &["--after", "2"]),
    ("multi", "[partition: 9]", &["--partition", "9"]),
    ("nope", "[]", &[]),
];

/// A key is a text, and no number equals it. The command line cannot say it, since there a key is a
/// text whatever it looks like.
const KEY_OF_NUMBER: &[&str] = &["--where", "key=42"];

/// The query that the words of the command line ask for.
fn parse(words: &[&str]) -> Query {
    let mut query = Query { filter: Filter::default(), ..Query::default() };
    let mut words = words.iter();
    while let Some(option) = words.next() {
        let mut value = || *words.next().unwrap();
        let condition = match *option {
            "--desc" => {
                query.order = Order::Descending;
                continue;
            }
            "--type" => Condition::text("type", value()),
            "--key" => Condition::text("key", value()),
            "--where" => {
                let (field, value) = value().split_once('=').unwrap();
                Condition::json(field, value).unwrap_or_else(|_| Condition::text(field, value))
            }
            option => {
                let value = value();
                match option {
                    "--partition" => query.partition = Some(value.parse().unwrap()),
                    "--after" => query.after = value.parse().unwrap(),
                    "--until" => query.until = value.parse().unwrap(),
                    "--from" => query.filter.from = Some(value.parse().unwrap()),
                    "--to" => query.filter.to = Some(value.parse().unwrap()),
                    "--limit" => query.limit = value.parse().unwrap(),
                    "--order-by" => query.sort.push(value.parse().unwrap()),
                    "--cursor" => query.cursor = value.parse().unwrap(),
                    other => panic!("{other}"),
                }
                continue;
            }
        };
        query.filter.conditions.push(condition);
    }
    query
}

/// Every query with Rheo's answer to it.
fn queries() -> Vec<(&'static str, &'static [&'static str], Value)> {
    let expected = expected();
    let recorded = expected["queries"].as_array().unwrap();
    assert_eq!(recorded.len(), QUERIES.len());
    let of = |(asked, (stream, opts, words)): (&Value, &(_, &str, _))| {
        assert_eq!((&asked["stream"], &asked["opts"]), (&json!(stream), &json!(opts)));
        (*stream, *words, asked["result"].clone())
    };
    recorded.iter().zip(&QUERIES).map(of).collect()
}

fn named(event: &Event) -> Value {
    json!({ "id": event.id, "partition": event.partition, "sequence": event.sequence })
}

#[tokio::test]
async fn the_library_answers_as_rheo() {
    let server = server();
    let backend = connect(&server, "Fixture").await;
    for (stream, words, wanted) in queries() {
        let answer = query(backend.as_ref(), &name(stream), &parse(words)).await;
        match wanted["error"].as_str() {
            None => {
                let events: Vec<_> = answer.unwrap().events.iter().map(named).collect();
                assert_eq!(json!(events), wanted, "{stream} {words:?}");
            }
            Some("stream_not_found") => assert!(matches!(answer, Err(Error::StreamNotFound(_)))),
            Some("invalid_partition") => assert!(matches!(answer, Err(Error::PartitionNotFound { .. }))),
            Some(other) => panic!("{other}"),
        }
    }
}

#[test]
fn the_program_answers_as_rheo() {
    let site = site();
    for (stream, words, wanted) in queries() {
        let args = [&["query", stream], words].concat();
        if wanted.is_object() {
            let output = site.run(&[&args[..], &["--namespace", "Fixture", "--json"]].concat());
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}");
        } else if words == KEY_OF_NUMBER {
            assert_eq!(wanted, json!([]));
            assert_eq!(lines(&site, &args)[0]["key"], "42");
        } else {
            let events = lines(&site, &args);
            let events = events.iter().map(|event| {
                json!({ "id": event["id"], "partition": event["partition"], "sequence": event["sequence"] })
            });
            assert_eq!(Value::from_iter(events), wanted, "{args:?}");
        }
    }
    // The events themselves, and not only which.
    for (stream, about) in expected()["streams"].as_object().unwrap() {
        let events = lines(&site, &["query", stream, "--limit", "1000"]);
        let wanted = about["query_all"].as_array().unwrap();
        assert_eq!(events.len(), wanted.len());
        for (event, wanted) in events.iter().zip(wanted) {
            same_event(event, wanted);
        }
    }
}

fn places(events: &[Event]) -> Value {
    json!(events.iter().map(|event| json!([event.partition, event.sequence])).collect::<Vec<_>>())
}

/// A cursor of Rheo's in our text.
fn text_of(cursor: &Value) -> String {
    let positions = cursor.as_object().unwrap().iter();
    positions.map(|(partition, sequence)| format!("{partition}:{sequence}")).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn pages_follow_each_other_as_rheos() {
    let (server, expected) = (server(), expected());
    let backend = connect(&server, "Fixture").await;
    let mut cursor = Cursor::default();
    for page in expected["pages"].as_array().unwrap() {
        let question = Query { limit: 5, cursor: cursor.clone(), ..Query::default() };
        let answer = query(backend.as_ref(), &name("multi"), &question).await.unwrap();
        assert_eq!(places(&answer.events), page["ids"]);
        assert_eq!(answer.next.is_none(), page["next_cursor"].is_null());
        if let Some(next) = answer.next {
            // Where Rheo would go on, ours goes on with the same events.
            let theirs: Cursor = text_of(&page["next_cursor"]).parse().unwrap();
            let one = |cursor| Query { limit: 5, cursor, ..Query::default() };
            let ours = query(backend.as_ref(), &name("multi"), &one(next.clone())).await.unwrap();
            let theirs = query(backend.as_ref(), &name("multi"), &one(theirs)).await.unwrap();
            assert_eq!(ours.events, theirs.events);
            cursor = next;
        }
    }
}

#[test]
fn the_program_says_where_the_next_page_begins() {
    let (site, expected) = (site(), expected());
    let mut cursor = Vec::new();
    for page in expected["pages"].as_array().unwrap() {
        let args =
            [&["query", "multi", "--limit", "5"][..], &cursor.iter().map(String::as_str).collect::<Vec<_>>()];
        let output = site.run(&[&args.concat()[..], &["--namespace", "Fixture", "--json"]].concat());
        assert!(output.status.success());
        let shown = String::from_utf8(output.stdout).unwrap();
        let shown = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let shown: Vec<_> = shown.map(|event| json!([event["partition"], event["sequence"]])).collect();
        assert_eq!(json!(shown), page["ids"]);
        let said = String::from_utf8(output.stderr).unwrap();
        let next = said.split_once("--cursor ").map(|(_, rest)| rest.split_whitespace().next().unwrap());
        assert_eq!(next.is_none(), page["next_cursor"].is_null(), "{said}");
        cursor = next.map(|next| vec!["--cursor".to_owned(), next.to_owned()]).unwrap_or_default();
    }
}
