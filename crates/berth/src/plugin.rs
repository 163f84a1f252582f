//! The command as a kubectl plugin.
//!
//! kubectl runs a program named `kubectl-berth` for `kubectl berth`. Under that name everything works the same; only
//! the help shows what the user typed.

use crate::cli::Cli;
use clap::{Command, CommandFactory};
use std::ffi::OsStr;
use std::path::Path;

/// The command line of a program that was started under this name.
#[must_use]
pub fn command(program: Option<&OsStr>) -> Command {
    let stem = program.and_then(|program| Path::new(program).file_stem());
    if stem.is_some_and(|stem| stem == "kubectl-berth") {
        renamed(Cli::command().bin_name("kubectl berth"))
    } else {
        Cli::command()
    }
}

/// Uses `kubectl berth` in the examples too.
fn renamed(command: Command) -> Command {
    let examples = command.get_after_help().map(|text| {
        let text = text.to_string().replace("  berth ", "  kubectl berth ");
        text.replace("| berth ", "| kubectl berth ")
            .replace("<(berth ", "<(kubectl berth ")
    });
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    command.mut_subcommands(renamed)
}

#[cfg(test)]
mod tests {
    use super::command;
    use std::ffi::OsStr;

    fn help(program: &str) -> String {
        let mut command = command(Some(OsStr::new(program)));
        let parsed = command.try_get_matches_from_mut([program, "explain", "--help"]);
        parsed.map(|_| String::new()).unwrap_or_else(|help| help.to_string())
    }

    #[test]
    fn help_calls_it_what_the_user_typed() {
        let plugin = help("/usr/local/bin/kubectl-berth");
        assert!(plugin.contains("Usage: kubectl berth explain"), "{plugin}");
        assert!(plugin.contains("  kubectl berth explain pod/db-0 -n shop"), "{plugin}");
        assert!(!plugin.contains("\n  berth "), "{plugin}");
        let own = help("berth");
        assert!(own.contains("Usage: berth explain"), "{own}");
        assert!(!own.contains("kubectl berth"), "{own}");
    }
}
