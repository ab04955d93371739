//! The program's edge.
fn main() {}
