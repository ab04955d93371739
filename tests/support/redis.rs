//! A real Redis server per test: own directory, own port, own socket, ended on drop.
//!
//! `WASMILL_REDIS_SERVER` names another server binary than the `redis-server` of `PATH`, so that the
//! same tests run on other versions.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server, or one that was stopped and can start again on the same port and data.
pub(crate) struct RedisServer {
    dir: tempfile::TempDir,
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl RedisServer {
    /// A server without persistence.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server that has every acknowledged write on disk.
    pub(crate) fn durable() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server without persistence that begins with what this dump holds.
    pub(crate) fn with_dump(dump: &std::path::Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(dump, dir.path().join("dump.rdb")).unwrap();
        Self::start_in(dir, &["--dbfilename", "dump.rdb"])
    }

    /// A server with further options, as on its command line.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), options)
    }

    fn start_in(dir: tempfile::TempDir, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { dir, port: 0, options, child: None };
        // Between asking for a free port and using it, another process can take it: then the
        // server ends at once, and the next port is tried.
        for _ in 0..20 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("no redis-server could be started; its log:\n{}", server.log());
    }

    /// The server's address for a client.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The same server by its Unix socket.
    pub(crate) fn socket_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The server's directory.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Process id; none while it is stopped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends the server as an operator would, and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.end("-TERM");
    }

    /// Ends the server without a chance to write anything.
    pub(crate) fn kill9(&mut self) {
        self.end("-KILL");
    }

    /// Halts the server: it keeps its connections and answers nothing.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets a halted server go on.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Starts a stopped server on the same port and the same data.
    pub(crate) fn start_again(&mut self) {
        assert!(self.child.is_none(), "the server runs");
        let until = Instant::now() + PATIENCE;
        while !self.launch() {
            assert!(Instant::now() < until, "the server does not start again; its log:\n{}", self.log());
        }
    }

    /// What the server wrote to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Whether a server came up and answers.
    fn launch(&mut self) -> bool {
        let program = std::env::var("WASMILL_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(program);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--daemonize", "no", "--logfile", "log", "--unixsocket"]).arg(self.socket());
        command.args(&self.options);
        command.arg("--dir").arg(self.dir.path()).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("redis-server is on the PATH");
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if answers(self.port) {
                self.child = Some(child);
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().expect("the server runs").to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn end(&mut self, signal: &str) {
        self.signal(signal);
        let mut child = self.child.take().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Whether a server on this port has come up. One that wants a password has; one that still loads
/// its data, or that never answers, has not. A server with TLS alone cannot be asked so: its
/// socket can.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    if stream.write_all(b"PING\r\n").is_err() {
        return false;
    }
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).unwrap_or(0);
    answer[..length].starts_with(b"+PONG") || answer[..length].starts_with(b"-NOAUTH")
}
