//! Runs a target in a child process under limits, and keeps the input that ended it.

use crate::fuzz::{Finding, Fuzz, Report, Trouble};
use crate::mutate::INPUT_BYTES_MAX;
use crate::{PLANTED, Target, targets};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The stack of a target: as small as that of a thread of the runtime, on which servers read requests.
const STACK_BYTES: usize = 2 << 20;
/// How long a child may go on after its time: one slow input with its second looks.
const GRACE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// The limits of a run.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Stop after so many inputs.
    pub inputs: u64,
    /// Stop after this time.
    pub time: Duration,
    /// Address space of the child, in bytes.
    pub memory_bytes: u64,
    /// How long the child may go on after its time.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            inputs: u64::MAX,
            time: Duration::from_secs(10),
            memory_bytes: 1 << 30,
            grace: GRACE,
        }
    }
}

/// The target with a name, also a planted one.
#[must_use]
pub fn find(name: &str) -> Option<Target> {
    let all = targets::ALL.iter().chain(PLANTED);
    all.copied().find(|target| target.name == name)
}

/// Runs a target in a child: `program` is this crate's binary. Findings are returned; the caller saves them.
///
/// # Errors
/// If the child cannot be started or watched.
pub fn supervise(program: &Path, target: Target, seed: u64, limits: &Limits) -> io::Result<Report> {
    let current = std::env::temp_dir().join(format!("berth-fuzz-{}-{}", std::process::id(), target.name));
    let file = File::create(&current)?;
    file.set_len((8 + INPUT_BYTES_MAX) as u64)?;
    let outcome = run_child(program, target, seed, limits, &current);
    let input = current_input(&current);
    std::fs::remove_file(&current)?;
    let (output, died) = outcome?;
    let mut report = parse(&output);
    if let Some(how) = died {
        let trouble = Trouble::Died(how);
        report.findings.push(Finding { input: input?, trouble });
    }
    Ok(report)
}

/// The child's output, and how it died if it did.
fn run_child(
    program: &Path,
    target: Target,
    seed: u64,
    limits: &Limits,
    current: &Path,
) -> io::Result<(String, Option<String>)> {
    let mut child = Command::new(program)
        .args(["child", target.name])
        .args(["--seed", &seed.to_string(), "--inputs", &limits.inputs.to_string()])
        .args(["--seconds", &limits.time.as_secs_f64().to_string()])
        .args(["--memory-bytes", &limits.memory_bytes.to_string()])
        .arg("--current")
        .arg(current)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // What a dying process prints is known from how it dies.
        .stderr(Stdio::null())
        .spawn()?;
    let deadline = Instant::now() + limits.time + limits.grace;
    let status = wait(&mut child, deadline)?;
    let mut output = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut output)?;
    }
    let died = match status {
        None => Some(format!("no end within {:?}", limits.time + limits.grace)),
        Some(status) if status.success() => None,
        Some(status) => Some(status.to_string()),
    };
    Ok((output, died))
}

/// The status of a child; `None` if it had to be killed at the deadline. Its output is one line, which a pipe holds.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// The input that a child was reading last.
fn current_input(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(0);
    Ok(rest.get(..length).unwrap_or_default().to_vec())
}

/// The child: limits itself, runs the target, and returns its report as one line.
///
/// # Errors
/// If the limit cannot be set, or the seeds cannot be read.
pub fn child(target: Target, seed: u64, limits: &Limits, current: &Path) -> io::Result<String> {
    let limit = Some(limits.memory_bytes);
    let limit = Rlimit {
        current: limit,
        maximum: limit,
    };
    let file = File::options().write(true).open(current)?;
    setrlimit(Resource::As, limit)?;
    let fuzz = Fuzz {
        target,
        seed,
        inputs: limits.inputs,
        until: Some(Instant::now() + limits.time),
    };
    let mut failed = None;
    let run = move || {
        let mut about_to = |input: &[u8]| {
            let record = [&(input.len() as u64).to_le_bytes(), input].concat();
            if let Err(error) = file.write_all_at(&record, 0) {
                failed.get_or_insert(error);
            }
        };
        let report = fuzz.run(&mut about_to)?;
        failed.map_or(Ok(report), Err)
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run)?;
    let report = thread.join().map_err(|_| io::Error::other("the run panicked"))??;
    Ok(line(&report))
}

fn line(report: &Report) -> String {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| json!({"input": finding.input, "trouble": finding.trouble.to_string()}))
        .collect();
    json!({"inputs": report.inputs, "shapes": report.shapes, "findings": findings}).to_string()
}

/// The report of a child; empty if it died before it could write one.
fn parse(output: &str) -> Report {
    let value: Value = serde_json::from_str(output).unwrap_or_default();
    let findings = value["findings"].as_array().into_iter().flatten();
    let bytes = |input: &Value| {
        let bytes = input.as_array().into_iter().flatten();
        bytes.filter_map(|byte| byte.as_u64()?.try_into().ok()).collect()
    };
    Report {
        inputs: value["inputs"].as_u64().unwrap_or(0),
        shapes: value["shapes"]
            .as_u64()
            .and_then(|count| count.try_into().ok())
            .unwrap_or(0),
        findings: findings
            .map(|finding| Finding {
                input: bytes(&finding["input"]),
                trouble: Trouble::Panic(finding["trouble"].as_str().unwrap_or_default().to_owned()),
            })
            .collect(),
    }
}

/// Saves the input of a finding, under a name that its content gives it.
///
/// # Errors
/// If it cannot be written.
pub fn save(directory: &Path, target: &str, finding: &Finding) -> io::Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    let sum = finding.input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = directory.join(format!("{target}-{sum:016x}"));
    std::fs::write(&path, &finding.input)?;
    Ok(path)
}
