//! Small clusters for rules that are easy to get wrong, each with the expected result in its first lines.
//!
//! A line that starts with `#> ` is one of these:
//!
//! - `explain POD fits NODE...`: exactly these nodes fit, or `nowhere`.
//! - `explain POD prefers NODE`: it has the highest score of all that fit.
//! - `explain POD says TEXT`: the report contains it.
//! - `simulate POD runs on NODE`, or `simulate POD runs` on any node.
//! - `simulate POD waits: TEXT`: it has no node, and the reason contains the text.
//! - `simulate POD stays on NODE: TEXT`: it has the node and does not run, and the reason contains the text.
//! - `simulate POD does not run`, whether it has a node or not.
//! - `simulate CLAIM has VOLUME`: they are bound.
//! - `simulate CLAIM says TEXT`: the last event about it contains the text.
//! - `with ARGUMENTS`: what follows is checked with these arguments.
//! - `simulate ends with STATUS`: its exit status.
//! - `simulate prints TEXT`: its table and what it says below contain it, wherever lines are broken.
//! - `error TEXT`: both commands refuse the file, and the message contains the text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(arguments)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn json(output: &Output) -> Result<Value, String> {
    serde_json::from_slice(&output.stdout).map_err(|_| said(output))
}

/// One cluster, with the output of the commands.
struct Corner {
    file: PathBuf,
    arguments: Vec<String>,
    simulated: Option<Result<Value, String>>,
}

impl Corner {
    fn file(&self) -> &str {
        self.file.to_str().unwrap()
    }

    fn run(&self, command: &[&str]) -> Output {
        let arguments = self.arguments.iter().map(String::as_str);
        let all: Vec<&str> = command.iter().copied().chain(arguments).collect();
        run(&all)
    }

    fn explained(&self, pod: &str) -> Result<Value, String> {
        json(&self.run(&["explain", "-o", "json", "-f", self.file(), "--pod", pod]))
    }

    fn simulated(&mut self) -> Result<Value, String> {
        if self.simulated.is_none() {
            self.simulated = Some(json(&self.run(&["simulate", "-o", "json", "-f", self.file()])));
        }
        self.simulated.clone().unwrap()
    }

    /// Returns what was found instead of the expected result.
    fn check(&mut self, wanted: &str) -> Result<(), String> {
        let (command, rest) = wanted.split_once(' ').expect("a command and more");
        if command == "error" {
            let file = self.file().to_owned();
            return ["explain", "simulate"].iter().try_for_each(|command| {
                let pod: &[&str] = if *command == "explain" { &["--pod", "p"] } else { &[] };
                let output = run(&[&[command, "-f", &file], pod].concat());
                let found = said(&output);
                let refused = !output.status.success() && found.contains(rest);
                if refused {
                    Ok(())
                } else {
                    Err(format!("{command}: {found}"))
                }
            });
        }
        if command == "with" {
            self.arguments = rest.split(' ').map(str::to_owned).collect();
            self.simulated = None;
            return Ok(());
        }
        if let Some(status) = wanted.strip_prefix("simulate ends with ") {
            let ended = self.run(&["simulate", "-f", self.file()]).status.code();
            let is_met = ended.map(|code| code.to_string()).as_deref() == Some(status);
            return if is_met {
                Ok(())
            } else {
                Err(format!("found {ended:?}"))
            };
        }
        if let Some(text) = wanted.strip_prefix("simulate prints ") {
            let printed = said(&self.run(&["simulate", "-f", self.file()]));
            let words: Vec<&str> = printed.split_whitespace().collect();
            let is_met = words.join(" ").contains(text);
            return if is_met { Ok(()) } else { Err(printed) };
        }
        let (object, rest) = rest.split_once(' ').expect("an object and what is said of it");
        match command {
            "explain" => explained(&self.explained(object)?, rest),
            "simulate" => simulated(&self.simulated()?, object, rest),
            _ => panic!("{wanted:?} is no sentence that is understood"),
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn explained(report: &Value, wanted: &str) -> Result<(), String> {
    let nodes = report["nodes"].as_array().unwrap();
    let fitting = nodes.iter().filter(|node| node["fits"] == true);
    let (verb, rest) = wanted.split_once(' ').expect("a verb and more");
    let (found, is_met) = match verb {
        "fits" => {
            let found: Vec<&str> = fitting.map(|node| text(node, "name")).collect();
            let nodes: Vec<&str> = rest.split(' ').filter(|node| *node != "nowhere").collect();
            (format!("{found:?}"), found == nodes)
        }
        "prefers" => {
            let total = |node: &Value| node["total"].as_i64().unwrap_or(0);
            let mut totals: Vec<(i64, &str)> = fitting.map(|node| (total(node), text(node, "name"))).collect();
            totals.sort_unstable();
            let is_met = match totals.as_slice() {
                [.., second, best] => best.1 == rest && best.0 > second.0,
                [only] => only.1 == rest,
                [] => false,
            };
            (format!("{totals:?}"), is_met)
        }
        "says" => (report.to_string(), report.to_string().contains(rest)),
        _ => panic!("{wanted:?} is no sentence that is understood"),
    };
    if is_met {
        return Ok(());
    }
    let refusals = nodes.iter().map(|node| (text(node, "name"), &node["refused"]));
    Err(format!("found {found}; refusals {:?}", refusals.collect::<Vec<_>>()))
}

fn simulated(outcome: &Value, object: &str, wanted: &str) -> Result<(), String> {
    let find = |list: &str, field: &str| {
        let mut objects = outcome[list].as_array().into_iter().flatten();
        objects.find(|found| text(found, field) == object).cloned()
    };
    let pod = find("pods", "pod").unwrap_or_default();
    let claim = find("claims", "claim").unwrap_or_default();
    let is_met = if let Some(node) = wanted.strip_prefix("runs on ") {
        text(&pod, "node") == node && text(&pod, "phase") == "Running"
    } else if wanted == "runs" {
        !text(&pod, "node").is_empty() && text(&pod, "phase") == "Running"
    } else if let Some(reason) = wanted.strip_prefix("waits: ") {
        text(&pod, "node").is_empty() && text(&pod, "message").contains(reason)
    } else if let Some((node, reason)) = wanted.strip_prefix("stays on ").and_then(|rest| rest.split_once(": ")) {
        text(&pod, "node") == node && text(&pod, "phase") != "Running" && text(&pod, "message").contains(reason)
    } else if wanted == "does not run" {
        let phase = text(&pod, "phase");
        !phase.is_empty() && phase != "Running" && !text(&pod, "message").is_empty()
    } else if let Some(words) = wanted.strip_prefix("says ") {
        text(&claim, "message").contains(words)
    } else if let Some(volume) = wanted.strip_prefix("has ") {
        text(&claim, "volume") == volume && text(&claim, "phase") == "Bound"
    } else {
        panic!("{wanted:?} is no sentence that is understood")
    };
    if is_met {
        return Ok(());
    }
    Err(format!("found pods {}, claims {}", outcome["pods"], outcome["claims"]))
}

#[test]
fn every_corner_is_as_wanted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corners");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort_unstable();
    assert!(files.len() > 10, "the clusters are gone");
    let mut report = String::new();
    for file in files {
        let content = std::fs::read_to_string(&file).unwrap();
        let wanted: Vec<&str> = content.lines().filter_map(|line| line.strip_prefix("#> ")).collect();
        assert!(!wanted.is_empty(), "{} does not say what is wanted", file.display());
        let mut corner = Corner {
            file,
            arguments: Vec::new(),
            simulated: None,
        };
        for wanted in wanted {
            if let Err(found) = corner.check(wanted) {
                writeln!(report, "{}: {wanted}\n  {found}", corner.file()).unwrap();
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}
