//! Resource usage of the process, read from the system at each scrape, and build information.
//!
//! The names are the standard ones of Prometheus exporters. Metrics that the system does not provide are omitted.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt::Error;

/// Ticks per second in which Linux reports process times: the same on all its platforms.
const TICKS: f64 = 100.0;

/// Registers the metrics of the process.
pub(crate) fn register(registry: &mut Registry) {
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    registry.register("berth_build", "Build information", Info::new(version));
    registry.register_collector(Box::new(Process));
}

#[derive(Debug)]
struct Process;

/// The contents of `/proc` for a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    /// In seconds since boot.
    started: f64,
}

/// Parses `/proc/PID/stat`. The name of the program may contain spaces and brackets; the rest follows the last bracket.
fn usage(stat: &str) -> Option<Usage> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Counted from the state, which is the third field: user time, system time and start time.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(Usage {
        cpu_seconds: (field(14)? + field(15)?) / TICKS,
        started: field(22)? / TICKS,
    })
}

/// The value of a line such as `VmRSS:   1234 kB` or `btime 1234`.
fn value(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let usage = read("/proc/self/stat").and_then(|stat| usage(&stat));
        if let Some(usage) = usage {
            let cpu = ConstCounter::new(usage.cpu_seconds);
            let help = "User and system CPU time of the process";
            cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        }
        let booted = read("/proc/stat").and_then(|stat| value(&stat, "btime "));
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory of the process",
                read("/proc/self/status").and_then(|status| Some(value(&status, "VmRSS:")? * 1024.0)),
            ),
            (
                "process_start_time_seconds",
                "When the process was started, in seconds since 1970",
                booted.zip(usage).map(|(booted, usage)| booted + usage.started),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_the_process() {
        let stat =
            "42 (a (b) c) S 1 42 42 0 -1 4194304 500 0 0 0 250 50 0 0 20 0 9 0 12300 1000000 200 18446744073709551615";
        let expected = Usage {
            cpu_seconds: 3.0,
            started: 123.0,
        };
        assert_eq!(usage(stat), Some(expected));
        assert_eq!(usage("broken"), None);
        assert_eq!(value("Name:\tberth\nVmRSS:\t  1234 kB\n", "VmRSS:"), Some(1234.0));
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let build = format!("berth_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&build), "{text}");
        if cfg!(target_os = "linux") {
            for name in [
                "process_cpu_seconds_total ",
                "process_resident_memory_bytes ",
                "process_start_time_seconds ",
            ] {
                let sample = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or(&text);
                assert!(
                    sample.parse::<f64>().is_ok_and(|value| value >= 0.0),
                    "{name}: {sample}"
                );
            }
        }
    }
}
