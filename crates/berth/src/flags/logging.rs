//! Logging flags, which every Kubernetes program has.

use super::accepted::Flag;
use tracing::Level;

const PLAIN: &str = "Berth logs plain lines to standard error";
const WHOLE: &str = "one level applies to all of Berth: see --v";

/// Logging flags without effect: current ones, and those of programs before Kubernetes 1.26.
pub const FLAGS: &[Flag] = &[
    Flag::value("vmodule", WHOLE),
    Flag::value("logging-format", PLAIN),
    Flag::value("log-flush-frequency", "every line is written at once"),
    Flag::switch("log-text-split-stream", PLAIN),
    Flag::value("log-text-info-buffer-size", PLAIN),
    Flag::switch("log-json-split-stream", PLAIN),
    Flag::value("log-json-info-buffer-size", PLAIN),
    Flag::switch("logtostderr", PLAIN),
    Flag::switch("alsologtostderr", PLAIN),
    Flag::value("stderrthreshold", PLAIN),
    Flag::value("log-dir", PLAIN),
    Flag::value("log-file", PLAIN),
    Flag::value("log-file-max-size", PLAIN),
    Flag::value("log-backtrace-at", PLAIN),
    Flag::switch("skip-headers", PLAIN),
    Flag::switch("skip-log-headers", PLAIN),
    Flag::switch("add-dir-header", PLAIN),
    Flag::switch("one-output", PLAIN),
];

/// The verbosity from which Kubernetes programs log debug information.
const DEBUG: u32 = 4;

/// The log level for a verbosity of Kubernetes.
pub(crate) fn level(verbose: bool, verbosity: Option<u32>) -> Level {
    if verbose || verbosity.is_some_and(|verbosity| verbosity >= DEBUG) {
        Level::DEBUG
    } else {
        Level::INFO
    }
}
