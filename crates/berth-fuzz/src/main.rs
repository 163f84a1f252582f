//! Runs every target for a while, each in a process with a limit on memory.
//!
//! Exit status 0 if nothing was found, 1 if something was: the inputs are saved, and the command that reads them again is
//! printed.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use berth_fuzz::supervise::{Limits, child, find, save, supervise};
use berth_fuzz::{Target, targets};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Feeds every reader of outside bytes with mutated inputs
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Part>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Args)]
struct Run {
    /// Targets to run; all if omitted
    #[arg(long = "target", value_parser = target)]
    targets: Vec<Target>,
    /// Seconds for each target
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Maximum number of inputs for each target
    #[arg(long, default_value_t = u64::MAX)]
    inputs: u64,
    /// Random seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Memory of a target, in bytes
    #[arg(long, default_value_t = Limits::default().memory_bytes)]
    memory_bytes: u64,
    /// Directory for inputs that a target did not stand
    #[arg(long, default_value = "target/fuzz")]
    findings: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Reads one input, for example a saved one
    Replay {
        #[arg(value_parser = target)]
        target: Target,
        file: PathBuf,
    },
    /// Runs one target in this process
    #[command(hide = true)]
    Child {
        #[arg(value_parser = target)]
        target: Target,
        #[command(flatten)]
        run: Run,
        #[arg(long)]
        current: PathBuf,
    },
}

fn target(name: &str) -> Result<Target, String> {
    let names = || {
        targets::ALL
            .iter()
            .map(|target| target.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    find(name).ok_or_else(|| format!("no such target; there are {}", names()))
}

impl Run {
    fn limits(&self) -> Limits {
        Limits {
            inputs: self.inputs,
            time: Duration::from_secs_f64(self.seconds.clamp(0.0, 1e6)),
            memory_bytes: self.memory_bytes,
            ..Limits::default()
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        None => all(&arguments.run),
        Some(Part::Replay { target, file }) => std::fs::read(file).map(|input| {
            println!("{:?}", (target.read)(&input));
            true
        }),
        Some(Part::Child { target, run, current }) => child(*target, run.seed, &run.limits(), current).map(|line| {
            println!("{line}");
            true
        }),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the targets one after the other. True if nothing was found.
fn all(run: &Run) -> std::io::Result<bool> {
    let program = std::env::current_exe()?;
    let chosen = if run.targets.is_empty() {
        targets::ALL
    } else {
        &run.targets
    };
    let (mut inputs, mut findings) = (0, 0);
    println!(
        "{:<16} {:>10} {:>10} {:>8} {:>9}",
        "TARGET", "INPUTS", "PER SECOND", "ANSWERS", "FINDINGS"
    );
    for target in chosen {
        let started = Instant::now();
        let report = supervise(&program, *target, run.seed, &run.limits())?;
        let rate = report.inputs as f64 / started.elapsed().as_secs_f64();
        let found = report.findings.len();
        println!(
            "{:<16} {:>10} {rate:>10.0} {:>8} {found:>9}",
            target.name, report.inputs, report.shapes
        );
        for finding in &report.findings {
            let path = save(&run.findings, target.name, finding)?;
            println!(
                "  {}\n  read it again: berth-fuzz replay {} {}",
                finding.trouble,
                target.name,
                path.display()
            );
        }
        inputs += report.inputs;
        findings += found;
    }
    println!("{inputs} inputs, {findings} findings, seed {}", run.seed);
    Ok(findings == 0)
}
