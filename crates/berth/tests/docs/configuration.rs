//! Plugins, feature gates and fields of the configuration.

use berth::config::{Configuration, FEATURE_GATES};
use berth_scheduler::framework::PluginName;
use std::fmt::Write as _;

fn page() -> String {
    std::fs::read_to_string(crate::root().join("docs/configuration.md")).unwrap()
}

/// The plugins in their default order.
pub(crate) fn plugins() -> String {
    let mut out = "| plugin | filters | weight of its score |\n|---|---|---|\n".to_owned();
    for plugin in PluginName::ALL {
        let filters = if plugin.is_filter() { "yes" } else { "no" };
        let weight = plugin
            .default_weight()
            .map_or("does not score".to_owned(), |weight| weight.to_string());
        let _ = writeln!(out, "| {plugin} | {filters} | {weight} |");
    }
    out
}

/// The feature gates.
pub(crate) fn gates() -> String {
    let mut out = "| gate | default |\n|---|---|\n".to_owned();
    for (name, on) in FEATURE_GATES {
        let _ = writeln!(out, "| `{name}` | {on} |");
    }
    out
}

/// Every field of a configuration, by its part.
pub(crate) fn fields() -> String {
    let mut out = "| part | fields |\n|---|---|\n".to_owned();
    for (name, fields) in structs(include_str!("../../src/config/file.rs")) {
        let part = match name.as_str() {
            "File" => "the file itself".to_owned(),
            "ProfileFile" => "`profiles[]`".to_owned(),
            name => format!("`{}`", name.trim_end_matches("File")),
        };
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        let _ = writeln!(out, "| {part} | {} |", fields.join(", "));
    }
    out
}

/// The structs of a source file with the names of their fields in YAML.
fn structs(source: &str) -> Vec<(String, Vec<String>)> {
    let mut structs: Vec<(String, Vec<String>)> = Vec::new();
    let mut renamed = None;
    let mut inside = false;
    for line in source.lines() {
        let words = line
            .trim()
            .trim_start_matches("pub(super) ")
            .trim_start_matches("pub(crate) ");
        if let Some(name) = words.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
            structs.push((name.to_owned(), Vec::new()));
            inside = true;
        } else if line == "}" {
            inside = false;
        } else if let Some(name) = words.strip_prefix("#[serde(rename = \"") {
            renamed = name.split('"').next().map(str::to_owned);
        } else if inside
            && !words.starts_with(['#', '/'])
            && let Some((field, _)) = words.split_once(": ")
        {
            let field = renamed.take().unwrap_or_else(|| camel_case(field));
            structs.last_mut().unwrap().1.push(field);
        }
    }
    structs
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

#[test]
fn the_configurations_on_the_page_are_accepted() {
    let page = page();
    let mut found = 0;
    for block in page.split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        if text.contains("KubeSchedulerConfiguration") {
            Configuration::from_text(&"docs/configuration.md".into(), text).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "the page shows a configuration");
}

#[test]
fn every_gate_and_argument_is_explained() {
    let page = page();
    for (gate, _) in FEATURE_GATES {
        assert!(page.matches(gate).count() > 1, "{gate} stands in the table only");
    }
    for (name, source) in [
        ("ControllerFile", include_str!("../../src/config/controller.rs")),
        ("ProvisionerFile", include_str!("../../src/provisioner/mod.rs")),
    ] {
        let (_, fields) = structs(source).into_iter().find(|(found, _)| found == name).unwrap();
        assert!(!fields.is_empty());
        for field in fields {
            assert!(page.contains(&format!("`{field}`")), "{field} of {name}");
        }
    }
}

/// The default in the table row of a field.
fn default_on_page<'a>(part: &'a str, field: &str) -> &'a str {
    let row = part
        .lines()
        .find_map(|line| line.strip_prefix(&format!("| `{field}` | ")));
    let row = row.unwrap_or_else(|| panic!("{field} has no row"));
    row.split(" | ").next().unwrap()
}

#[test]
fn defaults_are_those_of_the_code() {
    let page = page();
    let (_, after) = page.split_once("\n## Controller\n").unwrap();
    let (controller, provisioner) = after.split_once("\n## Provisioner\n").unwrap();
    for (field, usual) in berth::help::controller_defaults() {
        assert_eq!(default_on_page(controller, field), usual, "{field}");
    }
    let usual = berth_kube::provisioner::Options::builtin();
    assert_eq!(default_on_page(provisioner, "workers"), usual.workers.to_string());
}

#[test]
fn the_lease_lasts_as_long_as_the_help_says() {
    use clap::CommandFactory;
    let command = berth::cli::Cli::command();
    let scheduler = command.find_subcommand("scheduler").unwrap();
    let argument = scheduler
        .get_arguments()
        .find(|argument| argument.get_id() == "leader_elect_lease_duration")
        .unwrap();
    let usual = berth_kube::lease::LeaseOptions::new("n", "l", "i").duration;
    // As a default, or in the text of the help.
    let mut told = argument.get_help().unwrap().to_string();
    for value in argument.get_default_values() {
        told = told + " " + value.to_str().unwrap();
    }
    assert!(told.contains(&format!(" {}s", usual.as_secs())), "{told}");
}
