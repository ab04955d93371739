//! What several test binaries share.

pub(crate) mod program;
pub(crate) mod redis;
