//! Links in all Markdown files: files exist, and so do the headings that are meant.

use crate::{files, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages: Vec<PathBuf> = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ]
    .map(|name| root.join(name))
    .into();
    for directory in ["docs", "examples", "deploy", "bench", "e2e"] {
        pages.extend(files(&root.join(directory), "md"));
    }
    pages
}

/// The lines of a page that are no code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The targets of links and pictures in a line.
fn links(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let html = ["src=\"", "srcset=\"", "href=\""].into_iter();
    let html = html.flat_map(|mark| line.split(mark).skip(1).filter_map(|rest| rest.split('"').next()));
    inline.chain(html).collect()
}

/// The names by which the headings of a page can be linked to, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter_map(|line| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len() && text.starts_with(' ')).then_some(text.trim())
    });
    headings
        .map(|heading| {
            let kept = heading.to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

fn check(page: &Path, link: &str) -> Result<(), String> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        page.to_owned()
    } else {
        page.parent().unwrap().join(file)
    };
    if !target.exists() {
        return Err(format!("{link}: no such file"));
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let text = std::fs::read_to_string(&target).map_err(|error| format!("{link}: {error}"))?;
    match anchors(&text).contains(anchor) {
        true => Ok(()),
        false => Err(format!("{link}: no such heading")),
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    let mut count = 0;
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        for link in prose(&text).flat_map(links) {
            count += 1;
            if let Err(problem) = check(&path, link) {
                broken.push(format!("{}: {problem}", path.display()));
            }
        }
    }
    assert!(count > 20, "links were found at all");
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn every_page_can_be_reached_from_the_index() {
    let docs = root().join("docs").canonicalize().unwrap();
    let mut seen = BTreeSet::new();
    let mut left = vec![docs.join("README.md")];
    while let Some(page) = left.pop() {
        let page = page.canonicalize().unwrap();
        if !page.starts_with(&docs) || !seen.insert(page.clone()) {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        for link in prose(&text).flat_map(links) {
            let file = link.split('#').next().unwrap();
            if file.ends_with(".md") && !link.contains("://") {
                left.push(page.parent().unwrap().join(file));
            }
        }
    }
    let all: BTreeSet<PathBuf> = files(&docs, "md").into_iter().collect();
    assert_eq!(all.difference(&seen).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

#[test]
fn the_test_itself_sees_what_it_should() {
    assert_eq!(links("a [b](c.md#d) <img src=\"e.svg\">"), ["c.md#d", "e.svg"]);
    let found = anchors("# Why `is` my pod pending?\n```\n# no\n```\n## A, b: c\n");
    assert_eq!(
        found,
        BTreeSet::from(["why-is-my-pod-pending".to_owned(), "a-b-c".to_owned()])
    );
}
