//! `berth plan`: what it answers is what simulations of the answer do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clusters;
mod examples;
mod fit;

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs `berth` in the root of the repository.
fn berth(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

/// What a command prints as JSON.
fn json_of(arguments: &[&str]) -> Value {
    let output = berth(arguments);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Writes objects as a List.
fn write(directory: &TempDir, name: &str, objects: &[Value]) -> String {
    let path = directory.path().join(name);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&path, list.to_string()).unwrap();
    path.display().to_string()
}
