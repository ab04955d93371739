//! What can befall a Redis, and the lines to it.

use std::time::Duration;

use super::plan::Fault;
use crate::proxy::{Proxy, Weather};
use crate::server::RedisServer;

/// Where no server listens: a primary that a replica never reaches.
const NOWHERE: [&str; 2] = ["127.0.0.1", "1"];

pub(super) fn begin(fault: Fault, hold: Duration, server: &mut RedisServer, lines: &[Proxy]) {
    match fault {
        Fault::Slow { line, ms } => lines[line].set(Weather::Slow(Duration::from_millis(ms))),
        Fault::Cut { line } => lines[line].cut(),
        Fault::LoseAnswers { line, count } => lines[line].lose_answers(count),
        Fault::Stall { line, after_bytes } => lines[line].set(Weather::StallAfter(after_bytes)),
        Fault::HalfOpen { line } => lines[line].set(Weather::HalfOpen),
        Fault::Away { line } => lines[line].set(Weather::Away),
        Fault::Restart => server.stop(),
        Fault::KillServer => server.kill9(),
        Fault::FreezeServer => server.freeze(),
        Fault::Flush => ask(server, redis::cmd("FLUSHALL")),
        Fault::KillClients => ask(server, words("CLIENT KILL TYPE normal SKIPME yes")),
        Fault::FlushScripts => ask(server, words("SCRIPT FLUSH")),
        Fault::OutOfMemory => ask(server, words("CONFIG SET maxmemory 1")),
        Fault::Replica => ask(server, redis::cmd("REPLICAOF").arg(&NOWHERE).to_owned()),
        Fault::SlowScript => keep_busy(server, hold),
        _ => unreachable!("{fault:?}"),
    }
}

pub(super) fn end(fault: Fault, server: &mut RedisServer) {
    match fault {
        Fault::Restart | Fault::KillServer => server.start_again(),
        Fault::FreezeServer => server.thaw(),
        Fault::OutOfMemory => ask(server, words("CONFIG SET maxmemory 0")),
        Fault::Replica => ask(server, words("REPLICAOF NO ONE")),
        _ => {}
    }
}

/// Lets a script run for so long; after 50 ms of it the server answers everyone else with BUSY.
fn keep_busy(server: &RedisServer, time: Duration) {
    ask(server, words("CONFIG SET lua-time-limit 50"));
    let mut connection = connect(server);
    let script = "local until_s = os.clock() + tonumber(ARGV[1]); while os.clock() < until_s do end";
    std::thread::spawn(move || {
        let mut eval = redis::cmd("EVAL");
        // That the server dies under it is another fault's doing.
        let _ = eval.arg(script).arg(0).arg(time.as_secs_f64()).exec(&mut connection);
    });
}

fn words(text: &str) -> redis::Cmd {
    let mut words = text.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command
}

fn connect(server: &RedisServer) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

fn ask(server: &RedisServer, command: redis::Cmd) {
    command.exec(&mut connect(server)).unwrap();
}
