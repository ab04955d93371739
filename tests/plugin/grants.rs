//! Grants: what is not named is refused with the name of the grant, what is named works.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use wasmill::grants::{DirGrant, HttpGrant};
use wasmill::plugin::{Need, PluginSpec, Refusal};

use crate::support::{ask, guest, guest_lines, host, load, logged, rejection};

/// A web server that answers everything with 204 until the test ends; gives its port.
fn server() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        }
    });
    port
}

fn http<'a>(target: &str, grants: &'a [String]) -> impl FnOnce(&mut PluginSpec) + use<'a> {
    let target = target.to_owned();
    move |spec| {
        spec.config = vec![("http".to_owned(), target)];
        spec.grants.http = grants.iter().map(|grant| HttpGrant::parse(grant).unwrap()).collect();
    }
}

#[tokio::test]
async fn http_without_a_grant_names_the_line_to_add() {
    let plugin = load("hostile", |_| {}).await;
    let (outcome, events) = logged(ask(&plugin, "http")).await;
    let expected =
        "HTTP to example.com:443 is not granted to this plugin: add \"example.com:443\" to `allow_http`";
    let text = rejection(outcome);
    assert!(text.contains(&expected.replace('"', "\\\"")), "{text}");
    assert_eq!(guest_lines(&events), [format!("WARN {expected}")]);
}

#[tokio::test]
async fn http_to_a_granted_address_works_and_to_another_port_does_not() {
    let port = server();
    let grants = [format!("127.0.0.1:{port}")];
    let plugin = load("hostile", http(&format!("http 127.0.0.1:{port}"), &grants)).await;
    assert_eq!(rejection(ask(&plugin, "http").await), "status 204");
    assert_eq!(rejection(ask(&plugin, "http").await), "status 204", "on the same instance");
    let plugin = load("hostile", http("http 127.0.0.1:1", &grants)).await;
    let text = rejection(ask(&plugin, "http").await);
    assert!(text.contains("HTTP to 127.0.0.1:1 is not granted"), "{text}");
}

#[tokio::test]
async fn a_granted_name_that_leads_home_is_refused_unless_the_address_is_granted_too() {
    let port = server();
    let name = format!("localhost:{port}");
    let target = format!("http {name}");
    let plugin = load("hostile", http(&target, std::slice::from_ref(&name))).await;
    let (outcome, events) = logged(ask(&plugin, "http")).await;
    let text = rejection(outcome);
    assert!(text.contains("localhost leads to the private address "), "{text}");
    let lines = guest_lines(&events);
    assert!(lines[0].starts_with("WARN localhost leads to the private address "), "{lines:?}");
    assert!(lines[0].ends_with(&format!(":{port}\" to `allow_http`")), "{lines:?}");
    let plugin = load("hostile", http(&target, &[name, format!("127.0.0.1:{port}")])).await;
    assert_eq!(rejection(ask(&plugin, "http").await), "status 204");
}

#[tokio::test]
async fn sockets_are_refused_and_the_log_says_what_there_is_instead() {
    let plugin = load("hostile", |_| {}).await;
    let (outcome, events) = logged(ask(&plugin, "resolve")).await;
    let text = rejection(outcome);
    assert!(text.contains("ccess"), "{text}");
    assert_eq!(
        guest_lines(&events),
        [
            "WARN the address of localhost is refused: no plugin has sockets; HTTP goes through wasi:http, to the hosts of `allow_http`"
        ]
    );
}

#[tokio::test]
async fn the_environment_is_what_is_granted() {
    let plugin = load("hostile", |_| {}).await;
    assert_eq!(rejection(ask(&plugin, "env").await), "[]");
    let env = vec![("API_KEY".to_owned(), "k".to_owned())];
    let plugin = load("hostile", |spec| spec.grants.env = env).await;
    assert_eq!(rejection(ask(&plugin, "env").await), r#"[("API_KEY", "k")]"#);
}

#[tokio::test]
async fn files_are_those_of_granted_directories() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("a.txt"), "granted").unwrap();
    std::fs::write(dir.path().join("secret.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret.txt"), inside.join("link")).unwrap();
    let ask_for = async |file: &str, behaviour: &str, granted: bool, writable: bool| {
        let plugin = load("hostile", |spec| {
            spec.config = vec![("file".to_owned(), file.to_owned())];
            let grant = DirGrant { host: inside.clone(), guest: "/data".to_owned(), writable };
            spec.grants.dirs = if granted { vec![grant] } else { vec![] };
        })
        .await;
        rejection(ask(&plugin, behaviour).await)
    };
    assert_eq!(ask_for("a.txt", "read-file", false, false).await, "no directory");
    assert_eq!(ask_for("a.txt", "read-file", true, false).await, "read: granted");
    for out in ["../secret.txt", "/etc/passwd", "link", "../inside/../secret.txt"] {
        let text = ask_for(out, "read-file", true, true).await;
        assert!(text.starts_with("cannot open: "), "{out}: {text}");
    }
    for file in ["a.txt", "new.txt"] {
        let text = ask_for(file, "write-file", true, false).await;
        assert!(text.starts_with("cannot open: "), "{file}: {text}");
    }
    assert_eq!(std::fs::read_to_string(inside.join("a.txt")).unwrap(), "granted");
    assert_eq!(ask_for("new.txt", "write-file", true, true).await, "wrote 14 bytes");
    assert_eq!(std::fs::read_to_string(inside.join("new.txt")).unwrap(), "from the guest");
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_a_load_error_and_later_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    let grant = |spec: &mut PluginSpec| {
        spec.grants.dirs = vec![DirGrant { host: gone.clone(), guest: "/data".to_owned(), writable: false }];
    };
    let mut spec = PluginSpec::new("hostile", guest("hostile"));
    grant(&mut spec);
    let error = host().load(&spec).await.err().unwrap();
    assert!(matches!(error.refusal, Refusal::Start { .. }));
    let expected =
        format!("it does not start: the directory {} of `allow_dirs` cannot be opened: ", gone.display());
    assert!(error.to_string().contains(&expected), "{error}");

    std::fs::create_dir(&gone).unwrap();
    let plugin = load("hostile", grant).await;
    std::fs::remove_dir(&gone).unwrap();
    // The instance that loading tried has it open still; the next one cannot.
    let fault = ask(&plugin, "trap").await.unwrap_err();
    assert!(fault.message.contains("gave up"), "{}", fault.message);
    let fault = ask(&plugin, "ok").await.unwrap_err();
    assert!(fault.message.starts_with("the directory "), "{}", fault.message);
}

#[tokio::test]
async fn what_is_imported_and_not_granted_is_known() {
    let plugin = load("hostile", |_| {}).await;
    let missing: Vec<_> = plugin.missing_grants().map(|need| need.to_string()).collect();
    assert_eq!(
        missing,
        [
            "imports wasi:http/outgoing-handler: add `allow_http = [\"host:port\"]`",
            "imports wasmill:handler/outbox: add `allow_streams = [\"stream\"]`",
        ]
    );
    let granted = load("hostile", |spec| {
        spec.grants.http = vec![HttpGrant::parse("a.example").unwrap()];
        spec.grants.streams = vec![wasmill::event::Name::new("audit").unwrap()];
    })
    .await;
    assert_eq!(granted.missing_grants().count(), 0);
    let inspection = host().inspect(&guest("hostile")).await.unwrap();
    assert_eq!(inspection.needs, [Need::Http, Need::Outbox, Need::State]);
    let inspection = host().inspect(&guest("passthrough")).await.unwrap();
    assert_eq!(inspection.needs, [], "what the SDK offers and nobody uses is not imported");
}
