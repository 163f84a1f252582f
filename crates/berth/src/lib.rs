//! The parts of the `berth` command, as a library so that tests can call them.
//!
//! This crate is the composition root: it reads files and arguments, asks the pure crates, and prints. No
//! decision is made here.

pub mod embedded;
pub mod input;
