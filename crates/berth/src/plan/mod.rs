//! `berth plan`: reads a cluster, lets [`berth_plan`] search on simulations of it, and prints the answer.

mod add;
mod args;
mod blame;
mod candidates;
mod fit;
mod items;
mod read;
mod shrink;
mod survive;
mod watch;
mod words;

pub use args::{PlanArgs, PlanOutput};
pub use read::PlanError;

use crate::run::{EXIT_DONE, EXIT_REFUSED, write_json};
use crate::simulate;
use crate::terminal::{self, Color, ProgressLine};
use berth_cluster::simulation::Difference;
use berth_plan::{AddAnswer, Subject, Survive};
use read::Given;
use std::io::{self, Write};

/// Answers the question of the arguments.
///
/// # Errors
/// If the input, the configuration or the arguments are invalid.
pub fn plan(args: &PlanArgs, color: Color) -> anyhow::Result<u8> {
    let given = read::read(args, &mut io::stdin().lock(), &mut ProgressLine::new())?;
    for line in given.told() {
        writeln!(color.stderr(), "{line}")?;
    }
    let is_good = match (&given.subject, args.survive) {
        (Some(subject), _) => plan_fit(args, &given, subject, color)?,
        (None, Some(what)) => plan_survival(args, &given, what, color)?,
        (None, None) if args.shrink => plan_shrinking(args, &given, color)?,
        (None, None) => plan_addition(args, &given, color)?,
    };
    Ok(if is_good { EXIT_DONE } else { EXIT_REFUSED })
}

fn plan_fit(args: &PlanArgs, given: &Given, subject: &Subject, color: Color) -> anyhow::Result<bool> {
    args.output.must_be_plain()?;
    let answer = fit::answer(args, given, subject)?;
    match args.output {
        PlanOutput::Json => write_json(&answer)?,
        _ => write!(color.stdout(), "{}", fit::render(&answer, terminal::width()))?,
    }
    Ok(answer.fits > 0)
}

fn plan_addition(args: &PlanArgs, given: &Given, color: Color) -> anyhow::Result<bool> {
    let (found, simulations) = add::search(args, given)?;
    match args.output {
        PlanOutput::Table => {
            let answer = add::answer(&found, simulations, given);
            write!(color.stdout(), "{}", add::render(&answer, terminal::width()))?;
        }
        PlanOutput::Json => write_json(&add::answer(&found, simulations, given))?,
        PlanOutput::Yaml => {
            let items = found.addition.as_ref().map_or(&[][..], |addition| &addition.items);
            io::stdout().write_all(items::manifests(items)?.as_bytes())?;
        }
        PlanOutput::Html => io::stdout().write_all(page(args, given, &found).as_bytes())?,
    }
    Ok(found.left.is_empty() && (found.addition.is_some() || found.before.standing.unrun == 0))
}

fn plan_survival(args: &PlanArgs, given: &Given, what: Survive, color: Color) -> anyhow::Result<bool> {
    if args.output == PlanOutput::Html {
        args.output.must_be_plain()?;
    }
    let (found, simulations) = survive::search(args, given, what)?;
    let answer = survive::answer(&found, simulations, given);
    match args.output {
        PlanOutput::Json => write_json(&answer)?,
        PlanOutput::Yaml => {
            let items = found.addition.as_ref().map_or(&[][..], |addition| &addition.items);
            io::stdout().write_all(items::manifests(items)?.as_bytes())?;
        }
        _ => write!(color.stdout(), "{}", survive::render(&answer, what, terminal::width()))?,
    }
    Ok(found.is_safe())
}

fn plan_shrinking(args: &PlanArgs, given: &Given, color: Color) -> anyhow::Result<bool> {
    args.output.must_be_plain()?;
    let (found, simulations) = shrink::search(args, given)?;
    let answer = shrink::answer(&found, simulations);
    match args.output {
        PlanOutput::Json => write_json(&answer)?,
        _ => write!(color.stdout(), "{}", shrink::render(&answer, terminal::width()))?,
    }
    Ok(!found.removed.is_empty())
}

/// The report of a simulation of the cluster with the addition, including what changes.
fn page(args: &PlanArgs, given: &Given, found: &AddAnswer) -> String {
    let after = found
        .addition
        .as_ref()
        .map_or(&found.before, |addition| &addition.after);
    let mut outcome = simulate::examined(&after.simulation, given.gaps());
    outcome.changes = Some(Difference::between(&found.before.simulation.outcome(), &outcome));
    let subject = simulate::Subject::of(&args.filename, &args.cluster, &given.summary);
    simulate::render_html(&outcome, &subject)
}
