//! Each fault of the proxy is what it says, before a real server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Proxy, Weather};
use crate::server::RedisServer;

/// How long nothing has to come before it counts as silence.
const SILENCE: Duration = Duration::from_millis(300);

struct Client(TcpStream);

impl Client {
    fn of(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn send(&mut self, command: &str) {
        self.0.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    /// What comes next, as one read gives it; empty where the connection ended.
    fn receive(&mut self) -> String {
        let mut bytes = [0; 4096];
        let length = self.0.read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.receive()
    }

    /// Whether the connection stays and nothing comes over it.
    fn is_silent(&mut self) -> bool {
        self.0.set_read_timeout(Some(SILENCE)).unwrap();
        let silent =
            self.0.read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        silent
    }
}

fn before_a_server() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    (server, proxy)
}

#[test]
fn fair_weather_carries_and_slow_weather_delays() {
    let (_server, proxy) = before_a_server();
    let mut client = Client::of(proxy.port());
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    proxy.set(Weather::Slow(Duration::from_millis(80)));
    let asked = Instant::now();
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert!(asked.elapsed() >= Duration::from_millis(80));
}

#[test]
fn a_cut_between_request_and_answer_leaves_the_work_done() {
    let (server, proxy) = before_a_server();
    let mut client = Client::of(proxy.port());
    proxy.lose_answers(1);
    assert_eq!(client.ask("SET a 1"), "", "the connection ends");
    assert_eq!(Client::of(server.port()).ask("GET a"), "$1\r\n1\r\n");
    assert_eq!(Client::of(proxy.port()).ask("GET a"), "$1\r\n1\r\n", "only one answer was lost");
    assert_eq!(proxy.broken(), 1);
}

#[test]
fn a_stall_comes_in_the_middle_of_an_answer_and_the_work_is_done() {
    let (server, proxy) = before_a_server();
    let mut client = Client::of(proxy.port());
    proxy.set(Weather::StallAfter(5));
    assert_eq!(client.ask("INCR a"), ":1\r\n");
    assert_eq!(client.ask("INCR a"), ":");
    assert!(client.is_silent());
    let mut other = Client::of(proxy.port());
    other.send("INCR a");
    assert!(other.is_silent(), "nothing passes on other connections either");
    assert_eq!(Client::of(server.port()).ask("GET a"), "$1\r\n3\r\n");
    proxy.set(Weather::Fair);
    assert_eq!(client.receive(), "", "half an answer is not made up for");
    assert_eq!(other.receive(), ":3\r\n", "a whole one that was held up arrives");
}

#[test]
fn half_open_connections_neither_answer_nor_end() {
    let (_server, proxy) = before_a_server();
    let mut client = Client::of(proxy.port());
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    proxy.set(Weather::HalfOpen);
    client.send("PING");
    assert!(client.is_silent());
    assert_eq!(Client::of(proxy.port()).ask("PING"), "+PONG\r\n");
}

#[test]
fn what_is_away_cuts_and_comes_back() {
    let (_server, proxy) = before_a_server();
    let mut client = Client::of(proxy.port());
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    proxy.set(Weather::Away);
    assert_eq!(client.receive(), "");
    assert_eq!(Client::of(proxy.port()).receive(), "");
    proxy.set(Weather::Fair);
    let mut client = Client::of(proxy.port());
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    proxy.cut();
    assert_eq!(client.receive(), "");
}
