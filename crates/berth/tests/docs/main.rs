//! Keeps the pages under `docs/` up to date: generated parts are compared with the code, and every link has a target.
//!
//! `BERTH_UPDATE_DOCS=1 cargo test -p berth --test docs` regenerates these parts of the pages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod commands;
mod configuration;
mod embedding;
mod facts;
mod flags;
mod links;
mod metrics;
mod pictures;
mod reasons;

use std::path::{Path, PathBuf};

/// Starts a generated part of a page. The comment specifies what is generated.
const BEGIN: &str = "<!-- made from the code: ";
const END: &str = "<!-- until here -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a directory with one of these endings, sorted.
fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The content between the marks with this name.
fn made(name: &str) -> String {
    let (what, of) = name.split_once(' ').unwrap_or((name, ""));
    match what {
        "commands" => commands::table(),
        "help" => commands::help(of),
        "run" => commands::run(of),
        "plugins" => configuration::plugins(),
        "gates" if of.is_empty() => configuration::gates(),
        "gates" => flags::gates(of),
        "flags" => flags::table(of),
        "fields" => configuration::fields(),
        "metrics" => metrics::table(of),
        "reasons" => reasons::refusals(),
        "causes" => reasons::causes(of),
        "events" => reasons::events(),
        "kinds" => commands::kinds(),
        "file" => embedding::file(of),
        "output" => embedding::output(),
        _ => panic!("nothing makes {name:?}"),
    }
}

/// A page with its parts regenerated, and their names.
fn refreshed(page: &str) -> (String, Vec<String>) {
    let mut out = String::new();
    let mut names = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        assert!(lines.by_ref().any(|line| line == END), "{name}: the end is missing");
        out.push('\n');
        out.push_str(made(name).trim_end());
        out.push_str("\n\n");
        out.push_str(END);
        out.push('\n');
        names.push(name.to_owned());
    }
    (out, names)
}

#[test]
fn what_is_made_from_the_code_is_up_to_date() {
    let mut names = Vec::new();
    for path in files(&root().join("docs"), "md") {
        let page = std::fs::read_to_string(&path).unwrap();
        let (now, made) = refreshed(&page);
        names.extend(made);
        if page == now {
            continue;
        }
        if std::env::var_os("BERTH_UPDATE_DOCS").is_some() {
            std::fs::write(&path, &now).unwrap();
            continue;
        }
        let differing = page.lines().zip(now.lines()).find(|(old, new)| old != new);
        panic!(
            "{}: {differing:?}\nrun BERTH_UPDATE_DOCS=1 cargo test -p berth --test docs",
            path.display()
        );
    }
    for command in commands::names() {
        let help = format!("help {command}");
        assert!(names.contains(&help), "no page of docs/commands shows the {help}");
    }
}
