//! TLS to Redis: who is let in, who is refused, and in which words.

use std::process::{Command, Output};

use crate::certificates::Certificates;
use crate::support::program::{Engine, Site, Store, wait_until};
use crate::support::redis::RedisServer;

/// A server that speaks TLS on `port` with the certificate for 127.0.0.1, and a folder to work in.
struct Ground {
    certificates: Certificates,
    site: Site,
    port: u16,
}

impl Ground {
    fn new(auth_clients: &str) -> Self {
        let certificates = Certificates::new();
        let of = |name: &str| certificates.path(name);
        // Free a moment ago; where another has taken it since, the server does not start.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = [
            ["--tls-port", &port.to_string()],
            ["--tls-cert-file", &of("server.pem")],
            ["--tls-key-file", &of("server.key")],
            ["--tls-ca-cert-file", &of("ca.pem")],
            ["--tls-auth-clients", auth_clients],
        ];
        let server = RedisServer::start_with(&options.concat());
        Self { certificates, site: Site::new(Store::Redis(server)), port }
    }

    /// Runs `stream list` on the server by TLS, with further arguments; `{}` stands for the folder of
    /// the certificates.
    fn list(&self, host: &str, args: &str) -> Output {
        let url = format!("rediss://{host}:{}", self.port);
        self.command(&format!("stream list --backend {url} {args}")).output().unwrap()
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wasmill"));
        command.args(args.replace("{}", &self.certificates.path("")).split_whitespace());
        command.current_dir(self.site.path()).stdin(std::process::Stdio::null());
        for name in ["BACKEND", "LOG", "TLS_CA", "TLS_CERT", "TLS_KEY"] {
            command.env_remove(format!("WASMILL_{name}"));
        }
        command
    }
}

/// The command failed with this exit code, and its message has all these texts.
#[track_caller]
fn refused(output: &Output, code: i32, texts: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for text in texts {
        assert!(message.contains(text), "no `{text}` in: {message}");
    }
}

#[track_caller]
fn accepted(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_server_is_verified() {
    let ground = Ground::new("no");
    accepted(&ground.list("127.0.0.1", "--tls-ca {}ca.pem"));
    // The authorities of the system, or those that stand for them, count where none are named.
    refused(&ground.list("127.0.0.1", ""), 1, &["none of the authorities", "tls_ca"]);
    let url = format!("rediss://127.0.0.1:{}", ground.port);
    let mut command = ground.command(&format!("stream list --backend {url}"));
    accepted(&command.env("SSL_CERT_FILE", ground.certificates.path("ca.pem")).output().unwrap());
    refused(&ground.list("127.0.0.1", "--tls-ca {}other.pem"), 1, &["none of the authorities"]);
    refused(&ground.list("localhost", "--tls-ca {}ca.pem"), 1, &["localhost", "127.0.0.1"]);
    // Nothing switches that off.
    let mut command = ground.command(&format!("stream list --backend {url}#insecure"));
    refused(&command.output().unwrap(), 1, &["insecure"]);
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_ours() {
    let ground = Ground::new("yes");
    accepted(&ground.list("127.0.0.1", "--tls-ca {}ca.pem --tls-cert {}client.pem --tls-key {}client.key"));
    refused(&ground.list("127.0.0.1", "--tls-ca {}ca.pem"), 1, &["asks for a certificate", "tls_cert"]);
    let stranger = "--tls-ca {}ca.pem --tls-cert {}stranger.pem --tls-key {}stranger.key";
    refused(&ground.list("127.0.0.1", stranger), 1, &["does not accept our certificate"]);
}

#[test]
fn the_variables_and_the_keys_of_the_file_do_as_the_options_do() {
    let ground = Ground::new("yes");
    let url = format!("rediss://127.0.0.1:{}", ground.port);
    let mut command = ground.command("stream create by-variable");
    command.env("WASMILL_BACKEND", &url);
    for (name, file) in [("CA", "ca.pem"), ("CERT", "client.pem"), ("KEY", "client.key")] {
        command.env(format!("WASMILL_TLS_{name}"), ground.certificates.path(file));
    }
    accepted(&command.output().unwrap());

    for file in ["ca.pem", "client.pem", "client.key", "other.pem"] {
        std::fs::copy(ground.certificates.path(file), ground.site.path().join(file)).unwrap();
    }
    let keys = "tls_ca = \"ca.pem\"\ntls_cert = \"client.pem\"\ntls_key = \"client.key\"\n";
    ground.site.write("wasmill.toml", format!("[backend]\nurl = \"{url}\"\n{keys}"));
    accepted(&ground.command("stream create by-file").output().unwrap());
    // The command line goes before the file, and the file's keys do for another server by TLS.
    let output = ground.command("stream list --tls-ca other.pem").output().unwrap();
    refused(&output, 1, &["none of the authorities"]);
    accepted(&ground.list("127.0.0.1", ""));
    let streams = String::from_utf8(ground.list("127.0.0.1", "--json").stdout).unwrap();
    assert!(streams.contains("by-variable") && streams.contains("by-file"), "{streams}");
    // A benchmark, too, comes to its server so.
    let bench = ground.command("bench append --config wasmill.toml --events 10 --rounds 1").output().unwrap();
    accepted(&bench);
}

#[test]
fn files_that_do_not_fit_are_named() {
    let ground = Ground::new("yes");
    for (args, texts) in [
        ("--tls-ca {}none.pem", ["`tls_ca`", "none.pem", "No such file"]),
        ("--tls-ca {}names", ["`tls_ca`", "names", "holds no certificate"]),
        ("--tls-cert {}ca.key --tls-key {}client.key", ["`tls_cert`", "ca.key", "holds no certificate"]),
        ("--tls-cert {}client.pem --tls-key {}client.pem", ["`tls_key`", "client.pem", "no private key"]),
        ("--tls-cert {}client.pem --tls-key {}encrypted.key", ["`tls_key`", "encrypted.key", "encrypted"]),
        ("--tls-cert {}client.pem --tls-key {}server.key", ["`tls_key`", "server.key", "not the key of"]),
    ] {
        refused(&ground.list("127.0.0.1", args), 1, &texts);
    }
    refused(&ground.list("127.0.0.1", "--tls-cert {}client.pem"), 2, &["--tls-key"]);
    // What was meant to be encrypted is not sent in the clear.
    let plain = format!("stream list --backend redis://127.0.0.1:{} --tls-ca {{}}ca.pem", ground.port);
    refused(&ground.command(&plain).output().unwrap(), 2, &["rediss://"]);
    // TLS to a port that speaks none, which waits for the rest of a command.
    let Store::Redis(server) = &ground.site.store else { unreachable!("it is Redis") };
    let clear = format!("stream list --backend rediss://127.0.0.1:{} --tls-ca {{}}ca.pem", server.port());
    refused(&ground.command(&clear).output().unwrap(), 1, &["port for TLS?"]);
}

#[test]
fn certificates_are_renewed_under_a_running_engine() {
    let ground = Ground::new("yes");
    for file in ["ca.pem", "client.pem", "client.key"] {
        std::fs::copy(ground.certificates.path(file), ground.site.path().join(file)).unwrap();
    }
    ground.site.pipeline("passthrough", "", "");
    let pipeline = std::fs::read_to_string(ground.site.path().join("wasmill.toml")).unwrap();
    let keys = "tls_ca = \"ca.pem\"\ntls_cert = \"client.pem\"\ntls_key = \"client.key\"\n";
    let url = format!("rediss://127.0.0.1:{}", ground.port);
    ground.site.write("wasmill.toml", format!("[backend]\nurl = \"{url}\"\n{keys}{pipeline}"));
    let mut engine = Engine::start(ground.command("run wasmill.toml --json --log debug"));
    engine.wait_for(&["running"]);
    // A client's certificate that the server does not accept: the engine goes on trying, and says why.
    for (file, of) in [("client.pem", "stranger.pem"), ("client.key", "stranger.key")] {
        std::fs::copy(ground.certificates.path(of), ground.site.path().join(file)).unwrap();
    }
    let kill = || {
        let Store::Redis(server) = &ground.site.store else { unreachable!("it is Redis") };
        let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let _: i64 = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .query(&mut connection)
            .unwrap();
    };
    kill();
    engine.wait_for(&["does not accept our certificate"]);
    for file in ["client.pem", "client.key"] {
        std::fs::copy(ground.certificates.path(file), ground.site.path().join(file)).unwrap();
    }
    engine.wait_for(&["connected to Redis again"]);
    ground.site.append(&[r#"{"payload": {}}"#.to_owned()]);
    wait_until("it is handled", || ground.site.group()["lag"] == 0);
    assert_eq!(engine.drain()["acked"], 1);
}
