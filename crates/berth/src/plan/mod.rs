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
pub use candidates::SCHEMA;
pub use candidates::read_text as read_candidates;
pub use read::PlanError;

use crate::run::{EXIT_DONE, EXIT_REFUSED, write_json};
use crate::simulate;
use crate::terminal::{self, Color, ProgressLine};
use berth_cluster::simulation::Difference;
use berth_plan::{Played, Subject, Survive};
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
    args.output.must_not_be_manifests()?;
    let (found, simulations) = fit::search(args, given, subject)?;
    let answer = fit::answer(&found, simulations, given, subject);
    match args.output {
        PlanOutput::Json => write_json(&answer)?,
        PlanOutput::Html => {
            let after = found.with_all.as_ref().or(found.with_one_more.as_ref());
            write_page(args, given, &found.before, after)?;
        }
        PlanOutput::Table | PlanOutput::Yaml => {
            write!(color.stdout(), "{}", fit::render(&answer, terminal::width()))?;
        }
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
        PlanOutput::Html => {
            let after = found.addition.as_ref().map(|addition| &addition.after);
            write_page(args, given, &found.before, after)?;
        }
    }
    let all_run = found.before.is_at_rest && found.before.standing.unrun == 0;
    Ok(found.left.is_empty() && (found.addition.is_some() || all_run))
}

fn plan_survival(args: &PlanArgs, given: &Given, what: Survive, color: Color) -> anyhow::Result<bool> {
    let (found, simulations) = survive::search(args, given, what)?;
    let answer = survive::answer(&found, simulations, given);
    match args.output {
        PlanOutput::Json => write_json(&answer)?,
        PlanOutput::Yaml => {
            let items = found.addition.as_ref().map_or(&[][..], |addition| &addition.items);
            io::stdout().write_all(items::manifests(items)?.as_bytes())?;
        }
        // The worst loss, and what the addition changes about it.
        PlanOutput::Html => {
            let worst = found.bad.first().and_then(|loss| loss.played.as_ref());
            match (worst, &found.with_addition) {
                (Some(worst), Some(helped)) => write_page(args, given, worst, Some(helped))?,
                (worst, _) => write_page(args, given, &found.before, worst)?,
            }
        }
        PlanOutput::Table => {
            write!(color.stdout(), "{}", survive::render(&answer, what, terminal::width()))?;
        }
    }
    Ok(found.is_safe())
}

fn plan_shrinking(args: &PlanArgs, given: &Given, color: Color) -> anyhow::Result<bool> {
    args.output.must_not_be_manifests()?;
    let (found, simulations) = shrink::search(args, given)?;
    let answer = shrink::answer(&found, simulations);
    match args.output {
        PlanOutput::Json => write_json(&answer)?,
        PlanOutput::Html => write_page(args, given, &found.before, found.after.as_ref())?,
        PlanOutput::Table | PlanOutput::Yaml => {
            write!(color.stdout(), "{}", shrink::render(&answer, terminal::width()))?;
        }
    }
    Ok(!found.removed.is_empty())
}

/// What changes from one cluster to another.
fn changes(before: &Played, after: &Played) -> Difference {
    Difference::between(&before.simulation.outcome(), &after.simulation.outcome())
}

/// Writes the report of a simulation, including what changes from the current cluster to it.
fn write_page(args: &PlanArgs, given: &Given, before: &Played, after: Option<&Played>) -> io::Result<()> {
    let after = after.unwrap_or(before);
    let mut outcome = simulate::examined(&after.simulation, given.gaps());
    outcome.changes = Some(Difference::between(&before.simulation.outcome(), &outcome));
    let subject = simulate::Subject::of(&args.filename, &args.cluster, &given.summary);
    io::stdout().write_all(simulate::render_html(&outcome, &subject, None).as_bytes())
}
