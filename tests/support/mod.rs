//! What several test binaries share.

pub mod program;
pub(crate) mod redis;

/// Makes a test of its name for each store.
#[allow(unused_macros, reason = "each test binary uses its own part of this")]
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[test] fn $name() { super::$name(super::Store::Sqlite) })*
        }
        mod on_redis {
            $(#[test] fn $name() { super::$name(super::Store::redis()) })*
        }
    };
}
