//! What several test binaries share.

pub(crate) mod redis;
