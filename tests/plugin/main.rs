//! The plugin host with real components: calls, faults, loading.

mod calls;
mod faults;
mod load;
mod support;
