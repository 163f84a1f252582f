//! A manifest that is already applied changes nothing: on top of the cluster that it created, of a snapshot of it, or of
//! an anonymized form of both.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth::input::{self, NoProgress, Source};
use berth::overlay;
use berth::snapshot::{Options, Snapshot};
use berth_cluster::simulation::{self, Simulation};
use berth_kinds::{KINDS, meta};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn charts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/overlay/charts")
}

fn read(paths: &[PathBuf]) -> Vec<Value> {
    let sources: Vec<Source> = paths.iter().cloned().map(Source::Path).collect();
    let mut objects = Vec::new();
    input::read_values(&sources, &mut std::io::empty(), &mut NoProgress, &mut |object| {
        objects.push(object);
    })
    .unwrap_or_else(|error| panic!("{paths:?}: {error}"));
    objects
}

/// Objects as read back from a file.
fn written(snapshot: &Snapshot) -> Vec<Value> {
    let mut objects = Vec::new();
    let text = Source::Text {
        name: "snapshot".into(),
        bytes: snapshot.to_yaml().into_bytes(),
    };
    input::read_values(&[text], &mut std::io::empty(), &mut NoProgress, &mut |object| {
        objects.push(object);
    })
    .unwrap();
    objects
}

/// The objects of a cluster when nothing changes any more.
fn played(objects: Vec<Value>) -> Vec<Value> {
    let mut simulation = Simulation::new(simulation::Options::default());
    simulation.load(objects).unwrap();
    simulation.run(&mut |_| {});
    let objects = simulation.objects();
    let all = KINDS.iter().flat_map(|kind| objects.of_kind(kind.name));
    let mut all: Vec<Value> = all.cloned().collect();
    // Two kinds may share a name.
    all.dedup();
    all
}

/// The pods by name, each with its UID and its node.
fn pods(objects: &[Value]) -> BTreeMap<String, (String, String)> {
    let pods = objects.iter().filter(|object| object["kind"] == "Pod");
    pods.map(|pod| {
        let name = format!("{}/{}", meta::namespace(pod), meta::name(pod));
        let node = meta::text(pod, &["spec", "nodeName"]).to_owned();
        (name, (meta::uid(pod).to_owned(), node))
    })
    .collect()
}

/// The cluster that a manifest created, and the manifest.
struct Applied {
    name: String,
    manifest: Vec<Value>,
    running: Vec<Value>,
}

/// Every chart, and every example that has workloads.
fn applied() -> Vec<Applied> {
    let mut all = Vec::new();
    let cluster = charts().join("cluster.yaml");
    for entry in std::fs::read_dir(charts()).unwrap() {
        let path = entry.unwrap().path();
        if path != cluster {
            let objects = read(&[cluster.clone(), path.clone()]);
            all.push((path.clone(), read(&[path]), objects));
        }
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let manifest = read(std::slice::from_ref(&path));
            if manifest.iter().any(|object| object["spec"]["template"].is_object()) {
                all.push((path, manifest.clone(), manifest));
            }
        }
    }
    assert!(all.len() >= 15, "the charts, and the examples with workloads");
    let applied = |(path, manifest, objects): (PathBuf, Vec<Value>, Vec<Value>)| Applied {
        name: path.file_name().unwrap().to_str().unwrap().to_owned(),
        manifest,
        running: played(objects),
    };
    all.into_iter().map(applied).collect()
}

/// The workloads of a manifest.
fn workloads(objects: &[Value]) -> Vec<Value> {
    let made = objects
        .iter()
        .filter(|object| object["metadata"]["ownerReferences"].is_null());
    made.filter(|object| object["spec"]["template"].is_object())
        .cloned()
        .collect()
}

fn check_unchanged(name: &str, before: &[Value], after: Vec<Value>) {
    let after = played(after);
    assert_eq!(pods(&after), pods(before), "{name}");
}

#[test]
fn a_manifest_over_the_cluster_that_it_made_changes_nothing() {
    for Applied {
        name,
        manifest,
        running,
    } in applied()
    {
        assert!(!pods(&running).is_empty(), "{name} runs");
        check_unchanged(&name, &running, overlay::lay(manifest, running.clone()));
    }
}

#[test]
fn a_manifest_over_a_snapshot_changes_nothing() {
    for Applied {
        name,
        manifest,
        running,
    } in applied()
    {
        let snapshot = Snapshot::of(running.clone(), Options::default());
        check_unchanged(&name, &running, written(&snapshot));
        check_unchanged(&name, &running, overlay::lay(manifest, written(&snapshot)));
    }
}

#[test]
fn a_snapshot_with_made_up_names_changes_nothing() {
    for Applied { name, running, .. } in applied() {
        let options = Options {
            anonymize: true,
            ..Options::default()
        };
        let snapshot = Snapshot::of(running, options);
        let objects = written(&snapshot);
        check_unchanged(&name, &snapshot.objects, objects.clone());
        check_unchanged(&name, &snapshot.objects, overlay::lay(workloads(&objects), objects));
    }
}

/// `kubectl apply` records what it applied; so do the clusters that people take snapshots of.
#[test]
fn a_manifest_over_what_kubectl_applied_changes_nothing() {
    for Applied {
        name,
        manifest,
        mut running,
    } in applied()
    {
        for object in &mut running {
            let same = |other: &&Value| other["kind"] == object["kind"] && meta::name(other) == meta::name(object);
            if let Some(last) = manifest.iter().find(same) {
                let note = last.to_string();
                let path = [
                    "metadata",
                    "annotations",
                    "kubectl.kubernetes.io/last-applied-configuration",
                ];
                meta::set(object, &path, note.into());
            }
        }
        check_unchanged(&name, &running.clone(), overlay::lay(manifest, running));
    }
}

/// A real change is detected: the tests above could not fail otherwise.
#[test]
fn another_image_is_a_rollout() {
    let mut changed = 0;
    for Applied {
        name,
        manifest,
        running,
    } in applied()
    {
        let has_rollout = |object: &&mut Value| {
            let kind = object["kind"].as_str().unwrap();
            matches!(kind, "Deployment" | "DaemonSet") || (kind == "StatefulSet" && name == "kafka.yaml")
        };
        let mut manifest = manifest;
        for workload in manifest.iter_mut().filter(has_rollout) {
            workload["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other:2");
            changed += 1;
        }
        let before = pods(&running);
        let snapshot = Snapshot::of(running, Options::default());
        let after = pods(&played(overlay::lay(manifest.clone(), written(&snapshot))));
        let is_changed = manifest.iter().any(|object| object.to_string().contains("other:2"));
        assert_eq!(after != before, is_changed, "{name}");
    }
    assert!(changed >= 4);
}
