//! `berth-e2e`: starts a real control plane, and runs Berth's end-to-end tests on it.
//!
//! Exit status: 0 success, 1 a test failed, 2 the tests could not be run.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that reports to its user"
)]

mod suite;

use anyhow::Context as _;
use berth_e2e::cluster::{Cluster, Controllers, Options};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Berth on a real Kubernetes control plane. Build its binaries first: e2e/kube/build
#[derive(Debug, Parser)]
#[command(name = "berth-e2e")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts etcd and kube-apiserver, prints their addresses, and runs until Ctrl-C.
    Up(UpArgs),
    /// Runs the tests. Build berth first: cargo build -p berth
    Suite(suite::SuiteArgs),
}

#[derive(Debug, clap::Args)]
struct UpArgs {
    /// Which controllers of kube-controller-manager run.
    #[arg(long, value_enum, default_value = "without-volumes")]
    controllers: ControllersName,
    /// Run kube-scheduler too.
    #[arg(long)]
    kube_scheduler: bool,
    /// Log every request to audit.log next to the kubeconfig.
    #[arg(long)]
    audit: bool,
    /// Copy the kubeconfig here.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ControllersName {
    /// kube-controller-manager is not started.
    None,
    /// All that the tests need.
    WithVolumes,
    /// All that the tests need except the volume binder.
    WithoutVolumes,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let work = async {
        match cli.command {
            Command::Up(args) => up(args).await.map(|()| ExitCode::SUCCESS),
            Command::Suite(args) => suite::suite(args).await.map(|passed| ExitCode::from(u8::from(!passed))),
        }
    };
    // Dropping the work stops everything that was started.
    let result = tokio::select! {
        result = work => result,
        () = interrupted() => Ok(ExitCode::from(130)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

/// Waits for Ctrl-C, or another termination signal.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

async fn up(args: UpArgs) -> anyhow::Result<()> {
    let options = Options {
        audit: args.audit,
        ..Options::default()
    };
    let cluster = Cluster::start(options).await?;
    let controllers = match args.controllers {
        ControllersName::None => None,
        ControllersName::WithVolumes => Some(Controllers::WithVolumes),
        ControllersName::WithoutVolumes => Some(Controllers::WithoutVolumes),
    };
    let mut processes = Vec::new();
    if let Some(controllers) = controllers {
        processes.push(cluster.start_controller_manager(controllers, &[]).await?);
    }
    if args.kube_scheduler {
        processes.push(cluster.start_scheduler(&[]).await?);
    }
    let mut kubeconfig = cluster.admin_kubeconfig();
    if let Some(copy) = args.kubeconfig {
        std::fs::copy(&kubeconfig, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        kubeconfig = copy;
    }
    println!("KUBECONFIG={}", kubeconfig.display());
    println!("logs: {}", cluster.directory().join("logs").display());
    println!("stop with Ctrl-C");
    interrupted().await;
    Ok(())
}
