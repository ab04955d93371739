//! Bindings that are committed belong to the contract that is in `wit/`.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::kit::file;

/// Digest by file, as `sha256sum` writes it.
fn noted(language: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file(&format!("plugins/sdk/{language}/WIT.sha256"))).unwrap();
    let pair = |line: &str| {
        line.split_once("  ").map(|(digest, file)| (file.to_owned(), digest.to_owned())).unwrap()
    };
    text.lines().map(pair).collect()
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            let digest = Sha256::digest(std::fs::read(&path).unwrap());
            let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), digest);
        }
    }
}

#[test]
fn c_and_go_are_bound_to_the_contract_as_it_is() {
    let mut found = BTreeMap::new();
    collect(&file("wit"), &file("wit"), &mut found);
    for language in ["c", "go"] {
        assert_eq!(noted(language), found, "{language}: scripts/generate-bindings makes them anew");
    }
}

/// A new project in Rust takes nothing but what the repository's guests have fetched.
#[test]
fn the_crates_of_a_new_project_are_those_of_the_guests() {
    let packages = |path: &str| {
        let text = std::fs::read_to_string(file(path)).unwrap();
        let lock: toml::Value = toml::from_str(&text.replace("{{name}}", "template")).unwrap();
        let text = |package: &toml::Value, key: &str| package.get(key).map(ToString::to_string);
        let packages = lock["package"].as_array().unwrap().clone();
        packages
            .iter()
            .map(|p| (text(p, "name"), text(p, "version"), text(p, "checksum")))
            .collect::<Vec<_>>()
    };
    let guests = packages("plugins/rust/Cargo.lock");
    let template = packages("plugins/template/rust/Cargo.lock.in");
    assert!(template.len() > 5);
    for package in template.iter().filter(|(_, _, checksum)| checksum.is_some()) {
        assert!(guests.contains(package), "{package:?}");
    }
}
