//! What several test binaries share.

pub mod program;
pub(crate) mod redis;
