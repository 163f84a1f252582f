//! How many more fit.

use crate::clusters::{self, Ask};
use crate::{berth, json_of, write};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How many pods of a simulation do not run, those included that a set has not made.
fn unrun(file: &str, wanted: u64) -> u64 {
    let outcome = json_of(&["simulate", "-f", file, "-o", "json"]);
    let pods = outcome["pods"].as_array().unwrap().iter();
    let running = pods.filter(|pod| pod["phase"] == "Running").count();
    wanted - u64::try_from(running).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn so_many_replicas_run_and_one_more_does_not((objects, [a, b]) in clusters::cluster()) {
        let directory = TempDir::new().unwrap();
        let file = write(&directory, "cluster.json", &objects);
        let answer = json_of(&["plan", "--fit", "sts/a", "-f", &file, "-o", "json"]);
        let fits = u32::try_from(answer["fits"].as_u64().unwrap()).unwrap();
        let with = |more: u32| {
            let scaled = Ask { replicas: a.replicas + more, ..a.clone() };
            let mut objects = objects.clone();
            let set = clusters::set("a", &scaled);
            *objects.iter_mut().find(|object| object["metadata"]["name"] == "a").unwrap() = set;
            let file = write(&directory, "scaled.json", &objects);
            unrun(&file, u64::from(scaled.replicas + b.replicas))
        };
        prop_assert_eq!(with(fits), with(0), "{}", answer);
        prop_assert!(answer["exact"].as_bool().unwrap(), "{}", answer);
        prop_assert!(with(fits + 1) > with(0), "{}", answer);
        prop_assert!(answer["next"]["message"].is_string(), "{}", answer);
    }
}

/// Two nodes of two CPUs, and a file with a pod of one CPU and a claim.
fn pods_and_disks() -> (Vec<Value>, Vec<Value>) {
    let mut objects = vec![clusters::local_class()];
    for name in ["n1", "n2"] {
        objects.push(clusters::node(name, "zone-a", 2));
        objects.push(clusters::disk(&format!("{name}-disk"), name, 10));
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "scratch"}}]}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "scratch", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "5Gi"}}}});
    (objects, vec![claim, pod])
}

#[test]
fn every_replica_of_a_pod_has_the_claims_of_its_file_for_itself() {
    let directory = TempDir::new().unwrap();
    let (objects, more) = pods_and_disks();
    let cluster = write(&directory, "cluster.json", &objects);
    let file = write(&directory, "pod.json", &more);
    let answer = json_of(&["plan", "--fit", &file, "-f", &cluster, "-o", "json"]);
    assert_eq!(answer["fits"], 2, "{answer}");
    assert_eq!(answer["next"]["pod"], "default/job-3");
    let codes: Vec<&Value> = answer["next"]["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|refused| &refused["code"])
        .collect();
    assert_eq!(codes, ["VolumeBinding.BindConflict"], "{answer}");
    assert_eq!(answer["nodes"], json!({"n1": 1, "n2": 1}));
}

#[test]
fn nothing_fits_where_there_is_no_room_and_the_exit_status_says_so() {
    let directory = TempDir::new().unwrap();
    let (objects, more) = pods_and_disks();
    let cluster = write(&directory, "cluster.json", &objects[..1]);
    let file = write(&directory, "pod.json", &more);
    let output = berth(&["plan", "--fit", &file, "-f", &cluster]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("No more replica of Pod default/job fits."), "{said}");
}

#[test]
fn what_cannot_be_counted_is_an_error_that_says_what_was_expected() {
    let directory = TempDir::new().unwrap();
    let (objects, more) = pods_and_disks();
    let cluster = write(&directory, "cluster.json", &objects);
    let claim = write(&directory, "claim.json", &more[..1]);
    for (asked, expected) in [
        ("sts/none", "there is no StatefulSet default/none in the input"),
        (claim.as_str(), "expected a Pod, Deployment"),
        (cluster.as_str(), "expected a Pod, Deployment"),
    ] {
        let output = berth(&["plan", "--fit", asked, "-f", &cluster]);
        assert_eq!(output.status.code(), Some(2), "{asked}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(expected), "{asked}: {said}");
    }
}
