//! Handlers in every language: the same job, the same answers. `scripts/build-plugins` builds what is
//! tested here with `wasmill plugin build`, from source.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
#[macro_use]
mod support;

/// Makes a test of its name for each language.
macro_rules! in_every_language {
    ($($name:ident),* $(,)?) => {
        mod rust { $(#[test] fn $name() { super::$name("rust") })* }
        mod python { $(#[test] fn $name() { super::$name("python") })* }
        mod js { $(#[test] fn $name() { super::$name("js") })* }
        mod go { $(#[test] fn $name() { super::$name("go") })* }
        mod c { $(#[test] fn $name() { super::$name("c") })* }
    };
}

mod bindings;
mod kit;
mod orders;
mod probe;
mod projects;
mod watch;
