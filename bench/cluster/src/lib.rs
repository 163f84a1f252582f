//! The benchmarks of `berth bench`: generated clusters, and measurements on them.
//!
//! The simulation that is measured is a parameter: this crate does not depend on the binary.

mod case;
mod cluster;
pub mod decide;
mod process;
mod random;
pub mod simulate;

use std::fmt::Write as _;

/// Called with the progress of a measurement: a verb, a number, and a noun. "decided on", 512, "pods".
pub type Progress<'p> = dyn FnMut(&str, usize, &str) + 'p;

/// The rows of a measurement as text: labels and values.
fn table(rows: &[(&str, String)]) -> String {
    let mut out = String::new();
    for (label, text) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{label:<9}{text}");
    }
    out
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / (1 << 20) as f64)
}
