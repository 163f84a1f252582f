//! The suite of Berth's own API server, on a real one: both must give the same responses.

use super::report::Remark;
use anyhow::{Context as _, bail};
use berth_e2e::cluster::{Cluster, Controllers, Options};
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

/// Timeout, including building it if necessary.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// Number of output lines shown when it fails.
const SHOWN_LINES: usize = 60;

/// Runs the suite on its own cluster: it leaves objects behind, and requires only what the embedded server has.
pub(crate) async fn suite() -> anyhow::Result<Remark> {
    let options = Options {
        without_admission: vec!["ServiceAccount".to_owned()],
        ..Options::default()
    };
    let cluster = Cluster::start(options).await?;
    let manager = cluster.start_controller_manager(Controllers::Garbage, &[]).await?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--package", "berth-apiserver", "--test", "kube", "--locked"])
        .env("RUST_BACKTRACE", "0")
        .env("BERTH_SUITE_KUBECONFIG", cluster.admin_kubeconfig())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run cargo")?;
    drop(manager);
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    match result {
        Some(result) if output.status.success() => Ok(result.to_owned()),
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = text.lines().chain(errors.lines()).collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            bail!("{}\n{}", result.unwrap_or("it did not run"), shown.join("\n"));
        }
    }
}
