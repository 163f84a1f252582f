//! Checks that the manifests in `examples/` are complete, valid, and have an outcome to check.

use super::expect::{Outcome, Pattern, parse};
use berth_cluster::{Objects, View, field, workloads};
use berth_core::api::Object;
use serde_json::Value;
use std::path::PathBuf;

/// One story of KEP-490, KEP-1472 or KEP-1845 for each file, next to its negative form.
const STORIES: [&str; 25] = [
    "class-weights",
    "closest-fit",
    "delayed-binding",
    "fallback-to-provisioning",
    "immediate-binding",
    "local-volume",
    "multi-zonal-volume",
    "pmem-ephemeral-volume",
    "preemption",
    "quickstart",
    "rack-volume",
    "regional-volume",
    "regional-volume-one-zone",
    "restricted-topology",
    "restricted-topology-racks",
    "rollback",
    "several-claims",
    "statefulset-affinity",
    "statefulset-affinity-too-few",
    "statefulset-anti-affinity",
    "statefulset-anti-affinity-too-few",
    "storage-capacity",
    "wrong-node",
    "zonal-label-upgrade",
    "zonal-volume",
];

fn examples() -> Vec<(String, String)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    let story = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(story).collect()
}

fn objects(name: &str, text: &str) -> Objects {
    let documents = text.split("\n---\n").skip(1);
    documents
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap_or_else(|problem| panic!("{name}: {problem}")))
        .collect()
}

#[test]
fn every_story_has_its_file() {
    let mut names: Vec<String> = examples().into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, STORIES);
}

#[test]
fn every_object_is_whole() {
    for (name, text) in examples() {
        berth::input::read_text(&name, &text, &mut |_| {}).unwrap();
        for object in objects(&name, &text).iter() {
            let what = format!("{name}: {} {}", field::kind(object), field::name(object));
            assert!(!field::text(object, "/apiVersion").is_empty(), "{what}");
            let decoded = Object::decode(object).unwrap_or_else(|error| panic!("{what}: {error}"));
            match decoded {
                Some(decoded) => {
                    let is_namespaced = decoded.kind().is_namespaced();
                    assert_eq!(is_namespaced, !field::namespace(object).is_empty(), "{what}");
                }
                None => assert!(workloads::KINDS.contains(&field::kind(object)), "{what}"),
            }
            if workloads::KINDS.contains(&field::kind(object)) {
                assert_eq!(field::namespace(object), "default", "{what}");
                let selector = workloads::Selector::of(object);
                assert!(selector.selects(&object["spec"]["template"]), "{what}");
            }
        }
    }
}

/// Every class, claim and node that an object refers to is in the same file.
#[test]
fn every_file_stands_alone() {
    for (name, text) in examples() {
        let objects = objects(&name, &text);
        assert!(objects.of_kind("Node").next().is_some(), "{name} has no nodes");
        let has = |kind: &str, namespace: &str, named: &str| {
            assert!(
                objects.get(kind, namespace, named).is_some(),
                "{name}: there is no {kind} {named}"
            );
        };
        let claims = objects.of_kind("PersistentVolumeClaim");
        let templates = objects
            .of_kind("StatefulSet")
            .flat_map(|set| field::items(set, "/spec/volumeClaimTemplates"));
        for claim in claims.chain(templates).chain(objects.of_kind("PersistentVolume")) {
            match field::text(claim, "/spec/storageClassName") {
                "" => {}
                class => has("StorageClass", "", class),
            }
        }
        for pod in objects.of_kind("Pod") {
            for volume in field::items(pod, "/spec/volumes") {
                match field::text(volume, "/persistentVolumeClaim/claimName") {
                    "" => {}
                    claim => has("PersistentVolumeClaim", "default", claim),
                }
            }
            match field::text(pod, "/spec/nodeName") {
                "" => {}
                node => has("Node", "", node),
            }
        }
    }
}

/// Every example has expectations, about objects that are in the file or that its StatefulSets create.
#[test]
fn every_expectation_is_about_something() {
    for (name, text) in examples() {
        let expectations = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!expectations.is_empty(), "{name} expects nothing");
        let objects = objects(&name, &text);
        for expectation in expectations {
            let (kind, pattern, volumes) = subject(&expectation.outcome);
            let is_known = pattern.is_none_or(|pattern| is_made(&objects, kind, pattern));
            assert!(is_known, "{name}: {expectation}");
            for volume in volumes {
                assert!(
                    objects.get("PersistentVolume", "", volume).is_some(),
                    "{name}: {expectation}"
                );
            }
        }
    }
}

fn subject(outcome: &Outcome) -> (&str, Option<&Pattern>, &[String]) {
    match outcome {
        Outcome::PodOn(pods, _)
        | Outcome::PodPending(pods, _)
        | Outcome::PodWaiting(pods, _)
        | Outcome::PodGone(pods)
        | Outcome::PodsOn(_, pods, _) => ("Pod", Some(pods), &[]),
        Outcome::ClaimBound(claims, volumes) => ("PersistentVolumeClaim", Some(claims), volumes),
        Outcome::ClaimPending(claims) | Outcome::ClaimReachable(claims, _) => {
            ("PersistentVolumeClaim", Some(claims), &[])
        }
        Outcome::VolumeAvailable(volume) | Outcome::VolumeBound(volume) => ("", None, std::slice::from_ref(volume)),
        Outcome::Event(kind, object, _, _) => (kind, Some(object), &[]),
    }
}

fn is_made(objects: &Objects, kind: &str, pattern: &Pattern) -> bool {
    let is_there = objects.get(kind, &pattern.namespace, &pattern.name).is_some();
    let is_of_set = |set: &Value| match kind {
        "Pod" => pattern.name.starts_with(&format!("{}-", field::name(set))),
        "PersistentVolumeClaim" => field::items(set, "/spec/volumeClaimTemplates").iter().any(|template| {
            pattern
                .name
                .starts_with(&format!("{}-{}-", field::name(template), field::name(set)))
        }),
        _ => false,
    };
    is_there || objects.of_kind("StatefulSet").any(is_of_set)
}
