//! The chaos run: three engines and an appender on one store, a fault after another, and the checker
//! at the end of each round.

mod appender;
mod clock;
mod drive;
mod engines;
mod gather;
mod ground;
mod log_line;
mod observer;
mod plan;
mod recorder;
mod redis_faults;
mod sqlite_faults;

pub(crate) use drive::{Settings, run};
pub(crate) use plan::StoreKind;
