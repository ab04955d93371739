//! A client that sends what it is told to, and reads what comes until the end.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::support::program::{Engine, PATIENCE, Site};

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Starts an engine that can be asked, on a port of the system's choice.
pub(crate) fn engine(site: &Site, args: &[&str]) -> (Engine, SocketAddr) {
    let args = [&["--http", "127.0.0.1:0"], args].concat();
    let mut engine = site.engine(&args);
    engine.wait_for(&["answering on /livez"]);
    let address = address(&engine.log());
    (engine, address)
}

/// The address that the log names.
pub(crate) fn address(log: &str) -> SocketAddr {
    let (_, rest) = log.split_once("address=").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Everything until the other side is done. One that is cut off may say so by a reset.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(bytes).unwrap()
}

pub(crate) fn request(address: SocketAddr, method: &str, path: &str) -> Answer {
    let mut stream = connect(address);
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: wasmill\r\n\r\n").unwrap();
    let text = read_to_end(&mut stream);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path)
}

/// Whether it is ready, and the checks that failed: what, and how it is.
pub(crate) fn readyz(address: SocketAddr) -> (bool, Vec<(String, String)>) {
    let answer = get(address, "/readyz");
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    let failed = body["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let failed: Vec<_> = failed.map(|check| (text(&check["check"]), text(&check["detail"]))).collect();
    assert_eq!(answer.status, if failed.is_empty() { 200 } else { 503 }, "{body}");
    assert_eq!(body["ready"], failed.is_empty(), "{body}");
    (failed.is_empty(), failed)
}

/// One scrape: each row with its value.
pub(crate) struct Scrape {
    pub(crate) text: String,
    rows: BTreeMap<String, f64>,
}

impl Scrape {
    pub(crate) fn of(address: SocketAddr) -> Self {
        let answer = get(address, "/metrics");
        assert_eq!(answer.status, 200);
        let row = |line: &str| {
            let (row, value) = line.rsplit_once(' ').unwrap();
            (row.to_owned(), value.parse().unwrap())
        };
        let rows = answer.body.lines().filter(|line| !line.starts_with('#')).map(row).collect();
        Self { text: answer.body, rows }
    }

    /// The value of a row of the pipeline `p`, with the rest of its labels behind its group.
    pub(crate) fn of_p(&self, name: &str, more: &str) -> Option<f64> {
        self.row(&format!("{name}{{pipeline=\"p\",stream=\"s\",group=\"g\"{more}}}"))
    }

    pub(crate) fn row(&self, row: &str) -> Option<f64> {
        self.rows.get(row).copied()
    }
}
