//! The example of embedding `berth-core`: the page shows the file that is compiled and run here, and its output.

use crate::root;

#[allow(dead_code, unreachable_pub, clippy::print_stdout)]
#[path = "../../../berth-core/examples/small_scheduler.rs"]
mod small_scheduler;

/// A file of the repository as a block.
pub(crate) fn file(path: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let language = match path.rsplit('.').next() {
        Some("rs") => "rust",
        Some("yaml") => "yaml",
        _ => "text",
    };
    format!("```{language}\n{}\n```\n", text.trim_end())
}

/// What the example prints.
pub(crate) fn output() -> String {
    format!("```text\n{}\n```\n", small_scheduler::play().unwrap().join("\n"))
}
