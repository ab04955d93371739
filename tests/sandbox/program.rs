//! What an operator sees: `check`, dead letters, and TLS with authorities of the operator's own.

use std::process::Command;

use serde_json::json;

use crate::support::program::{Site, Store};

fn event(id: &str, event_type: &str) -> String {
    json!({ "id": id, "type": event_type, "payload": {} }).to_string()
}

/// The lines of `check`; it must find the file right.
fn checked(site: &Site) -> String {
    site.ok(&["check", "wasmill.toml"])
}

#[test]
fn check_says_which_line_to_add_for_what_a_plugin_imports() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "");
    let report = checked(&site);
    for line in [
        "warning  plugin    hostile: imports wasi:http/outgoing-handler: add `allow_http = [\"host:port\"]` to [plugins.hostile]",
        "warning  plugin    hostile: imports wasmill:handler/outbox: add `allow_streams = [\"stream\"]` to [plugins.hostile]",
    ] {
        assert!(report.lines().any(|found| found == line), "no `{line}` in:\n{report}");
    }
    let inspected = site.ok(&["plugin", "inspect", "hostile.wasm"]);
    assert!(
        inspected.contains("needs     imports wasi:http/outgoing-handler: add `allow_http"),
        "{inspected}"
    );

    site.pipeline("hostile", "allow_http = [\"a.example\"]\nallow_streams = [\"audit\"]", "");
    let report = checked(&site);
    assert!(!report.contains("warning"), "{report}");
    let line =
        "ok       plugin    hostile: may append to the stream `audit`; `run` will create it with 1 partition";
    assert!(report.lines().any(|found| found == line), "no `{line}` in:\n{report}");
    site.until_idle(&[]);
    let report = checked(&site);
    assert!(report.contains("hostile: may append to the stream `audit`\n"), "{report}");
}

#[test]
fn a_trap_in_the_middle_of_staging_leaves_nothing_in_the_store() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "allow_streams = [\"audit\"]", "on_fault = { action = \"dead-letter\" }");
    site.append(&[
        event("bad", "stage-then-trap"),
        event("good", "stage"),
        event("worse", "stage-then-reject"),
    ]);
    let summary = site.until_idle(&[]);
    assert_eq!((&summary["acked"], &summary["dead_lettered"]), (&json!(1), &json!(2)), "{summary}");
    let dead = site.dead_letters();
    let causes: Vec<_> = dead.iter().map(|letter| (&letter["event"]["id"], &letter["cause"])).collect();
    assert!(causes.contains(&(&json!("bad"), &json!("faulted"))), "{causes:?}");
    let audit = site.json(&["stream", "info", "audit"]);
    assert_eq!(audit[0]["partitions"][0]["high_watermark"], 1, "{audit:?}");
}

/// A server with a certificate of an authority of its own, on a port of its own.
struct TlsServer {
    folder: tempfile::TempDir,
    child: std::process::Child,
    port: u16,
}

impl TlsServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for args in [
            "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.crt -subj /CN=test-authority",
            "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost \
             -addext subjectAltName=DNS:localhost",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy \
             -out server.crt",
        ] {
            let output = Command::new("openssl").args(args.split_whitespace()).current_dir(&folder).output();
            let output = output.expect("openssl is on the PATH");
            assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
        }
        // Free a moment ago: no one else asks for ports of this range in between, as a rule.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let accept = port.to_string();
        let args =
            ["s_server", "-quiet", "-www", "-cert", "server.crt", "-key", "server.key", "-accept", &accept];
        let mut command = Command::new("openssl");
        command.args(args).current_dir(&folder).stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let server = Self { child: command.spawn().unwrap(), folder, port };
        crate::support::program::wait_until("the server answers", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn https_trusts_the_authorities_of_the_operator_and_no_others() {
    let server = TlsServer::start();
    let port = server.port;
    let site = Site::new(Store::Sqlite);
    let grants = format!(
        "config = {{ http = \"https localhost:{port}\" }}\nallow_http = [\"localhost:{port}\", \"127.0.0.1:{port}\", \"[::1]:{port}\"]"
    );
    site.pipeline("hostile", &grants, "");
    let reason = |certificates: &std::path::Path, id: &str| {
        site.append(&[event(id, "http")]);
        let mut command = site.command(&["run", "wasmill.toml", "--until-idle", "--log", "warn"]);
        let output = command.env("SSL_CERT_FILE", certificates).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let dead = site.dead_letters();
        let letter = dead.iter().find(|letter| letter["event"]["id"] == id).unwrap();
        letter["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(&server.folder.path().join("ca.crt"), "trusted"), "status 200");
    let text = reason(&server.folder.path().join("none.crt"), "stranger");
    assert!(text.starts_with("failed: "), "{text}");
}

#[test]
fn sighup_resumes_a_pipeline_that_paused() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "concurrency = 1\non_fault = { action = \"pause\", after = 2 }");
    site.append(&[event("a", "trap"), event("b", "trap"), event("c", "ok")]);
    let mut engine = site.engine(&["--log", "debug"]);
    engine.wait_for(&[
        "ERROR",
        "paused: too many attempts ended in a fault",
        "plugin=\"hostile\"",
        "faults=2",
    ]);
    assert!(!engine.log().lines().any(|line| line.contains("event=c") && line.contains("acked")));
    engine.signal("-HUP");
    engine.wait_for(&["resumed", "it was told to"]);
    engine.wait_for(&["acked", "event=c"]);
    engine.drain();
}
