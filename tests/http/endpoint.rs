//! The endpoint itself: its paths and methods, and those who do not play by the rules.

use std::io::{Read, Write};
use std::time::Duration;

use wasmill::http::CONNECTIONS_MAX;

use crate::client::{connect, engine, get, read_to_end, readyz, request};
use crate::support::program::{Site, Store};

fn site() -> Site {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "");
    site
}

#[test]
fn it_answers_on_its_paths_and_only_to_who_reads() {
    let site = site();
    let (mut engine, at) = engine(&site, &[]);
    engine.wait_for(&["running"]);
    let before = site.contents();
    assert_eq!(get(at, "/livez").body, "{\"live\":true}\n");
    let scrape = get(at, "/metrics");
    let media = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(scrape.head.contains(media), "{}", scrape.head);
    assert!(scrape.body.ends_with("# EOF\n"));
    for path in ["/", "/metrics/", "/livez/x", "/readyz%00", "/../metrics"] {
        assert_eq!(get(at, path).status, 404, "{path}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            assert_eq!(request(at, method, path).status, 405, "{method} {path}");
        }
        let head = request(at, "HEAD", path);
        assert_eq!(head.body, "", "{path}");
    }
    assert_eq!(site.contents(), before, "whoever asks changes nothing");
    engine.drain();
}

#[test]
fn it_is_off_unless_asked_for() {
    let site = site();
    let mut engine = site.engine(&[]);
    engine.wait_for(&["running"]);
    assert!(!engine.log().contains("answering on"), "{}", engine.log());
    engine.drain();
}

#[test]
fn the_command_line_beats_the_file() {
    let site = site();
    let file = std::fs::read_to_string(site.path().join("wasmill.toml")).unwrap();
    // An address of documentation, which no machine has.
    site.write("wasmill.toml", format!("[http]\nlisten = \"192.0.2.1:9464\"\n{file}"));
    let output = site.run(&["run", "wasmill.toml", "--until-idle"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot listen on 192.0.2.1:9464"), "{stderr}");
    let (engine, at) = engine(&site, &[]);
    assert_eq!(get(at, "/livez").status, 200);
    engine.drain();
}

#[test]
fn an_address_that_others_can_reach_is_warned_of() {
    let site = site();
    let file = std::fs::read_to_string(site.path().join("wasmill.toml")).unwrap();
    let verdict = |listen: &str| {
        site.write("wasmill.toml", format!("[http]\nlisten = \"{listen}\"\n{file}"));
        let findings = site.json(&["check", "wasmill.toml"]);
        let found = findings.into_iter().find(|finding| finding["what"] == "http").unwrap();
        (found["verdict"].as_str().unwrap().to_owned(), found["detail"].as_str().unwrap().to_owned())
    };
    for address in ["127.0.0.1:9464", "127.8.8.8:9464", "[::1]:9464", "[::ffff:127.0.0.1]:9464"] {
        assert_eq!(verdict(address), ("ok".to_owned(), format!("{address}, for this machine alone")));
    }
    for address in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464"] {
        let (verdict, detail) = verdict(address);
        assert_eq!(verdict, "warning", "{detail}");
        assert!(detail.contains("no authentication"), "{detail}");
    }
}

#[test]
fn who_stalls_is_cut_and_holds_up_no_one_for_long() {
    let site = site();
    let (engine, at) = engine(&site, &[]);
    // As many as there may be, each in the middle of its request.
    let mut stalled: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(at)).collect();
    for stream in &mut stalled {
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost:").unwrap();
    }
    // Waits until they are cut, and is answered.
    assert_eq!(get(at, "/livez").status, 200);
    for mut stream in stalled {
        assert_eq!(read_to_end(&mut stream), "", "an answer to half a request");
    }
    engine.drain();
}

#[test]
fn nonsense_and_long_heads_are_refused() {
    let site = site();
    let (engine, at) = engine(&site, &[]);
    for nonsense in ["\0\0\0\0\r\n\r\n".to_owned(), format!("GET /livez HTTP/1.1\r\nX: {}", "x".repeat(1 << 20))] {
        let mut stream = connect(at);
        // It may be cut while it still talks.
        let _ = stream.write_all(nonsense.as_bytes());
        let answer = read_to_end(&mut stream);
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    // A body that never comes holds nothing up.
    let mut stream = connect(at);
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    assert!(readyz(at).0);
    engine.drain();
}
