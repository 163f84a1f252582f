//! A process that ends with its owner.

use crate::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Timeout for an orderly end of a process.
const STOP: Duration = Duration::from_secs(15);
/// Number of log lines shown when something went wrong.
const TAIL_LINES: usize = 25;

/// A process cannot be started, or does not work.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// It ended unexpectedly.
    #[error("{name} ended with {status}\n{log}")]
    Ended {
        /// Its name.
        name: String,
        /// How it ended.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// It cannot be signalled or inspected.
    #[error("{name}: {source}")]
    Gone {
        /// Its name.
        name: String,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
}

/// Resource usage of a process since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time in user and kernel mode.
    pub cpu_seconds: f64,
    /// The peak resident memory.
    pub peak_rss_bytes: u64,
}

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output is appended to a log.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(name: &str, program: &Path, arguments: &[String], log: &Path) -> Result<Self, ProcessError> {
        let broken = |source| ProcessError::Start {
            program: program.to_owned(),
            source,
        };
        if let Some(directory) = log.parent() {
            fs::create_dir_all(directory).map_err(broken)?;
        }
        let output = OpenOptions::new().create(true).append(true).open(log).map_err(broken)?;
        let errors = output.try_clone().map_err(broken)?;
        let child = Command::new(program)
            .args(arguments)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(broken)?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Checks that it is still running.
    ///
    /// # Errors
    /// If it ended. The error includes its status and the end of its log.
    pub fn check(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(ProcessError::Ended {
                name: self.name.clone(),
                status: status.to_string(),
                log: self.log_tail(),
            }),
            Err(source) => Err(self.gone(source)),
        }
    }

    fn gone(&self, source: std::io::Error) -> ProcessError {
        ProcessError::Gone {
            name: self.name.clone(),
            source,
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| self.gone(std::io::ErrorKind::NotFound.into()))?;
        kill_process(pid, signal).map_err(|errno| self.gone(errno.into()))
    }

    /// Freezes it.
    ///
    /// # Errors
    /// If it is not running.
    pub fn pause(&self) -> Result<(), ProcessError> {
        self.signal(Signal::STOP)
    }

    /// Resumes it.
    ///
    /// # Errors
    /// If it is not running.
    pub fn resume(&self) -> Result<(), ProcessError> {
        self.signal(Signal::CONT)
    }

    /// Kills it.
    pub fn kill(self) {
        drop(self);
    }

    /// Asks it to end and waits for that. If it does not respond, it is killed.
    pub async fn stop(self) {
        self.stop_within(STOP).await;
    }

    /// Asks it to end, waits this long, and then kills it.
    pub async fn stop_within(mut self, patience: Duration) {
        if self.signal(Signal::TERM).is_err() {
            return;
        }
        let ended = eventually("the process ends", patience, async || {
            Ok::<_, Infallible>((!matches!(self.child.try_wait(), Ok(None))).then_some(()))
        });
        // If it is late, dropping it kills it.
        let _ = ended.await;
    }

    /// Its resource usage so far.
    ///
    /// # Errors
    /// If it is no longer running.
    pub fn usage(&self) -> Result<Usage, ProcessError> {
        let directory = PathBuf::from(format!("/proc/{}", self.id()));
        let read = |name: &str| fs::read_to_string(directory.join(name)).map_err(|source| self.gone(source));
        let (stat, status) = (read("stat")?, read("status")?);
        usage(&stat, &status, rustix::param::clock_ticks_per_second())
            .ok_or_else(|| self.gone(std::io::ErrorKind::InvalidData.into()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what the kernel reports about a process.
fn usage(stat: &str, status: &str, ticks_per_second: u64) -> Option<Usage> {
    // The name is in parentheses and may contain spaces; fields are counted after it, from the third on.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok())?;
    #[allow(clippy::cast_precision_loss, reason = "a hundred a second, or about that")]
    let per_second = ticks_per_second as f64;
    Some(Usage {
        cpu_seconds: (ticks(11)? + ticks(12)?) / per_second,
        peak_rss_bytes: kib * 1024,
    })
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("--- end of {}\n{}", log.display(), shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let stat = "12 (a (b) c) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 100 1 1";
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 10 kB\n";
        let expected = Usage {
            cpu_seconds: 3.0,
            peak_rss_bytes: 2 << 20,
        };
        assert_eq!(usage(stat, status, 100), Some(expected));
        assert_eq!(usage("", status, 100), None);
        assert_eq!(usage(stat, "", 100), None);
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("a.log");
        let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
        fs::write(&log, lines.join("\n")).unwrap();
        let shown = tail(&log);
        assert!(shown.ends_with("line 99"), "{shown}");
        assert_eq!(shown.lines().count(), TAIL_LINES + 1);
    }

    #[test]
    fn a_process_goes_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ["600".to_owned()];
        let mut process =
            Process::spawn("sleep", Path::new("sleep"), &arguments, &directory.path().join("log")).unwrap();
        process.check().unwrap();
        process.pause().unwrap();
        process.resume().unwrap();
        assert!(process.usage().unwrap().peak_rss_bytes > 0);
        let own = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(own.exists());
        drop(process);
        assert!(!own.exists());
    }
}
