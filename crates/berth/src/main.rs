//! The `berth` command.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    berth::run::run(&berth::cli::Cli::parse())
}
