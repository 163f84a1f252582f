//! The `berth` command.

fn main() {}
