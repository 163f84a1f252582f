//! What all pages of berth share: the report of a simulation, and the page of a cluster.
//!
//! The scripts are plain modules. A server serves them one by one; a report, which is one file, holds them as one script
//! ([`bundle`]).

use std::fmt::Write as _;

/// Colours, typography, cards, nodes, volumes, bars, the timeline and the panel.
pub(crate) const LOOK: &str = include_str!("look.css");

/// A module of JavaScript: its name and its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        &[$(Module { name: $name, text: include_str!($name) },)*]
    };
}

/// The modules that pages share.
pub(crate) const MODULES: &[Module] = modules!(
    "details.js",
    "dom.js",
    "explain.js",
    "flow.js",
    "format.js",
    "map.js",
    "model.js",
    "sums.js",
    "timeline.js",
    "waiting.js",
);

/// A module with all that it imports, as one script without imports.
pub(crate) fn bundle(entry: &Module) -> String {
    let mut out = "\"use strict\";\nconst modules = {};\n".to_owned();
    let mut done = Vec::new();
    add(&mut out, entry, &mut done);
    out
}

/// Adds a module after those that it imports. Each is a function of its own, so that names inside do not meet.
fn add(out: &mut String, module: &Module, done: &mut Vec<&'static str>) {
    done.push(module.name);
    let imported = module.text.lines().filter_map(import).map(|(_, name)| name);
    for name in imported {
        let found = MODULES.iter().find(|module| module.name == name);
        if let Some(found) = found.filter(|module| !done.contains(&module.name)) {
            add(out, found, done);
        }
    }
    let _ = writeln!(out, "modules[\"{}\"] = (() => {{", module.name);
    let mut exported = Vec::new();
    for line in module.text.lines() {
        if let Some((names, name)) = import(line) {
            let _ = writeln!(out, "const {names} = modules[\"{name}\"];");
        } else if let Some(line) = line.strip_prefix("export ") {
            exported.extend(line.split_whitespace().nth(1));
            let _ = writeln!(out, "{line}");
        } else if !line.trim_start().starts_with("//") {
            let _ = writeln!(out, "{line}");
        }
    }
    let _ = writeln!(out, "return {{ {} }};\n}})();", exported.join(", "));
}

/// The names and the module of a line like `import { h, svg } from "./dom.js";`.
fn import(line: &'static str) -> Option<(&'static str, &'static str)> {
    let (names, from) = line.strip_prefix("import ")?.split_once(" from \"./")?;
    Some((names, from.strip_suffix("\";")?))
}

#[cfg(test)]
mod tests {
    use super::{MODULES, Module, bundle};

    const ENTRY: Module = Module {
        name: "entry.js",
        text: "// Why.\nimport { Timeline } from \"./timeline.js\";\nnew Timeline();\n",
    };

    #[test]
    fn a_bundle_imports_nothing() {
        let script = bundle(&ENTRY);
        for line in script.lines() {
            assert!(!line.starts_with("import ") && !line.starts_with("export "), "{line}");
        }
        assert!(script.contains("const { Timeline } = modules[\"timeline.js\"];\nnew Timeline();"));
    }

    #[test]
    fn every_module_is_there_once_and_before_it_is_used() {
        let script = bundle(&ENTRY);
        let place = |text: String| script.match_indices(&text).map(|(at, _)| at).collect::<Vec<_>>();
        for module in MODULES {
            let made = place(format!("modules[\"{}\"] = ", module.name));
            let used = place(format!("= modules[\"{}\"];", module.name));
            assert!(made.len() <= 1, "{}", module.name);
            assert!(
                used.iter().all(|at| made.first().is_some_and(|made| made < at)),
                "{}",
                module.name
            );
        }
    }
}
