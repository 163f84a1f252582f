//! The pictures of pages match the current pages.

use super::root;
use std::process::Command;

/// A page without the line that contains the version of berth.
fn without_version(page: &str) -> String {
    let lines = page.lines().filter(|line| !line.contains("<footer>"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The checksum and the length that the command `cksum` prints (POSIX).
fn cksum(text: &str) -> String {
    let length = text.len();
    let lengths = std::iter::successors(Some(length), |rest| Some(rest >> 8)).take_while(|rest| *rest > 0);
    let octets = text.bytes().chain(lengths.map(|rest| (rest & 0xff) as u8));
    let sum = octets.fold(0_u32, |sum, octet| {
        (0..8).fold(sum ^ (u32::from(octet) << 24), |sum, _| match sum >> 31 {
            1 => (sum << 1) ^ 0x04c1_1db7,
            _ => sum << 1,
        })
    });
    format!("{} {length}", !sum)
}

#[test]
fn the_picture_of_the_report_is_made_from_todays_page() {
    assert_eq!(cksum("123456789\n"), "1552147931 10", "as POSIX has it");
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
    let pictured = std::fs::read_to_string(root().join("docs/report.cksum")).unwrap();
    assert_eq!(
        cksum(&without_version(&today)),
        pictured.trim(),
        "the page has changed since its picture was made: run e2e/report/picture"
    );
}

/// The files that decide how the page of a cluster looks, as `e2e/view/picture` reads them: by name, those of the page itself last.
fn page_files() -> String {
    let mut text = String::new();
    for directory in ["crates/berth/src/page", "crates/berth/src/view/page"] {
        let entries = std::fs::read_dir(root().join(directory)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending != "rs"));
        paths.sort();
        text.extend(paths.iter().map(|path| std::fs::read_to_string(path).unwrap()));
    }
    text
}

#[test]
fn the_picture_of_the_page_is_made_from_todays_files() {
    let pictured = std::fs::read_to_string(root().join("docs/view.cksum")).unwrap();
    assert_eq!(
        cksum(&page_files()),
        pictured.trim(),
        "the page has changed since its picture was made: run e2e/view/picture"
    );
}
