//! `berth-compare`: compares Berth with kube-scheduler and kube-controller-manager, in one run on one machine.
//!
//! Exit status: 0 measured, 2 the measurement failed.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that reports to its user"
)]

mod load;
mod measure;
mod report;
mod side;
mod workload;

use anyhow::Context as _;
use berth_e2e::cluster::{berth_binary, kube_binaries};
use clap::Parser;
use measure::{Measured, Run};
use report::Setting;
use side::Side;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use workload::{WORKLOADS, Workload};

/// Compares Berth with kube-scheduler. Build the binaries first: bench/compare/run does.
#[derive(Debug, Parser)]
#[command(name = "berth-compare")]
struct Cli {
    /// Only these workloads.
    #[arg(value_parser = WORKLOADS.map(|workload| workload.name))]
    workloads: Vec<String>,
    /// Only one side, for profiling.
    #[arg(long, value_parser = ["kubernetes", "berth"])]
    only: Option<String>,
    /// Stop a side after so many seconds of a workload.
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Runs per workload, with the sides alternating in order; the median run is reported.
    ///
    /// A side that ran out of patience once is not measured again.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=15))]
    rounds: u8,
    /// Write comparison.md, comparison.svg and comparison.json into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // Dropping the work stops everything that was started.
    let result = tokio::select! {
        result = compare(&cli) => result,
        _ = tokio::signal::ctrl_c() => return ExitCode::from(130),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn compare(cli: &Cli) -> anyhow::Result<()> {
    let setting = Setting {
        machine: machine(),
        kubernetes: version(&kube_binaries()?.join("kube-apiserver"))?,
        berth: version(&berth_binary()?)?,
        patience_seconds: cli.patience,
        rounds: cli.rounds,
    };
    let wanted =
        |workload: &&Workload| cli.workloads.is_empty() || cli.workloads.iter().any(|name| name == workload.name);
    let sides = match cli.only.as_deref() {
        Some("kubernetes") => vec![Side::Kubernetes],
        Some(_) => vec![Side::Berth],
        None => vec![Side::Kubernetes, Side::Berth],
    };
    let mut all: Vec<Measured> = Vec::new();
    for workload in WORKLOADS.iter().filter(wanted) {
        measure_rounds(cli, workload, &sides, &mut all).await?;
    }
    let page = report::markdown(&all, &setting, "comparison.svg");
    match &cli.out {
        None => println!("\n{page}"),
        Some(directory) => {
            write(&directory.join("comparison.md"), &page)?;
            write(&directory.join("comparison.svg"), &report::picture(&all))?;
            write(&directory.join("comparison.json"), &serde_json::to_string_pretty(&all)?)?;
        }
    }
    Ok(())
}

/// Measures a workload as often as requested. Sides alternate in who comes first, so that neither always gets the machine
/// in the state the other left it.
async fn measure_rounds(cli: &Cli, workload: &Workload, sides: &[Side], all: &mut Vec<Measured>) -> anyhow::Result<()> {
    // A side whose pods arrive over time gets that time in addition.
    let arriving = workload.rate.map_or(0, |rate| workload.count / rate);
    let patience = Duration::from_secs(cli.patience + u64::try_from(arriving)?);
    let mut too_slow: Vec<Side> = Vec::new();
    for round in 1..=cli.rounds {
        let mut order: Vec<Side> = sides.to_vec();
        if round % 2 == 0 {
            order.reverse();
        }
        order.retain(|side| !too_slow.contains(side));
        for side in order {
            let run = Run {
                workload,
                side,
                round,
                patience,
            };
            let measured = run.measure().await?;
            println!("{}", serde_json::to_string(&measured)?);
            if measured.done < measured.count {
                too_slow.push(side);
            }
            all.push(measured);
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

fn version(binary: &Path) -> anyhow::Result<String> {
    let output = Command::new(binary).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().trim_start_matches("Kubernetes ").to_owned())
}

/// Processor, cores and memory, as reported by the kernel.
fn machine() -> String {
    let read = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
    };
    let model = read("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = read("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .map_or_else(String::new, |kib| format!(", {} GiB", (kib + (1 << 19)) >> 20));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {cores} cores{memory}, Linux {}", kernel.trim())
}
