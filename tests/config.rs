//! Pipeline files and what is said about them: each `tests/config/NAME.toml` has its
//! `NAME.txt`, the exact message, or the meaning of a file that is right.
//!
//! `UPDATE_GOLDEN=1 cargo nextest run --test config` writes the `.txt` files anew: read the difference.

// Helpers of tests are tests too, which clippy does not see.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use wasmill::config::{self, Config, ConfigError};

const FOLDER: &str = "tests/config";

/// Appears in no message: the value of the variables that the files use as secrets.
const SECRET: &str = "s3cr3t value:";

fn env(name: &str) -> Option<String> {
    match name {
        "REDIS_PASSWORD" | "API_KEY" | "SECRET" => Some(SECRET.to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

/// What is shown for a file: its meaning, or its problems.
fn shown(result: &Result<Config, ConfigError>) -> String {
    match result {
        Ok(config) => format!("{config:#?}\n"),
        Err(error) => format!("{error}\n"),
    }
}

fn check_golden(golden: &Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, actual).unwrap();
    }
    let expected = std::fs::read_to_string(golden).unwrap_or_default();
    assert!(expected == actual, "{} differs; is now:\n{actual}", golden.display());
}

/// The files of a kind in the folder, in order.
fn files(extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

#[test]
fn every_file_has_its_message() {
    let files = files("toml");
    assert!(files.len() > 50, "only {} files in {FOLDER}", files.len());
    for file in files {
        let result = config::load(&file, &env);
        let is_valid = file.file_stem().unwrap().to_str().unwrap().starts_with("valid");
        assert_eq!(result.is_ok(), is_valid, "{}: {}", file.display(), shown(&result));
        check_golden(&file.with_extension("txt"), &shown(&result));
    }
}

#[test]
fn every_message_has_its_file() {
    let stems =
        |extension| files(extension).iter().map(|file| file.with_extension("")).collect::<BTreeSet<_>>();
    assert_eq!(stems("txt"), stems("toml"));
}

#[test]
fn no_message_holds_a_secret() {
    for file in files("toml") {
        let result = config::load(&file, &env);
        let styled = result.as_ref().err().map(ConfigError::styled).unwrap_or_default();
        let text = format!("{}{result:?}{styled}", shown(&result));
        for secret in [SECRET, "s3cr3t", "hunter2"] {
            assert!(!text.contains(secret), "{}: {text}", file.display());
        }
    }
}

#[test]
fn secrets_arrive() {
    let config = config::load(Path::new("tests/config/valid-full.toml"), &env).unwrap();
    let plugin = &config.plugins[0];
    let expected = [
        ("api_key", SECRET),
        ("currency", "EUR"),
        ("rates", r#"[1.5,{"usd":"1.1"}]"#),
        ("retries", "3"),
        ("since", "2026-01-31"),
    ];
    let expected: Vec<(String, String)> = expected.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    assert_eq!(plugin.config, expected);
    let Some(wasmill::target::Target::Redis(url)) = &config.backend.target else { panic!("no Redis") };
    assert_eq!(url.secret(), format!("rediss://app:{SECRET}@redis.example.com:6380/2"));
}

#[test]
fn a_missing_file_is_named() {
    let error = config::load(Path::new("tests/config/absent.toml"), &env).unwrap_err();
    assert_eq!(error.to_string(), "error: there is no such file\n--> tests/config/absent.toml");

    let error = config::load(Path::new(FOLDER), &env).unwrap_err();
    assert!(error.to_string().starts_with("error: cannot read this file: "), "{error}");
}

#[test]
fn a_huge_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.toml");
    let size = usize::try_from(config::FILE_BYTES_MAX).unwrap();
    std::fs::write(&path, vec![b'#'; size + 1]).unwrap();
    let error = config::load(&path, &env).unwrap_err();
    assert!(error.to_string().contains("longer than 1 MiB"), "{error}");
    std::fs::write(&path, vec![b'#'; size]).unwrap();
    assert!(config::load_store(&path, &env).is_ok());
}

#[test]
fn the_store_needs_neither_plugins_nor_pipelines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wasmill.toml");
    let text = "[backend]\nurl = \"sqlite:log.db\"\n[streams.s]\npartitions = 2\n[plugins.p]\npath = \"absent.wasm\"\n\
        config = { key = \"${ABSENT}\" }\n";
    std::fs::write(&path, text).unwrap();
    let store = config::load_store(&path, &env).unwrap();
    assert_eq!(store.backend.target, Some(wasmill::target::Target::Sqlite(folder.path().join("log.db"))));
    assert_eq!(store.streams[0].partitions, 2);
    assert_eq!(store.engine, config::Engine::default());

    std::fs::write(&path, format!("{text}timeuot = \"5s\"\n")).unwrap();
    let error = config::load_store(&path, &env).unwrap_err();
    assert_eq!(error.count(), 1);
    assert!(error.to_string().contains("did you mean `timeout`?"), "{error}");
}

#[test]
fn a_terminal_can_have_colours() {
    let error = config::load(Path::new("tests/config/two-errors.toml"), &env).unwrap_err();
    assert_eq!(error.count(), 2);
    let styled = error.styled();
    assert!(styled.contains("\u{1b}["), "{styled}");
    assert!(!error.to_string().contains('\u{1b}'));
}

#[test]
fn the_schema_is_the_one_that_is_written_down() {
    let schema = serde_json::to_string_pretty(&config::schema()).unwrap();
    check_golden(Path::new("tests/config/schema.json"), &format!("{schema}\n"));
}

/// What the schema describes is what is read: the full file, which is right, has every key of it.
#[test]
fn the_full_file_has_every_key_of_the_schema() {
    fn keys(schema: &serde_json::Value, found: &mut BTreeSet<String>) {
        for (key, value) in schema.as_object().into_iter().flatten() {
            if key == "properties" {
                found.extend(value.as_object().unwrap().keys().cloned());
            }
            keys(value, found);
        }
    }
    let mut described = BTreeSet::new();
    keys(&config::schema(), &mut described);
    assert!(described.len() > 25, "{described:?}");
    let text = valid();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    for key in described {
        assert!(words.contains(key.as_str()), "valid-full.toml lacks `{key}`");
    }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    config::parse(text, Path::new("x.toml"), Path::new(FOLDER), &env)
}

fn valid() -> String {
    std::fs::read_to_string("tests/config/valid-full.toml").unwrap()
}

/// A piece of TOML in the words of a pipeline file, as a rule not a right one.
fn pieces() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "backend",
        "plugins",
        "p",
        "streams",
        "engine",
        "pipeline",
        "url",
        "path",
        "timeout",
        "max_memory",
        "config",
        "partitions",
        "name",
        "stream",
        "group",
        "plugin",
        "concurrency",
        "lease",
        "retry",
        "max",
        "jitter",
        "é",
    ]);
    let value = prop::sample::select(vec![
        "\"p\"",
        "\"${A}\"",
        "\"${A:-1s}\"",
        "\"${\"",
        "\"1s\"",
        "\"1MiB\"",
        "\"all\"",
        "\"redis://a:b@c\"",
        "0",
        "8",
        "-1",
        "nan",
        "1.5",
        "true",
        "[]",
        "[0, 1]",
        "[\"0\"]",
        "{}",
        "{ path = \"files/enrich.wasm\" }",
        "{ max = 1 }",
        "1979-05-27",
        "'''\n${A}'''",
        "\"\\u0000\"",
        "99999999999999999999",
    ]);
    prop_oneof![
        key.clone().prop_map(|key| format!("[{key}]\n")),
        key.clone().prop_map(|key| format!("[plugins.{key}]\n")),
        key.clone().prop_map(|key| format!("[[{key}]]\n")),
        (key, value).prop_map(|(key, value)| format!("{key} = {value}\r\n")),
        "\\PC{0,8}\n",
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let error = config::load(file.path(), &env).unwrap_err();
        prop_assert!(error.to_string().starts_with("error: "), "{error}");
        prop_assert!(error.count() > 0);
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in prop::collection::vec(pieces(), 0..20)) {
        let text = pieces.concat();
        if let Err(error) = parse(&text) {
            prop_assert!(error.count() > 0);
            prop_assert!(error.to_string().starts_with("error: "), "{error}");
            prop_assert!(error.styled().len() > error.to_string().len());
        }
    }

    #[test]
    fn a_damaged_file_is_read_or_refused(at in any::<prop::sample::Index>(), length in 0usize..20, put in "\\PC{0,4}") {
        let text = valid();
        let mut characters: Vec<char> = text.chars().collect();
        let start = at.index(characters.len());
        let end = (start + length).min(characters.len());
        characters.splice(start..end, put.chars());
        let damaged: String = characters.into_iter().collect();
        if let Err(error) = parse(&damaged) {
            prop_assert!(error.to_string().starts_with("error: "), "{error}");
        }
    }

    #[test]
    fn variables_change_nothing_but_where_they_stand(name in "[A-Za-z0-9_-]{1,20}", seconds in 1u32..3600) {
        let literal = valid().replace("market-events", &name).replace("\"30s\"", &format!("\"{seconds}s\""));
        let by_variable = valid()
            .replace("stream = \"market-events\"", "stream = \"${NAME}\"")
            .replace("market-events", &name)
            .replace("\"30s\"", "\"${SECONDS:-1}s\"");
        let with_env = |wanted: &str| match wanted {
            "NAME" => Some(name.clone()),
            "SECONDS" => Some(seconds.to_string()),
            other => env(other),
        };
        let path = Path::new("x.toml");
        let expected = config::parse(&literal, path, Path::new(FOLDER), &with_env).unwrap();
        let actual = config::parse(&by_variable, path, Path::new(FOLDER), &with_env).unwrap();
        prop_assert_eq!(actual, expected);
    }
}
