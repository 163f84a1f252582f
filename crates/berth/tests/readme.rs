//! Keeps the output in README.md up to date: every `$ berth …` in it is run, and its output must follow. The session
//! with kubectl is played by `e2e/readme/run`.
//!
//! `BERTH_UPDATE_README=1 cargo test -p berth --test readme` writes the new output into README.md.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The output of a command, as on a terminal without colours that is 100 columns wide.
fn output_of(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(command.split_whitespace())
        .current_dir(root())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
    text.trim_end().to_owned()
}

/// README.md with the current output of its commands, and the commands.
fn refreshed(readme: &str) -> (String, Vec<String>) {
    let mut out = Vec::new();
    let mut commands = Vec::new();
    let mut lines = readme.lines();
    let mut in_session = false;
    while let Some(line) = lines.next() {
        out.push(line.to_owned());
        in_session |= line.starts_with("<!-- session: ");
        if line != "```console" || std::mem::take(&mut in_session) {
            continue;
        }
        for line in lines.by_ref() {
            if let Some(command) = line.strip_prefix("$ berth ") {
                out.push(line.to_owned());
                out.extend(output_of(command).lines().map(str::to_owned));
                commands.push(command.to_owned());
            } else if line == "```" {
                out.push(line.to_owned());
                break;
            }
        }
    }
    (out.join("\n") + "\n", commands)
}

#[test]
fn what_the_readme_prints_is_what_berth_prints() {
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (now, commands) = refreshed(&readme);
    assert!(commands.len() >= 2, "README.md shows berth at work");
    if std::env::var_os("BERTH_UPDATE_README").is_some() {
        std::fs::write(&path, &now).unwrap();
        return;
    }
    if let Some((old, new)) = readme.lines().zip(now.lines()).find(|(old, new)| old != new) {
        panic!(
            "README.md says\n  {old}\nbut berth prints\n  {new}\nrun BERTH_UPDATE_README=1 cargo test -p berth --test readme"
        );
    }
    assert_eq!(readme, now);
}

#[test]
fn the_readme_has_a_session_to_play() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, session) = readme
        .split_once("<!-- session: berth up ")
        .expect("the mark of the session");
    let (_, session) = session.split_once("```console\n").unwrap();
    let (session, _) = session.split_once("\n```").unwrap();
    assert!(
        session.lines().filter(|line| line.starts_with("$ kubectl ")).count() >= 3,
        "{session}"
    );
}

/// The first command of the README specifies no binary.
#[test]
fn cargo_run_means_berth() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let members = metadata["workspace_default_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages
        .filter(|package| members.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().unwrap());
    let binaries: Vec<_> = targets
        .filter(|target| target["kind"][0] == "bin")
        .map(|target| target["name"].as_str().unwrap())
        .collect();
    assert_eq!(binaries, ["berth"]);
}
