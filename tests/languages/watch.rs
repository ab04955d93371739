//! `plugin build --watch` builds again when a source changes.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::kit::{ok, wasmill};
use crate::support::program::wait_until;

#[test]
fn a_change_is_built_and_a_mistake_waits_for_the_next() {
    let dir = tempfile::tempdir().unwrap();
    ok(&mut wasmill(dir.path(), &["plugin", "new", "watched", "--lang", "c"]));
    let project = dir.path().join("watched");
    let mut child = wasmill(&project, &["plugin", "build", "--watch", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (send, built) = std::sync::mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        stdout.lines().map_while(Result::ok).for_each(|line| send.send(line).unwrap());
    });
    let mut digests = Vec::new();
    let mut next = |what: &str| {
        wait_until(what, || {
            built.try_recv().is_ok_and(|line: String| {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap();
                digests.push(line["digest"].as_str().unwrap().to_owned());
                true
            })
        });
    };
    next("the first build");
    let handler = project.join("handler.c");
    let source = std::fs::read_to_string(&handler).unwrap();
    std::fs::write(&handler, format!("{source}\nint x = nowhere;\n")).unwrap();
    std::fs::write(&handler, source.replace("Hello", "Welcome")).unwrap();
    next("the build of what was mended");
    std::fs::write(project.join("more.c"), "int more(void) { return 1; }\n").unwrap();
    std::fs::write(&handler, source.replace("Hello", "Good day")).unwrap();
    next("the build with a new file");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    digests.dedup();
    assert_eq!(digests.len(), 3, "{digests:?}");
}
