//! The picture of a page shows what the page looks like today.

use super::root;
use std::process::Command;

/// A page without the line that names the version of berth.
fn without_version(page: &str) -> String {
    let lines = page.lines().filter(|line| !line.contains("<footer>"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_picture_of_the_report_is_made_from_todays_page() {
    let cluster = ["-f", "examples/scenarios/zone-loss.yaml"];
    let scenario = ["--scenario", "e2e/report/zone-lost.yaml"];
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .current_dir(root())
        .args(["simulate", "-o", "html"])
        .args(cluster)
        .args(scenario)
        .output()
        .unwrap();
    let today = String::from_utf8(output.stdout).unwrap();
    let pictured = std::fs::read_to_string(root().join("docs/report.html")).unwrap();
    assert!(
        without_version(&today) == without_version(&pictured),
        "the page has changed since its picture was made: run e2e/report/picture"
    );
}
