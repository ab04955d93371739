//! What the system says of a process.

use rustix::time::{ClockId, clock_gettime};

/// The steps in which Linux tells programs of time on the processor, a second.
const TICKS: f64 = 100.0;

/// A field of `/proc/PID/status`, without its unit.
fn status(pid: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Its resident memory, in KiB.
pub(crate) fn resident_kib(pid: u32) -> f64 {
    status(pid, "VmRSS")
}

/// Its threads.
pub(crate) fn threads(pid: u32) -> f64 {
    status(pid, "Threads")
}

/// Its time on the processor, all threads together, in seconds; in steps of 10 ms.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The program's name, in parentheses, may have blanks. User and system time are fields 14 and 15.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    let ticks = |field: usize| fields[field - 3].parse::<f64>().unwrap();
    (ticks(14) + ticks(15)) / TICKS
}

/// The time on the processor of this process, all threads together, in microseconds.
pub(crate) fn own_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
