//! What several test binaries share.

pub mod program;
pub mod redis;
