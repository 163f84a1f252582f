//! The recorded results of the CSI external-provisioner: requisite and preferred terms in order.
#![allow(clippy::unwrap_used, clippy::panic)]

use berth_core::api::{CsiNode, Node, TopologySelectorTerm};
use berth_provisioner::topology::{Policy, Question, Requirement, Segment, requirement};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    id: String,
    driver: String,
    claim: String,
    selected_node: Option<String>,
    #[serde(default)]
    allowed_topologies: Vec<TopologySelectorTerm>,
    strict_topology: bool,
    immediate_topology: bool,
    nodes: Vec<Node>,
    csi_nodes: Vec<CsiNode>,
    expect: Expect,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Expect {
    Terms {
        requisite: Vec<Segment>,
        preferred: Vec<Segment>,
    },
    Nothing {
        none: bool,
    },
    Error {
        error: bool,
    },
}

fn answer(case: &Case) -> Expect {
    let nodes: BTreeMap<_, _> = case
        .nodes
        .iter()
        .map(|n| (n.metadata.name.clone(), n.clone()))
        .collect();
    let csi_nodes: BTreeMap<_, _> = case
        .csi_nodes
        .iter()
        .map(|n| (n.metadata.name.clone(), n.clone()))
        .collect();
    let asked = requirement(&Question {
        driver: &case.driver,
        claim: &case.claim,
        selected_node: case.selected_node.as_deref(),
        allowed: &case.allowed_topologies,
        policy: Policy {
            strict: case.strict_topology,
            immediate: case.immediate_topology,
        },
        nodes: &nodes,
        csi_nodes: &csi_nodes,
    });
    match asked {
        Ok(Some(Requirement { requisite, preferred })) => Expect::Terms { requisite, preferred },
        Ok(None) => Expect::Nothing { none: true },
        Err(error) => {
            let words = error.to_string();
            let names_it = case
                .selected_node
                .as_ref()
                .is_some_and(|node| words.contains(node.as_str()))
                || words.contains(&case.driver);
            assert!(names_it, "{}: {words} names neither node nor driver", case.id);
            Expect::Error { error: true }
        }
    }
}

#[test]
fn every_recorded_case() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/cases/topology.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        count += 1;
        let found = answer(&case);
        if found != case.expect {
            wrong.push(format!("{}: {found:?} instead of {:?}", case.id, case.expect));
        }
    }
    assert_eq!(count, 200);
    assert!(
        wrong.is_empty(),
        "{} of {count} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
