//! One world: every example, every scenario and every corner is played by the virtual cluster of `berth simulate`, and by the
//! components of `berth up` on the embedded API server, and both must end alike.
//!
//! The second one is no simulation: watches, conflicts and requests are real. Only its clock is not: it jumps to the next
//! moment at which a task wants to be woken, so that hours pass in a second.
//!
//! What the two may differ in is what chance or the clock gives: uids, versions, times, addresses, and random endings of names. There is no
//! list of files or fields that are excepted.

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

/// What each case differs in, by name; nothing where both worlds ended alike.
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
        // Neither reads it.
        (Err(_), Err(_)) => Vec::new(),
        (Ok(_), Err(error)) => vec![format!("only the live world refuses it: {error}")],
        (Err(error), Ok(_)) => vec![format!("only the simulation refuses it: {error}")],
    }
}

#[test]
fn a_simulation_ends_as_the_components_on_an_api_server_do() {
    // For one file alone: `BERTH_PARITY=drain cargo test --test parity`.
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
