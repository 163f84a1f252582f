//! How many more fit.

use crate::{berth, disk, json_of, local_class, node, write};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Two nodes of two CPUs, and a file with a pod of one CPU and a claim.
fn pods_and_disks() -> (Vec<Value>, Vec<Value>) {
    let mut objects = vec![local_class()];
    for name in ["n1", "n2"] {
        objects.push(node(name, "zone-a", 2));
        objects.push(disk(&format!("{name}-disk"), name, 10));
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
