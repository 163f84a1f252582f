//! What if: a change that somebody thinks of, played as a scenario on the cluster in memory.
//!
//! The answer holds the scenario, so that `berth simulate` gives the same on the command line.

use super::invocation::Invocation;
use crate::input::{self, NoProgress, Source};
use crate::simulate::scenario::{API_VERSION, KIND, read_text};
use crate::simulate::{How, examined, prepare};
use crate::snapshot;
use berth_cluster::simulation::scenario::Scenario;
use berth_cluster::simulation::{Difference, Outcome, Simulation};
use berth_scheduler::scheduler::DEFAULT_SEED;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// When the change happens: what the cluster is about to do anyway is over by then.
const AT: &str = "1h";
/// The file of the scenario, in the command that gives the same.
const FILE: &str = "what-if.yaml";

/// What may be changed. It is no scenario, which could name files of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    tag = "what",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum WhatIf {
    /// A zone falls silent.
    LoseZone { zone: String },
    /// A node falls silent.
    LoseNode { node: String },
    /// A node takes no new pods.
    Cordon { node: String },
    /// A node is emptied.
    Drain { node: String },
    /// Nodes are added.
    AddNodes { like: String, count: u32 },
    /// A workload gets another number of pods.
    Scale {
        kind: String,
        namespace: String,
        name: String,
        replicas: u32,
    },
    /// Manifests are applied.
    Apply { yaml: String },
}

impl WhatIf {
    /// As a scenario has it.
    fn action(&self) -> Result<Value, String> {
        Ok(match self {
            Self::LoseZone { zone } => json!({"stopNodes": {"zone": zone}}),
            Self::LoseNode { node } => json!({"stopNodes": {"nodes": [node]}}),
            Self::Cordon { node } => json!({"cordon": {"nodes": [node]}}),
            Self::Drain { node } => json!({"drain": {"nodes": [node]}}),
            Self::AddNodes { like, count } => {
                json!({"addNodes": {"like": like, "count": count, "generateName": format!("{like}-more-")}})
            }
            Self::Scale {
                kind,
                namespace,
                name,
                replicas,
            } => json!({"scale": {"kind": kind, "namespace": namespace, "name": name, "replicas": replicas}}),
            Self::Apply { yaml } => json!({"apply": {"objects": objects(yaml)?}}),
        })
    }

    /// The scenario, as a file would hold it.
    fn scenario(&self) -> Result<String, String> {
        let step = json!({"at": AT, "name": "what if", "do": [self.action()?]});
        let scenario =
            json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "what-if"}, "steps": [step]});
        let mut text = String::new();
        snapshot::write_yaml(&mut text, &scenario).map_err(|error| error.to_string())?;
        Ok(text)
    }
}

/// The objects of manifests.
fn objects(yaml: &str) -> Result<Vec<Value>, String> {
    let source = Source::Text {
        name: "the manifests".into(),
        bytes: yaml.as_bytes().to_vec(),
    };
    let mut objects = Vec::new();
    let read = input::read_parts_in("default", &[source], &mut io::empty(), &mut NoProgress, &mut |object| {
        objects.push(object);
    });
    read.map_err(|error| error.to_string())?;
    match objects.is_empty() {
        true => Err("there is no object in the manifests".to_owned()),
        false => Ok(objects),
    }
}

/// Plays a change on the cluster that the sources hold. The answer is what `berth simulate -o json` says of its steps and of the pods that
/// are left pending, what differs in the end as `--diff` has it, and the nodes that are others then.
///
/// # Errors
/// What is wrong with the change or the cluster, in words.
pub(super) fn play(
    asked: &WhatIf,
    invocation: &Invocation,
    sources: &[Source],
    stop: &mut dyn FnMut() -> bool,
) -> Result<Value, String> {
    let text = asked.scenario()?;
    let scenario = read_text(&FILE.into(), &text, Path::new(""));
    let scenario = scenario.map_err(|error| error.to_string())?;
    let how = How {
        seed: DEFAULT_SEED,
        decisions: &invocation.decisions,
        controller: &invocation.controller,
    };
    let later: Vec<&Value> = Scenario::objects(&scenario).collect();
    let prepared = prepare(&how, &later, sources, &mut io::empty(), &mut NoProgress);
    let prepared = prepared.map_err(|error| error.to_string())?;
    let mut simulation = Simulation::new(prepared.options);
    simulation.load(prepared.objects).map_err(|error| error.to_string())?;
    let mut before = None;
    let played = simulation.play_unless(&scenario, &mut |_| stop(), &mut |now| {
        before.get_or_insert_with(|| now.outcome());
    });
    let command = invocation.simulate(FILE);
    if !played.map_err(|error| error.to_string())? {
        return Err(format!(
            "the simulation takes too long to be worked out for a page; on the command line it may take its time: \
             {command}, with this in {FILE}:\n{text}"
        ));
    }
    let outcome = examined(&simulation, &prepared.summary.gaps);
    let before = before.unwrap_or_else(|| outcome.clone());
    Ok(json!({
        "steps": outcome.steps,
        "pending": outcome.pending,
        "changes": Difference::between(&before, &outcome),
        "evicted": outcome.evicted,
        "nodes": NodeChanges::between(&before, &outcome),
        "scenario": text,
        "command": command,
    }))
}

/// Nodes that a change makes others, by name.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct NodeChanges<'a> {
    /// They no longer answer.
    lost: Vec<&'a str>,
    /// They take no new pods.
    cordoned: Vec<&'a str>,
    /// They were not there.
    added: Vec<&'a str>,
    /// They are there no longer.
    gone: Vec<&'a str>,
}

impl<'a> NodeChanges<'a> {
    fn between(before: &'a Outcome, after: &'a Outcome) -> Self {
        let known: BTreeMap<&str, _> = before.nodes.iter().map(|node| (node.node.as_str(), node)).collect();
        let left: BTreeSet<&str> = after.nodes.iter().map(|node| node.node.as_str()).collect();
        let mut changes = Self::default();
        for node in &after.nodes {
            match known.get(node.node.as_str()) {
                None => changes.added.push(&node.node),
                Some(was) if was.ready && !node.ready => changes.lost.push(&node.node),
                Some(was) if was.schedulable && !node.schedulable => changes.cordoned.push(&node.node),
                Some(_) => {}
            }
        }
        changes.gone = known.into_keys().filter(|name| !left.contains(name)).collect();
        changes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use berth_cluster::sample::{self, Shape};

    fn sources() -> Vec<Source> {
        let mut items = sample::objects(&Shape::default());
        let template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}});
        items.push(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}}),
        );
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        vec![Source::Text {
            name: "sample".into(),
            bytes: serde_json::to_vec(&list).unwrap(),
        }]
    }

    fn answer(asked: Value) -> Result<Value, String> {
        let asked: WhatIf = serde_json::from_value(asked).map_err(|error| error.to_string())?;
        play(&asked, &Invocation::default(), &sources(), &mut || false)
    }

    fn placed(asked: Value) -> Result<(i64, i64), String> {
        let answer = answer(asked)?;
        let of = |step: usize| answer["steps"][step]["summary"]["placed"].as_i64().unwrap();
        Ok((of(0), of(1)))
    }

    #[test]
    fn changes_are_played_on_the_cluster() {
        let scale = |replicas: u32| json!({"what": "scale", "kind": "Deployment", "namespace": "default", "name": "web", "replicas": replicas});
        assert_eq!(placed(scale(9)), Ok((3, 9)), "one for each node");
        assert_eq!(placed(scale(12)), Ok((3, 9)), "and no room for more");
        assert_eq!(
            placed(json!({"what": "loseZone", "zone": "zone-a"})),
            Ok((3, 4)),
            "one more, as a pod on a silent node is not gone"
        );
        assert_eq!(placed(json!({"what": "drain", "node": "node-a1"})), Ok((3, 3)));
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}";
        assert_eq!(placed(json!({"what": "apply", "yaml": pod})), Ok((3, 4)));
        assert_eq!(
            placed(json!({"what": "addNodes", "like": "node-a1", "count": 2})),
            Ok((3, 3))
        );
    }

    #[test]
    fn the_answer_tells_what_differs() {
        let lost = answer(json!({"what": "loseZone", "zone": "zone-b"})).unwrap();
        assert_eq!(lost["nodes"]["lost"], json!(["node-b1", "node-b2", "node-b3"]));
        // A node that has a pod, in any zone.
        let node = &lost["steps"][0]["pods"]["placed"][0]["node"];
        let drained = answer(json!({"what": "drain", "node": node})).unwrap();
        let changed = |what: &str| drained["changes"]["pods"][what].as_array().unwrap().len();
        assert_eq!(
            (changed("gone"), changed("placed")),
            (1, 1),
            "its pod is replaced: {drained}"
        );
        assert_eq!(drained["nodes"]["cordoned"], json!([node]));
        let more = answer(json!({"what": "addNodes", "like": "node-a1", "count": 2})).unwrap();
        assert_eq!(more["nodes"]["added"].as_array().unwrap().len(), 2);
        let zone = &more["changes"]["zones"][0];
        let room = |when: &str| zone[when]["cpuMilli"].as_i64().unwrap();
        assert!(room("after") > room("before"), "{zone}");
    }

    #[test]
    fn a_simulation_that_takes_too_long_is_stopped() {
        let asked = WhatIf::Cordon {
            node: "node-a1".to_owned(),
        };
        let mut turns = 0;
        let mut stop = || {
            turns += 1;
            turns > 2
        };
        let answer = play(&asked, &Invocation::default(), &sources(), &mut stop);
        assert!(answer.unwrap_err().contains("takes too long"));
        assert_eq!(turns, 3, "nothing more is done");
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let problem = |asked: Value| placed(asked).unwrap_err();
        assert!(problem(json!({"what": "cordon", "node": "nobody"})).contains("nobody"));
        assert!(problem(json!({"what": "apply", "yaml": "a: ["})).contains("the manifests"));
        assert!(problem(json!({"what": "apply", "yaml": ""})).contains("no object"));
        assert!(problem(json!({"what": "apply", "filename": "/etc/passwd"})).contains("filename"));
    }
}
