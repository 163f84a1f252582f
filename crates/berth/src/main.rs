//! The `berth` command.

use berth::cli::Cli;
use berth::flags::go;
use berth::plugin;
use clap::FromArgMatches;
use std::process::ExitCode;

/// A static binary would use the allocator of musl, which makes decisions a third slower.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let program = std::env::args_os().next();
    let command = plugin::command(program.as_deref());
    let arguments = go::arguments(&command, std::env::args_os());
    let matches = command.get_matches_from(arguments);
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => berth::run::run(&cli),
        Err(error) => error.exit(),
    }
}
