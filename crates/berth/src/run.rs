//! Runs a command: arguments in, output and exit status out.

use crate::bench;
use crate::cli::{Cli, Command, ExplainArgs, FailOn, Output, Schema, SimulateArgs, SimulateOutput};
use crate::cluster::ESSENTIAL;
use crate::component;
use crate::csi_driver;
use crate::explain;
use crate::input::Progress as _;
use crate::man;
use crate::plan;
use crate::provisioner;
use crate::simulate;
use crate::snapshot;
use crate::terminal::{self, Color, ProgressLine, one_line};
use crate::up;
use crate::view;
use anyhow::Context;
use berth_cluster::simulation::{Difference, Outcome};
use clap::CommandFactory;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;

/// Success. For `explain`: the pod fits somewhere. For `simulate`: every pod has a node. For `plan`: there is one.
pub const EXIT_DONE: u8 = 0;
/// For `explain`: the pod currently fits nowhere. For `simulate`: some pod is pending. For `plan`: nothing fits, or some pod
/// would not run. For `snapshot`: nodes or pods are missing.
pub const EXIT_REFUSED: u8 = 1;
/// Invalid input or usage.
pub const EXIT_BAD_INPUT: u8 = 2;
/// For `explain`: the pod fits, but waits for a reason other than room.
pub const EXIT_KEPT: u8 = 3;

/// Runs a command and prints errors to standard error.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    match dispatch(cli) {
        Ok(code) => code.into(),
        Err(error) if is_closed_pipe(&error) => EXIT_DONE.into(),
        Err(error) => {
            let style = anstyle::AnsiColor::Red.on_default().bold();
            // If even this cannot be written, the exit status must suffice.
            let _ = writeln!(
                cli.color.stderr(),
                "{style}error:{style:#} {}",
                one_line(&sentence(&error))
            );
            EXIT_BAD_INPUT.into()
        }
    }
}

/// An error with its causes, without duplicates: many errors include their cause in their own message.
fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for link in error.chain() {
        let words = link.to_string();
        if sentence.is_empty() {
            sentence = words;
        } else if !sentence.contains(&words) {
            sentence.push_str(": ");
            sentence.push_str(&words);
        }
    }
    sentence
}

/// Whether the reader of the output has closed it, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn dispatch(cli: &Cli) -> anyhow::Result<u8> {
    match &cli.command {
        Command::Explain(args) => explain(args, cli.color),
        Command::Simulate(args) => simulate(args, cli.color),
        Command::Plan(args) => plan::plan(args, cli.color),
        Command::Snapshot(args) => {
            let missing = snapshot::snapshot(args)?;
            for line in missing.told() {
                writeln!(cli.color.stderr(), "{line}")?;
            }
            let is_whole = ESSENTIAL.iter().all(|plural| missing.why(plural).is_none());
            Ok(if is_whole { EXIT_DONE } else { EXIT_REFUSED })
        }
        Command::Translate(args) => snapshot::translate(args, &mut cli.color.stdout()).map(|()| EXIT_DONE),
        Command::Up(args) => {
            component::log(args.verbose.then_some(tracing::Level::INFO), cli.color);
            up::up(args, cli.color).map(|()| EXIT_DONE)
        }
        Command::View(args) => {
            // Lines of a log would be written across the screen.
            if !args.terminal || !io::stderr().is_terminal() {
                component::log(args.verbose.then_some(tracing::Level::INFO), cli.color);
            }
            view::view(args, cli.color).map(|()| EXIT_DONE)
        }
        Command::Scheduler(args) => component::scheduler(args, cli.color).map(|()| EXIT_DONE),
        Command::Controller(args) => component::controller(args, cli.color).map(|()| EXIT_DONE),
        Command::Provisioner(args) => provisioner::provisioner(args, cli.color).map(|()| EXIT_DONE),
        Command::CsiDriver(args) => csi_driver::csi_driver(args, cli.color).map(|()| EXIT_DONE),
        Command::Bench { what } => bench::bench(what, cli.color).map(|()| EXIT_DONE),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "berth", &mut script);
            io::stdout().write_all(&script)?;
            Ok(EXIT_DONE)
        }
        Command::Man(args) => man::man(args, Cli::command(), &mut io::stdout()).map(|()| EXIT_DONE),
        Command::Schema { format } => {
            let schema = match format {
                Schema::Scenario => simulate::scenario::SCHEMA,
                Schema::Candidates => plan::SCHEMA,
            };
            io::stdout().write_all(schema.as_bytes())?;
            Ok(EXIT_DONE)
        }
        Command::Version => {
            writeln!(io::stdout(), "berth {}", env!("CARGO_PKG_VERSION"))?;
            Ok(EXIT_DONE)
        }
    }
}

fn explain(args: &ExplainArgs, color: Color) -> anyhow::Result<u8> {
    let (answer, remarks) = explain::answer_asked(args, &mut io::stdin().lock(), &mut ProgressLine::new())?;
    for remark in &remarks {
        writeln!(color.stderr(), "{remark}")?;
    }
    match args.output {
        Output::Table => write!(color.stdout(), "{}", answer.render(terminal::width()))?,
        Output::Json => write_json(&answer)?,
    }
    Ok(match (answer.is_refused(), answer.is_kept()) {
        (true, _) => EXIT_REFUSED,
        (false, true) => EXIT_KEPT,
        (false, false) => EXIT_DONE,
    })
}

fn simulate(args: &SimulateArgs, color: Color) -> anyhow::Result<u8> {
    let loaded = simulate::load(args, &mut io::stdin().lock(), &mut ProgressLine::new())?;
    let remark = loaded.summary.to_string();
    if !remark.is_empty() {
        writeln!(color.stderr(), "{remark}")?;
    }
    for line in loaded.summary.gaps.told() {
        writeln!(color.stderr(), "{line}")?;
    }
    let mut simulation = loaded.simulation;
    let mut progress = ProgressLine::new();
    let mut tell = |scheduled| {
        progress.step("placed", usize::try_from(scheduled).unwrap_or(usize::MAX), "pods");
    };
    let is_page = matches!(args.output, SimulateOutput::Html);
    let played = match &loaded.scenario {
        Some(scenario) if is_page => simulate::play_recorded(&mut simulation, scenario, &mut tell).map(Some),
        Some(scenario) => simulation.play(scenario, &mut tell, &mut |_| {}).map(|()| None),
        None => {
            simulation.run(&mut tell);
            Ok(None)
        }
    };
    progress.done();
    let recording = played?;
    let mut outcome = simulate::examined(&simulation, &loaded.summary.gaps);
    if let Some(mut before) = loaded.before {
        before.run(&mut |_| {});
        outcome.changes = Some(Difference::between(&before.outcome(), &outcome));
    }
    match args.output {
        SimulateOutput::Table => write!(color.stdout(), "{}", simulate::render(&outcome, terminal::width()))?,
        SimulateOutput::Json => write_json(&outcome)?,
        SimulateOutput::Html => {
            let subject = simulate::Subject::of(&args.filename, &args.cluster, &loaded.summary);
            io::stdout().write_all(simulate::render_html(&outcome, &subject, recording.as_ref()).as_bytes())?;
        }
    }
    Ok(if has_failed(&outcome, args.fail_on) {
        EXIT_REFUSED
    } else {
        EXIT_DONE
    })
}

fn has_failed(outcome: &Outcome, when: FailOn) -> bool {
    let fails_in_the_end = !outcome.not_running.is_empty();
    match when {
        FailOn::Pending => fails_in_the_end,
        FailOn::PendingAtAnyStep => fails_in_the_end || outcome.steps.iter().any(|step| !step.pods.pending.is_empty()),
        FailOn::Never => false,
    }
}

/// Writes a value as one line of JSON.
pub(crate) fn write_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(value).context("the answer cannot be written as JSON")?;
    writeln!(io::stdout(), "{}", terminal::clean_json(&text))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x: {0}")]
    struct Read(#[from] std::io::Error);

    #[test]
    fn a_cause_is_told_once() {
        let cause = || std::io::Error::other("no such file");
        assert_eq!(sentence(&Read(cause()).into()), "cannot read x: no such file");
        let context = anyhow::Error::from(cause()).context("cannot start");
        assert_eq!(sentence(&context), "cannot start: no such file");
    }
}
