//! Information from the system about this process.

/// CPU time of this thread, if the system reports it.
pub(crate) fn seconds_on_processor() -> f64 {
    let counters = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = counters.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// The memory of this process in bytes; 0 if the system does not report it.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

impl Memory {
    pub(crate) fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kibibytes * 1024)
        };
        Self {
            now: field("VmRSS:").unwrap_or(0),
            peak: field("VmHWM:").unwrap_or(0),
        }
    }
}
