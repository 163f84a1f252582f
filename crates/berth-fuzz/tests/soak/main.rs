//! Users who create and delete objects under ever new names, clients who never read, and drivers who lie: memory and time of each component stay flat.
//!
//! Each soak runs in a process of its own, which is this test started again, so that its memory can be told from that of the
//! others. Every round leaves nothing behind, and brings more than a kilobyte of names that were never seen before: if only those
//! were kept, memory would grow beyond the ceiling. A round of the scheduler brings about a hundred names, one of large pods 15,000.
//! `BERTH_SOAK=1000000` makes it a million rounds.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stdout, reason = "figures are read from the output of another process")]

mod components;
mod server;
mod users;

use std::process::Command;
use std::time::Instant;

const WHICH: &str = "BERTH_SOAK_OF";
const MARK: &str = "soaked ";
/// How much memory may grow after the first quarter of the rounds. Allocators do not return everything at once.
const GROWTH_BYTES_MAX: u64 = 12 << 20;
/// How much more the last quarter may take than the second, in processor time.
const SLOWER_MAX: f64 = 2.0;
/// Less than this is not measured well. The clock of processor time ticks a hundred times a second.
const TICKS_MIN: u64 = 50;

/// A component under attack. A round must leave nothing behind.
trait Victim {
    fn round(&mut self, number: u64);
}

/// Keeps a name of each round: what a soak must find.
struct Leaky(Vec<String>);

impl Victim for Leaky {
    fn round(&mut self, number: u64) {
        let names = users::Names::new(number);
        self.0.push((0..20).map(|at| names.long(&at.to_string())).collect());
    }
}

/// Looks at everything that it has seen, each time.
struct Slowing(u64);

impl Victim for Slowing {
    fn round(&mut self, _number: u64) {
        self.0 += 1;
        for at in 0..self.0 * self.0 / 20_000 {
            std::hint::black_box(at);
        }
    }
}

/// How much the memory of a victim may grow: less where rounds are slow, so that what one of them leaves behind is still found.
fn growth_max(which: &str) -> u64 {
    match which {
        "api-server" => 2 << 20,
        _ => GROWTH_BYTES_MAX,
    }
}

fn victim(which: &str) -> (Box<dyn Victim>, u64) {
    match which {
        "scheduler" => (Box::new(components::Scheduler::new()), 6_000),
        "controller" => (Box::new(components::Controller::default()), 8_000),
        "provisioner" => (Box::new(components::Provisioner::default()), 8_000),
        "large-pods" => (Box::new(components::LargePods::new()), 160),
        "lied-to" => (Box::new(components::LiedTo::default()), 8_000),
        "api-server" => (Box::new(server::ApiServer::new()), 1_000),
        "leaky" => (Box::new(Leaky(Vec::new())), 30_000),
        "slowing" => (Box::new(Slowing(0)), 30_000),
        other => panic!("no such soak: {other}"),
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Processor time of this process, in ticks.
fn ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program, in parentheses, may contain anything.
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Not a test of its own: the process that is measured.
#[test]
fn soaked_process() {
    let Ok(which) = std::env::var(WHICH) else {
        return;
    };
    let (mut victim, mut rounds) = victim(&which);
    if let Ok(wanted) = std::env::var("BERTH_SOAK") {
        let wanted: u64 = wanted.parse().expect("BERTH_SOAK is a number of rounds");
        // A round of large pods takes a thousand times as long.
        rounds = if which == "large-pods" { wanted / 100 } else { wanted };
    }
    let mut measured = Vec::new();
    let started = Instant::now();
    for quarter in 0..4 {
        let before = ticks();
        for number in quarter * rounds / 4..(quarter + 1) * rounds / 4 {
            victim.round(number);
        }
        measured.push((resident(), ticks() - before));
    }
    let grown = measured[3].0.saturating_sub(measured[0].0);
    let (second, last) = (measured[1].1, measured[3].1);
    println!(
        "{MARK}{rounds} {grown} {second} {last} {} {}",
        measured[3].0 >> 20,
        started.elapsed().as_secs()
    );
}

/// What is wrong after a soak, and its figures.
fn soak(which: &str) -> (Vec<String>, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soaked_process", "--nocapture", "--test-threads=1"])
        .env(WHICH, which)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let Some((_, figures)) = text.split_once(MARK) else {
        panic!(
            "{which}: {}\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let figures = figures.lines().next().unwrap();
    let numbers: Vec<u64> = figures.split(' ').map(|number| number.parse().unwrap()).collect();
    let [rounds, grown, second, last, resident, seconds] = numbers[..] else {
        panic!("{figures}")
    };
    let mut wrong = Vec::new();
    if grown > growth_max(which) {
        wrong.push(format!(
            "memory grew by {} KiB in three quarters of {rounds} rounds",
            grown >> 10
        ));
    }
    if last > TICKS_MIN && last as f64 > second as f64 * SLOWER_MAX {
        wrong.push(format!("the second quarter took {second} ticks, the last one {last}"));
    }
    let figures = format!(
        "{which}: {rounds} rounds in {seconds} s, {resident} MiB, grew by {} KiB, {second} and {last} ticks",
        grown >> 10
    );
    (wrong, figures)
}

#[track_caller]
fn stays_flat(which: &str) {
    let (wrong, figures) = soak(which);
    println!("{figures}");
    assert!(wrong.is_empty(), "{figures}\n{}", wrong.join("\n"));
}

#[test]
fn the_scheduler_stays_flat() {
    stays_flat("scheduler");
}

#[test]
fn the_controller_stays_flat() {
    stays_flat("controller");
}

#[test]
fn the_provisioner_stays_flat() {
    stays_flat("provisioner");
}

#[test]
fn the_scheduler_stays_flat_with_pods_of_a_megabyte() {
    stays_flat("large-pods");
}

#[test]
fn the_provisioner_stays_flat_whatever_its_driver_says() {
    stays_flat("lied-to");
}

#[test]
fn the_api_server_stays_flat() {
    stays_flat("api-server");
}

#[test]
fn a_leak_and_a_slowdown_are_found() {
    assert!(soak("leaky").0.iter().any(|wrong| wrong.contains("memory grew")));
    assert!(soak("slowing").0.iter().any(|wrong| wrong.contains("quarter")));
}
