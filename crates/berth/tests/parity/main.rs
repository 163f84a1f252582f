//! Parity: every example, every scenario and every corner case is played by the virtual cluster of `berth simulate`, and by
//! the components of `berth up` on the embedded API server, and both must have the same result.
//!
//! The second one is not a simulation: watches, conflicts and requests are real. Only its clock is virtual: it jumps to
//! the next moment at which a task wakes up, so that hours pass in a second.
//!
//! The two may differ only in random or time-dependent values: UIDs, versions, times, addresses, and random suffixes of names. No files or
//! fields are excepted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a world that cannot be played fails the test"
)]

mod case;
mod difference;
mod live;
mod memory;
mod picture;

use case::Case;
use std::fmt::Write as _;
use std::sync::Mutex;

/// The differences of each case, by name; empty if both had the same result.
fn play_all(cases: Vec<Case>) -> Vec<(String, Vec<String>)> {
    let waiting = Mutex::new(cases);
    let differences = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some(case) = next else { break };
                    let found = play(&case);
                    differences.lock().unwrap().push((case.name, found));
                }
            });
        }
    });
    let mut differences = differences.into_inner().unwrap();
    differences.sort();
    differences
}

fn play(case: &Case) -> Vec<String> {
    match (memory::play(case), live::play(case)) {
        (Ok(memory), Ok(live)) => difference::between(&memory, &live),
        // Both refuse it.
        (Err(_), Err(_)) => Vec::new(),
        (Ok(_), Err(error)) => vec![format!("only the live world refuses it: {error}")],
        (Err(error), Ok(_)) => vec![format!("only the simulation refuses it: {error}")],
    }
}

#[test]
fn a_simulation_ends_as_the_components_on_an_api_server_do() {
    // For a single file: `BERTH_PARITY=drain cargo test --test parity`.
    let wanted = std::env::var("BERTH_PARITY").unwrap_or_default();
    let mut cases = case::all();
    cases.retain(|case| case.name.contains(&wanted));
    let played = cases.len();
    let differences = play_all(cases);
    let mut report = String::new();
    for (name, found) in differences.iter().filter(|(_, found)| !found.is_empty()) {
        let _ = writeln!(report, "\n{name}: simulation | API server");
        for line in found {
            let _ = writeln!(report, "  {line}");
        }
    }
    let unlike = differences.iter().filter(|(_, found)| !found.is_empty()).count();
    assert!(unlike == 0, "{unlike} of {played} clusters end otherwise\n{report}");
    assert!(played > 0, "nothing is called {wanted:?}");
}
