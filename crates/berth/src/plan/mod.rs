//! `berth plan`: reads a cluster, has [`berth_plan`] search on simulations of it, and prints the answer.

mod args;
mod blame;
mod fit;
mod read;
mod watch;
mod words;

pub use args::{PlanArgs, PlanOutput};
pub use read::PlanError;

use crate::run::{EXIT_DONE, EXIT_REFUSED, write_json};
use crate::terminal::{self, Color, ProgressLine};
use std::io::{self, Write};

/// Answers the question of the arguments.
///
/// # Errors
/// If the input, the configuration or the arguments are broken.
pub fn plan(args: &PlanArgs, color: Color) -> anyhow::Result<u8> {
    let given = read::read(args, &mut io::stdin().lock(), &mut ProgressLine::new())?;
    for line in given.told() {
        writeln!(color.stderr(), "{line}")?;
    }
    let answer = fit::answer(args, &given)?;
    match args.output {
        PlanOutput::Table => write!(color.stdout(), "{}", fit::render(&answer, terminal::width()))?,
        PlanOutput::Json => write_json(&answer)?,
    }
    Ok(if answer.fits == 0 { EXIT_REFUSED } else { EXIT_DONE })
}
