//! Replays decisions recorded from kube-scheduler: the refusals of each node with their messages, and every score.
//!
//! The cases are in `conformance/cases`, one file per kind, one JSON object per line. `BERTH_CONFORMANCE_CASES` lists
//! more files in the same format, separated by colons.

#![allow(clippy::expect_used, clippy::panic, reason = "a broken case file fails the test")]

mod volumes;

use berth_core::api::Object;
use berth_core::score::Shape;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::examine::{Examination, NodeExamination, examine};
use berth_scheduler::framework::{Code, Refusal};
use berth_scheduler::plugins::FilterState;
use berth_scheduler::profile::{Profile, ShapePoint};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use volumes::{Chosen, Storage};

/// The replayed kinds.
const KINDS: &[&str] = &[
    "general",
    "static",
    "bound",
    "dynamic",
    "capacity",
    "score",
    "limits",
    "zone",
    "restrict",
    "mixed",
    "ephemeral",
    "matching",
];

#[test]
fn recorded_decisions_are_met() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/cases");
    for kind in KINDS {
        check_file(&cases.join(format!("{kind}.jsonl")));
    }
    let more = std::env::var("BERTH_CONFORMANCE_CASES").unwrap_or_default();
    for file in more.split(':').filter(|file| !file.is_empty()) {
        check_file(&PathBuf::from(file));
    }
}

fn check_file(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let cases: Vec<Value> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).expect("a case is one JSON object"))
        .collect();
    assert!(!cases.is_empty(), "{} has no cases", file.display());
    let mut report = String::new();
    let mut failed = 0;
    for case in &cases {
        let differences = replay(case);
        if !differences.is_empty() {
            failed += 1;
            if failed <= 10 {
                writeln!(report, "{}:\n  {}", case["id"], differences.join("\n  ")).expect("strings grow");
            }
        }
    }
    assert_eq!(
        failed,
        0,
        "{failed} of {} cases of {} differ\n{report}",
        cases.len(),
        file.display()
    );
}

/// Decides a case; returns the differences from the recording.
fn replay(case: &Value) -> Vec<String> {
    let mut cluster = Cluster::default();
    let mut pod = None;
    for object in case["objects"].as_array().expect("objects are a list") {
        match Object::decode(object) {
            Ok(Some(Object::Pod(found))) if found.metadata.full_name() == case["pod"] => pod = Some(found),
            Ok(Some(object)) => cluster.upsert(&object),
            Ok(None) => {}
            Err(error) => return vec![format!("an object was not read: {error}")],
        }
    }
    let pod = cluster.compile(&pod.expect("the pod is among the objects"));
    let examination = examine(&mut cluster, &pod, &profile(case));
    let storage = Storage::of(case["objects"].as_array().expect("objects are a list"));
    let decided = Decided {
        cluster: &cluster,
        examination: &examination,
        storage: &storage,
    };
    if case["kind"] == "matching" {
        return decided.compare_matching(&case["expect"]);
    }
    decided.compare(&case["expect"])
}

/// A decided case.
struct Decided<'a> {
    cluster: &'a Cluster,
    examination: &'a Examination,
    storage: &'a Storage,
}

/// The profile that a case was recorded with.
fn profile(case: &Value) -> Profile {
    let mut profile = Profile::default();
    for gate in ["VolumeCapacityPriority", "StorageCapacityScoring"] {
        profile.gates.set(gate, false);
    }
    for (gate, on) in case["featureGates"].as_object().into_iter().flatten() {
        profile.gates.set(gate, on.as_bool().unwrap_or(false));
    }
    let number = |point: &Value, field: &str| point[field].as_i64().unwrap_or(0);
    profile.volume_binding.score.shape = case["shape"].as_array().map(|points| {
        let points = points.iter().map(|point| ShapePoint {
            utilization: number(point, "utilization"),
            score: number(point, "score"),
        });
        Shape::new(&points.collect::<Vec<_>>()).expect("a recorded shape is one")
    });
    profile
}

/// One recorded refusal, or Berth's: the code and the reasons.
type Verdict = (String, Vec<String>);

fn recorded(refusals: &Value) -> BTreeMap<String, Verdict> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verdict = |refusal: &Value| {
        let reasons = refusal["reasons"].as_array().into_iter().flatten();
        (text(&refusal["code"]), reasons.map(text).collect())
    };
    let refusals = refusals.as_object().into_iter().flatten();
    refusals
        .filter(|(_, refusal)| refusal.get("code").is_some())
        .map(|(plugin, refusal)| (plugin.clone(), verdict(refusal)))
        .collect()
}

fn found(refusals: &[Refusal]) -> BTreeMap<String, Verdict> {
    let words = |refusal: &Refusal| refusal.reasons.iter().map(ToString::to_string).collect();
    let verdict = |refusal: &Refusal| (refusal.code.to_string(), words(refusal));
    refusals
        .iter()
        .map(|refusal| (refusal.plugin.to_string(), verdict(refusal)))
        .collect()
}

impl Decided<'_> {
    /// The volumes that the pod would use on a node that fits.
    fn chosen(&self, node: &NodeExamination) -> Chosen {
        let state = FilterState::volume_binding(&self.examination.states);
        let volumes = state
            .and_then(|state| state.on_node(self.cluster, node.node).ok())
            .unwrap_or_default();
        let (bindings, provisions) = self.cluster.binder().describe(&volumes);
        let owned = |(claim, volume): (&str, &str)| (claim.to_owned(), volume.to_owned());
        Chosen {
            bindings: bindings.into_iter().map(owned).collect(),
            provisions: provisions.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Cases answered by exhaustive search: the same nodes, and exactly the least capacity.
    fn compare_matching(&self, expect: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        for node in &self.examination.nodes {
            let fits = expect["fits"][&node.name] == true;
            if fits != node.fits {
                differences.push(format!("{}: searched fits {fits}, found {}", node.name, node.fits));
            } else if fits {
                let chosen = self.chosen(node);
                differences.extend(self.storage.faults(&node.name, &chosen));
                let (least, total) = (&expect["leastCapacityBytes"][&node.name], self.storage.total(&chosen));
                if *least != total || !chosen.provisions.is_empty() {
                    differences.push(format!("{}: least capacity {least}, used {total}", node.name));
                }
            }
        }
        differences
    }

    fn compare(&self, expect: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        let early = recorded(&expect["preFilter"]);
        compare_refusals("preFilter", &early, &found(&self.examination.refused), &mut differences);
        self.compare_only_nodes(expect, &mut differences);
        let recorded_nodes = expect["fits"].as_object().expect("fits is a map");
        assert_eq!(recorded_nodes.len(), self.examination.nodes.len());
        let mut same_fitting = true;
        for node in &self.examination.nodes {
            let refused = recorded(&expect["refused"][&node.name]);
            let fits = recorded_nodes[&node.name] == true;
            if fits != node.fits {
                same_fitting = false;
                if !self.excused(&refused, node, expect) {
                    differences.push(format!("{}: recorded fits {fits}, found {}", node.name, node.fits));
                }
            } else if !self.excused(&refused, node, expect) {
                compare_refusals(&node.name, &refused, &found(&node.refusals), &mut differences);
            }
            if node.fits {
                let chosen = self.chosen(node);
                differences.extend(self.storage.faults(&node.name, &chosen));
                let recorded = Chosen::recorded(&expect["volumes"][&node.name]);
                // A volume whose labels list another zone could not be used there once it is bound: another one, or a
                // new one, is acceptable.
                let elsewhere = self.storage.is_elsewhere(&node.name, &recorded);
                if fits && !elsewhere && !self.as_good(&chosen, &recorded) {
                    differences.push(format!("{}: recorded {recorded:?}, found {chosen:?}", node.name));
                }
            }
        }
        // An additional or missing node changes the basis of comparison for the others.
        if same_fitting {
            for node in self.examination.nodes.iter().filter(|node| node.fits) {
                let recorded = Chosen::recorded(&expect["volumes"][&node.name]);
                let better = self.storage.total(&self.chosen(node)) != self.storage.total(&recorded);
                compare_scores(node, better, expect, &mut differences);
            }
        }
        differences
    }

    fn compare_only_nodes(&self, expect: &Value, differences: &mut Vec<String>) {
        let only_nodes: BTreeMap<_, _> = expect["preFilter"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(plugin, found)| Some((plugin.clone(), found.get("onlyNodes")?.clone())))
            .collect();
        let found_only = self.examination.only_nodes.iter();
        let found_only: BTreeMap<_, _> = found_only
            .map(|(plugin, nodes)| (plugin.to_string(), Value::from(nodes.clone())))
            .collect();
        if only_nodes != found_only {
            differences.push(format!("only nodes: recorded {only_nodes:?}, found {found_only:?}"));
        }
    }

    /// Whether a choice is as good as the recorded one: the same volumes; or as many, with no more capacity; or more of
    /// them.
    fn as_good(&self, chosen: &Chosen, recorded: &Chosen) -> bool {
        let (count, recorded_count) = (chosen.bindings.len(), recorded.bindings.len());
        let claims = |chosen: &Chosen| chosen.bindings.len() + chosen.provisions.len();
        claims(chosen) == claims(recorded)
            && (count > recorded_count
                || count == recorded_count && self.storage.total(chosen) <= self.storage.total(recorded))
    }

    /// Where Berth may decide differently: it assigns the claims of a pod together, existing volumes and new ones, and sums what they
    /// take from one pool.
    fn excused(&self, recorded: &BTreeMap<String, Verdict>, node: &NodeExamination, expect: &Value) -> bool {
        const NO_VOLUMES: &str = "node(s) didn't find available persistent volumes to bind";
        const NO_STORAGE: &str = "node(s) did not have enough free storage";
        let refused_only_for = |reason: &str| {
            let refusal = recorded.get("VolumeBinding");
            refusal.is_some_and(|(_, reasons)| reasons.as_slice() == [reason])
        };
        let only_no_volumes = refused_only_for(NO_VOLUMES);
        // The reference gives away existing volumes first; the remaining claims may then be too large to provision.
        // Another claim might have used them.
        let only_no_storage = refused_only_for(NO_STORAGE) && {
            let chosen = self.chosen(node);
            !chosen.bindings.is_empty() && self.storage.has_room(&node.name, &chosen)
        };
        let others = |verdicts: &BTreeMap<String, Verdict>| {
            let mut others = verdicts.clone();
            others.remove("VolumeBinding");
            others
        };
        let found = found(&node.refusals);
        if others(recorded) != others(&found) {
            return false;
        }
        let refused_for_storage = found
            .get("VolumeBinding")
            .is_some_and(|(_, reasons)| reasons.as_slice() == [NO_STORAGE]);
        let provisions = Chosen::recorded(&expect["volumes"][&node.name]).provisions.len();
        ((only_no_volumes || only_no_storage) && !found.contains_key("VolumeBinding"))
            || (refused_for_storage && !recorded.contains_key("VolumeBinding") && provisions > 1)
    }
}

fn compare_refusals(
    place: &str,
    recorded: &BTreeMap<String, Verdict>,
    found: &BTreeMap<String, Verdict>,
    differences: &mut Vec<String>,
) {
    for plugin in recorded
        .keys()
        .chain(found.keys().filter(|plugin| !recorded.contains_key(*plugin)))
    {
        let (recorded, found) = (recorded.get(plugin), found.get(plugin));
        // The reference gives up on invalid objects; any refusal is acceptable there.
        let gave_up = recorded.is_some_and(|(code, _)| code == Code::Error.as_str()) && found.is_some();
        if recorded != found && !gave_up {
            differences.push(format!("{place}: {plugin}: recorded {recorded:?}, found {found:?}"));
        }
    }
}

fn compare_scores(node: &NodeExamination, better_volumes: bool, expect: &Value, differences: &mut Vec<String>) {
    let recorded = expect["score"].as_object().into_iter().flatten();
    let mut recorded: BTreeMap<_, _> = recorded
        .filter_map(|(plugin, nodes)| Some((plugin.clone(), nodes.get(&node.name)?.as_i64()?)))
        .collect();
    let mut found: BTreeMap<_, _> = node
        .scores
        .iter()
        .map(|(plugin, score)| (plugin.to_string(), *score))
        .collect();
    let (mut total, mut found_total) = (expect["total"][&node.name].as_i64(), node.total);
    if better_volumes {
        // The effect of a better choice of volumes on their score is not compared; everything else is.
        total = total.map(|total| total - recorded.remove("VolumeBinding").unwrap_or(0));
        found_total = found_total.map(|total| total - found.remove("VolumeBinding").unwrap_or(0));
    }
    if recorded != found {
        differences.push(format!("{}: recorded scores {recorded:?}, found {found:?}", node.name));
    }
    if total != found_total {
        differences.push(format!(
            "{}: recorded total {total:?}, found {found_total:?}",
            node.name
        ));
    }
}
