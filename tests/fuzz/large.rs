//! Inputs as large as they may be, of the kinds that make a careless reader slow or greedy: each ends,
//! and what is said about it stays short.

use crate::targets;

/// A piece over and over, up to 1 MiB: the largest pipeline file.
fn filled(piece: &str) -> Vec<u8> {
    piece.repeat((1 << 20) / piece.len()).into_bytes()
}

#[test]
fn pipeline_files_of_a_mebibyte() {
    for piece in [
        "a",
        "[",
        "{",
        "\"",
        "=",
        "\n",
        "a.",
        "[a]\n",
        "[[pipeline]]\n",
        "a=1\n",
        "a={",
        "a=[",
        "'''",
        "\\u0000",
        "${A}",
        "${A:-",
        "redis:",
        "redis://a:b@c:",
        "a://b:c@",
        "#\n",
        "é",
        "x = \"redis://:p@h\"\n",
        "[plugins.a",
        "\"\\",
    ] {
        let mut text = filled(piece);
        targets::config(&text);
        text.splice(0..0, b"x = \"".iter().copied());
        targets::config(&text);
    }
}

#[test]
fn many_pipelines_and_plugins() {
    for shape in [
        "[[pipeline]]\nname = \"pN\"\nstream = \"s\"\ngroup = \"gN\"\nplugin = \"q\"\n",
        "[[pipeline]]\nname = \"p\"\nstream = \"s\"\ngroup = \"g\"\nplugin = \"qN\"\n",
        "[plugins.qN]\npath = \"Cargo.toml\"\n",
        "[streams.sN]\npartitions = 2\n",
        "[streams.sN]\npartitionsN = 2\n",
    ] {
        let mut text = String::new();
        let mut number = 0;
        while text.len() + shape.len() + 32 < 1 << 20 {
            number += 1;
            text.push_str(&shape.replace('N', &number.to_string()));
        }
        targets::config(text.as_bytes());
    }
}

#[test]
fn lines_and_entries_of_a_mebibyte() {
    for piece in ["[", "{\"a\":", "\"", "\\u0000", "{\"payload\":", "1", "1e", "\"a\":{},", "é"] {
        let text = filled(piece);
        targets::line(&text);
        for (before, after) in
            [("{\"payload\":{\"a\":", "}}"), ("{\"payload\":{\"a\":[", "]}}"), ("{\"payload\":{\"", "\":1}}")]
        {
            targets::line(&[before.as_bytes(), &text, after.as_bytes()].concat());
        }
        let event = "id=e\nsequence=1\ntimestamp=t\nmetadata={}\npayload={\"a\":";
        targets::entry(&[event.as_bytes(), &text, b"}"].concat());
        targets::entry(&[b"1:".as_slice(), &text].concat());
    }
    targets::entry(&filled("a=b\n"));
    targets::entry(&filled("1:a1:b"));
    targets::entry(&filled("reason=r\n"));
}
