//! Files that users give: clusters, scenarios, configurations, candidates, names of an anonymized snapshot.

use crate::Shape;
use berth::config::Configuration;
use berth::input::{NoProgress, Source, read, read_all_values};
use berth::plan::read_candidates;
use berth::simulate::scenario;
use berth::snapshot::Names;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Files that an input refers to are not looked for anywhere.
const NOWHERE: &str = "/nonexistent";

/// A cluster, as YAML or JSON: as decisions read it, and as a server stores it.
pub(super) fn input(input: &[u8]) -> Shape {
    let sources = [Source::StandardInput];
    let mut objects = 0;
    let decided = read(&sources, &mut &input[..], &mut NoProgress, &mut |_| objects += 1);
    let stored = read_all_values(&sources, &mut &input[..], &mut NoProgress, &mut |_| {});
    if let Err(error) = &decided {
        let text = error.to_string();
        assert!(
            !text.is_empty() && text.contains("standard input"),
            "an error without a place: {text:?}"
        );
    }
    let shape = Shape::of_result(&decided).and(&Shape::of_result(&stored));
    shape.and(&Shape::of(["none", "one", "more"][objects.min(2)]))
}

fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

pub(super) fn scenario(input: &[u8]) -> Shape {
    let file: Arc<str> = "scenario.yaml".into();
    Shape::of_result(&scenario::read_text(&file, &text(input), Path::new(NOWHERE)))
}

pub(super) fn configuration(input: &[u8]) -> Shape {
    let file: Arc<str> = "config.yaml".into();
    let read = Configuration::from_text(&file, &text(input));
    if let Ok(configuration) = &read {
        let _ = (configuration.settings(), configuration.shown());
    }
    Shape::of_result(&read)
}

pub(super) fn candidates(input: &[u8]) -> Shape {
    let file: Arc<str> = "candidates.yaml".into();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    Shape::of_result(&read_candidates(&file, &text(input), &[node]))
}

/// The first line is a file of names, the rest the answer to translate.
pub(super) fn names(input: &[u8]) -> Shape {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (file, answer) = input.split_at(end);
    let read: Result<Names, _> = serde_json::from_slice(file);
    if let Ok(names) = &read {
        let answer = text(answer);
        let translated = names.translate(&answer);
        assert!(
            translated.len() <= answer.len() * file.len().max(1),
            "{} bytes became {}",
            answer.len(),
            translated.len()
        );
        if *names == Names::default() {
            assert_eq!(translated, answer, "there is nothing to translate");
        }
        let written = serde_json::to_vec(names).unwrap_or_default();
        let again: Option<Names> = serde_json::from_slice(&written).ok();
        assert_eq!(again.as_ref(), Some(names), "names are read as they were written");
        return Shape::of(if translated == answer {
            "unchanged"
        } else {
            "translated"
        });
    }
    Shape::of_result(&read)
}
