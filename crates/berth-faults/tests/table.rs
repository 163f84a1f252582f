//! The table of bugs in the documentation has a row for each bug, with the words of the code.
#![allow(clippy::unwrap_used)]

use berth_faults::Mutation;
use std::path::Path;

#[test]
fn the_documentation_lists_every_bug_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-do-you-know.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page
        .split_once("| bug | what is wrong | seeds | found as |\n|---|---|---|---|\n")
        .unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let listed: Vec<(&str, &str)> = rows.iter().map(|row| (row[1].trim_matches('`'), row[2])).collect();
    let all: Vec<(&str, &str)> = Mutation::ALL.into_iter().map(Mutation::told).collect();
    assert_eq!(listed, all);
    for row in rows {
        let is_counted = row[3].replace(',', "").parse::<u64>().is_ok_and(|seeds| seeds > 0);
        assert!(is_counted || row[3].starts_with("not "), "{row:?}");
        assert!(!is_counted || !row[4].is_empty(), "how it was found: {row:?}");
    }
}
