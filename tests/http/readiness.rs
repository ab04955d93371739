//! Readiness follows what happens to the engine.

use std::time::Duration;

use serde_json::json;

use crate::client::{engine, get, readyz};
use crate::support::program::{Site, Store, wait_until};
use crate::support::redis::RedisServer;

fn event(id: impl std::fmt::Display, event_type: &str) -> String {
    json!({ "id": id.to_string(), "type": event_type, "payload": {} }).to_string()
}

#[test]
fn it_turns_when_redis_goes_and_back_when_it_returns() {
    let mut site = Site::new(Store::Redis(RedisServer::durable()));
    site.pipeline("hostile", "", "");
    site.append(&[event(1, "ok")]);
    let (mut engine, at) = engine(&site, &["--log", "debug"]);
    engine.wait_for(&["acked", "event=1"]);
    wait_until("it is ready", || readyz(at).0);
    let Store::Redis(server) = &mut site.store else { unreachable!() };
    server.stop();
    wait_until("it is not ready", || !readyz(at).0);
    let (_, failed) = readyz(at);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].0 == "store" && failed[0].1.starts_with("it does not answer, for "), "{failed:?}");
    let text = get(at, "/readyz").body;
    assert!(!text.contains("127.0.0.1"), "{text}");
    assert!(get(at, "/metrics").body.contains("\nwasmill_store_up 0\n"));
    assert_eq!(get(at, "/livez").status, 200, "it lives: to start it again would not help");
    server.start_again();
    wait_until("it is ready again", || readyz(at).0);
    assert!(get(at, "/metrics").body.contains("\nwasmill_store_up 1\n"));
    engine.drain();
}

#[test]
fn it_waits_for_a_store_that_is_not_there_yet() {
    let mut server = RedisServer::start();
    server.stop();
    let mut site = Site::new(Store::Redis(server));
    site.pipeline("hostile", "", "");
    let (engine, at) = engine(&site, &[]);
    wait_until("the plugins are loaded", || readyz(at).1.iter().all(|(check, _)| check == "store"));
    assert_eq!(readyz(at), (false, vec![("store".to_owned(), "it has not answered yet".to_owned())]));
    let Store::Redis(server) = &mut site.store else { unreachable!() };
    server.start_again();
    wait_until("it is ready", || readyz(at).0);
    engine.drain();
}

#[test]
fn it_turns_when_a_pipeline_pauses_and_back_when_it_goes_on() {
    let site = Site::new(Store::Sqlite);
    let on_fault = "on_fault = { action = \"pause\", after = 2, of = 2 }\nretry = { initial = \"1h\", max = \"1h\" }";
    site.pipeline("hostile", "", on_fault);
    site.append(&[event("secret-1", "panic"), event("secret-2", "panic")]);
    let (mut engine, at) = engine(&site, &[]);
    engine.wait_for(&["paused"]);
    wait_until("it is not ready", || !readyz(at).0);
    let (_, failed) = readyz(at);
    assert_eq!(failed[0].0, "pipeline");
    assert!(failed[0].1.starts_with("paused: 2 of 2 attempts of the plugin `hostile` (build "), "{failed:?}");
    assert!(!failed[0].1.contains("secret"), "a guest's words are its own: {failed:?}");
    let ready = "wasmill_pipeline_ready{pipeline=\"p\",stream=\"s\",group=\"g\"}";
    assert!(get(at, "/metrics").body.contains(&format!("\n{ready} 0\n")));
    engine.signal("-HUP");
    wait_until("it is ready again", || readyz(at).0);
    assert!(get(at, "/metrics").body.contains(&format!("\n{ready} 1\n")));
    engine.drain();
}

#[test]
fn it_turns_when_a_pipeline_stops_by_itself_and_when_the_engine_drains() {
    let site = Site::new(Store::redis());
    site.plugin("hostile");
    let pipeline = |name: &str| {
        format!("[[pipeline]]\nname = \"{name}\"\nstream = \"{name}\"\ngroup = \"g\"\nplugin = \"hostile\"\n")
    };
    let plugin = "[plugins.hostile]\npath = \"hostile.wasm\"\n";
    site.write("wasmill.toml", format!("{plugin}{}{}", pipeline("a"), pipeline("b")));
    let (mut engine, at) = engine(&site, &["--log", "debug"]);
    wait_until("it is ready", || readyz(at).0);
    // A key of the stream's that holds something else: nothing that waiting would mend.
    let Store::Redis(server) = &site.store else { unreachable!() };
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:log:a:0").query(&mut connection).unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    let (): () = redis::cmd("SET").arg(&keys[0]).arg("else").query(&mut connection).unwrap();
    engine.wait_for(&["the pipeline stops", "pipeline=\"a\""]);
    wait_until("it is not ready", || !readyz(at).0);
    let stopped = ("pipeline".to_owned(), "stopped by itself; the log says why".to_owned());
    wait_until("it has stopped", || readyz(at).1 == [stopped.clone()]);
    // Without it the file is right again.
    site.write("wasmill.toml", format!("{plugin}{}", pipeline("b")));
    engine.signal("-HUP");
    wait_until("it is ready again", || readyz(at).0);
    site.write("lines.jsonl", event("long", "nap-long"));
    engine.signal("-TERM");
    let (status, _, log) = engine.end();
    assert!(status.success(), "{log}");
}

#[test]
fn it_turns_while_the_engine_drains() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "timeout = \"10m\"", "");
    site.append(&[event(1, "sleep")]);
    let file = std::fs::read_to_string(site.path().join("wasmill.toml")).unwrap();
    site.write("wasmill.toml", file.replace("drain_timeout = \"1s\"", "drain_timeout = \"1h\""));
    let (mut engine, at) = engine(&site, &["--log", "debug"]);
    engine.wait_for(&["started", "event=1"]);
    assert!(readyz(at).0);
    engine.signal("-TERM");
    wait_until("it stops", || readyz(at).1.iter().any(|(check, _)| check == "engine"));
    assert_eq!(get(at, "/livez").status, 200);
    std::thread::sleep(Duration::ZERO);
    engine.kill9();
}
