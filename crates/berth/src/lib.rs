//! The parts of the `berth` command, as a library so that tests can call them.
//!
//! This crate reads files and arguments, calls the pure crates, and prints. It makes no decisions.

pub mod bench;
pub mod cli;
pub mod cluster;
pub mod component;
pub mod config;
pub mod csi_driver;
mod duration;
pub mod explain;
pub mod flags;
pub mod given;
pub mod help;
pub mod input;
pub mod man;
pub mod overlay;
mod page;
pub mod plan;
pub mod plugin;
pub mod provisioner;
pub mod run;
pub mod simulate;
pub mod snapshot;
pub mod terminal;
pub mod up;
pub mod view;
