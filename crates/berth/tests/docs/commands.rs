//! The commands: their help, their table, and the manual pages.

use berth::cli::Cli;
use berth_core::api::Kind;
use clap::{Command, CommandFactory};
use std::fmt::Write as _;

/// The width of help on the pages.
const WIDTH: usize = 100;

/// All commands except berth itself, for example `bench decide`.
pub(crate) fn names() -> Vec<String> {
    let pages = berth::man::pages(Cli::command()).unwrap();
    pages.iter().skip(1).map(|page| page.command[1..].join(" ")).collect()
}

fn find(name: &str) -> Command {
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    let words = name.split_whitespace();
    words.fold(command, |command, word| {
        command
            .find_subcommand(word)
            .unwrap_or_else(|| panic!("no {name}"))
            .clone()
    })
}

/// The help of a command as a block.
pub(crate) fn help(name: &str) -> String {
    let text = find(name).term_width(WIDTH).render_long_help().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("```text\n{}\n```\n", lines.join("\n").trim_end())
}

/// The commands with one line each.
pub(crate) fn table() -> String {
    let mut out = "| command | what it does |\n|---|---|\n".to_owned();
    for name in names() {
        let about = find(&name).get_about().unwrap().to_string();
        let page = name.split(' ').next().unwrap();
        let _ = writeln!(out, "| [`berth {name}`]({page}.md) | {about} |");
    }
    out
}

/// The output of a command, as on a terminal without colours.
pub(crate) fn run(arguments: &str) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(arguments.split_whitespace())
        .current_dir(crate::root())
        .env("NO_COLOR", "1")
        .env("COLUMNS", WIDTH.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
    format!("```console\n$ berth {arguments}\n{}\n```\n", text.trim_end())
}

/// The kinds that decisions read.
pub(crate) fn kinds() -> String {
    let mut out = "| kind | API group | in namespaces |\n|---|---|---|\n".to_owned();
    for kind in Kind::ALL {
        let group = if kind.group().is_empty() { "core" } else { kind.group() };
        let namespaced = if kind.is_namespaced() { "yes" } else { "no" };
        let _ = writeln!(out, "| {kind} | {group} | {namespaced} |");
    }
    out
}

#[test]
fn every_command_has_a_description_examples_and_exit_codes() {
    for name in [String::new()].into_iter().chain(names()) {
        let help = help(&name);
        assert!(
            help.contains("\nExamples:\n  berth ") || help.contains("\nExamples:\n  source"),
            "{name}: {help}"
        );
        assert!(help.contains("\nExit status: 0 "), "{name}: {help}");
        assert!(find(&name).get_about().is_some(), "{name}");
    }
}

/// An example that wraps on a terminal cannot be pasted.
#[test]
fn examples_stand_whole_on_a_terminal() {
    for name in [String::new()].into_iter().chain(names()) {
        let command = find(&name);
        let after = command.get_after_help().unwrap().to_string();
        let examples = after.split("\n\n").next().unwrap();
        for line in examples.lines() {
            // `kubectl berth` is longer than `berth`.
            assert!(line.chars().count() <= 72, "{name}: {line}");
        }
    }
}

#[test]
fn every_option_is_described() {
    for name in [String::new()].into_iter().chain(names()) {
        for argument in find(&name).get_arguments() {
            let described = argument.get_help().is_some_and(|help| !help.to_string().is_empty());
            assert!(described, "{name} {}", argument.get_id());
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let pages = berth::man::pages(Cli::command()).unwrap();
    assert_eq!(pages.len(), names().len() + 1);
    for page in &pages {
        let text = String::from_utf8(page.roff.clone()).unwrap();
        let name = page.command.join(" ");
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "\"EXIT STATUS\"",
            "EXAMPLES",
        ] {
            assert!(text.contains(&format!(".SH {section}\n")), "{name}: {section}: {text}");
        }
        assert!(
            !text.contains("Examples:"),
            "{name}: the examples have a section of their own"
        );
    }
    let files: Vec<String> = pages.iter().map(berth::man::Page::file_name).collect();
    assert!(
        files.contains(&"berth.1".to_owned()) && files.contains(&"berth-bench-decide.1".to_owned()),
        "{files:?}"
    );
}
