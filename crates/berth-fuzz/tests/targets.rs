//! Every target reads its corpus and some inputs that are made from it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use berth_fuzz::{Fuzz, Report, targets};

/// How many inputs each target reads here. `.ci/run` goes on for longer, under a limit on memory.
const INPUTS: u64 = 300;

fn words(report: &Report) -> String {
    let findings = report.findings.iter();
    findings
        .map(|finding| format!("{}\n  {}", finding.trouble, String::from_utf8_lossy(&finding.input)))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn every_target_stands_its_corpus_and_what_is_made_from_it() {
    std::thread::scope(|scope| {
        let runs: Vec<_> = targets::ALL
            .iter()
            .map(|target| {
                let fuzz = Fuzz {
                    target: *target,
                    seed: 1,
                    inputs: INPUTS,
                    until: None,
                };
                (target, scope.spawn(move || fuzz.run(&mut |_| {}).unwrap()))
            })
            .collect();
        for (target, run) in runs {
            let report = run.join().unwrap();
            assert!(report.findings.is_empty(), "{}: {}", target.name, words(&report));
            assert!(report.shapes > 1, "{}: every input got the same answer", target.name);
        }
    });
}
