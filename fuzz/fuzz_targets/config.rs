#![no_main]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a target fails by panicking")]

#[path = "../../tests/fuzz/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|input: &[u8]| targets::config(input));
