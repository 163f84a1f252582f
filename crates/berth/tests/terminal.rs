//! Whatever an object contains, a terminal displays it and does not interpret it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// Clears the screen, renames the window, hides what follows, starts a sequence in one character, returns to the start
/// of the line, changes the text direction, writes black on black, and starts a new line.
const HOSTILE: &str = "a\x1b[2J\x1b]0;owned\x07\x1b[8m\u{9b}2J\r\u{202e}b\x1b[30m\nforged";

/// One object of each kind that commands display.
fn objects() -> Value {
    let labels = json!({"kubernetes.io/hostname": "n1", "zone": "a"});
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let template = json!({"metadata": {"labels": {"app": "w"}}, "spec": {
        "containers": [{"name": "m", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels, "annotations": {"note": "x"}},
            "spec": {"taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/gpu": "1"}}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": {"zone": "b"}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"},
            "parameters": {"type": "ssd"}, "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "namespace": "ns", "annotations": {"x": "y"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": template}},
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "ns"}, "type": "Warning",
            "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"}, "reason": "FailedScheduling", "message": "no node",
            "source": {"component": "default-scheduler"}, "lastTimestamp": "2026-01-01T00:00:00Z"},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv", "labels": {"k": "v"}, "annotations": {"x": "y"}},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
                "csi": {"driver": "d.example.com", "volumeHandle": "h"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "ns", "labels": {"k": "v"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"k": "v"}}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}},
            "spec": {"schedulerName": "default-scheduler", "nodeSelector": {"zone": "a"}, "priorityClassName": "high",
                "containers": [{"name": "m", "image": "i", "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}}}],
                "tolerations": [{"key": "t", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "lost", "persistentVolumeClaim": {"claimName": "missing"}}]}},
    ]})
}

/// The paths of all strings in a value.
fn texts(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                texts(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                texts(
                    field,
                    &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Fields whose keys are chosen by users.
const KEYED: [&str; 8] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "parameters",
    "allocatable",
    "requests",
    "capacity",
];

/// The list with a hostile text in one place: each string, and one key of each map whose keys users choose.
fn hostile_lists() -> Vec<(String, Value)> {
    let list = objects();
    let mut places = Vec::new();
    texts(&list, "", &mut places);
    let mut lists = Vec::new();
    for place in &places {
        let mut changed = list.clone();
        *changed.pointer_mut(place).unwrap() = HOSTILE.into();
        lists.push((place.clone(), changed));
    }
    places.retain_mut(|place| {
        place.truncate(place.rfind('/').unwrap());
        KEYED.iter().any(|keyed| place.ends_with(&format!("/{keyed}")))
    });
    places.dedup();
    for map in places {
        let mut changed = list.clone();
        let fields = changed.pointer_mut(&map).unwrap().as_object_mut().unwrap();
        let key = fields.keys().next().unwrap().clone();
        let value = fields.remove(&key).unwrap();
        fields.insert(HOSTILE.to_owned(), value);
        lists.push((format!("a key of {map}"), changed));
    }
    lists
}

/// The output of a command that reads an object list from standard input.
fn output(arguments: &[&str], list: &Value) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(list.to_string().as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.code().is_some_and(|code| code <= 2),
        "{arguments:?}: {list}"
    );
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Whether a text contains what a terminal interprets, except the plain styles of tables.
fn is_obeyed(text: &str) -> bool {
    let sequences = text.split('\x1b').skip(1);
    let foreign = |sequence: &str| {
        let end = sequence.find(|letter: char| !"[0123456789;".contains(letter));
        let style = end.map(|end| &sequence[..=end]);
        !matches!(style, Some("[0m" | "[1m" | "[31m" | "[32m" | "[33m"))
    };
    let control = |letter: char| letter.is_control() && !"\n\t\x1b".contains(letter) || letter == '\u{202e}';
    sequences.into_iter().any(foreign) || text.contains(control)
}

/// What `berth up` prints until it serves these objects, or has refused them.
fn greeting(list: &Value) -> String {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args([
            "--color",
            "always",
            "up",
            "-f",
            "-",
            "--no-view",
            "--components",
            "api",
            "--kubeconfig",
        ])
        .arg(kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(list.to_string().as_bytes()).unwrap();
    drop(input);
    let mut printed = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    while out.read_line(&mut printed).unwrap() > 0 && !printed.contains("Ctrl-C") {}
    child.kill().unwrap();
    child.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    child.wait().unwrap();
    printed
}

#[track_caller]
fn assert_not_obeyed(what: &str, text: &str) {
    assert!(!is_obeyed(text), "{what}: {text:?}");
    let begins = |line: &str| line.starts_with("forged");
    assert!(!text.lines().any(begins), "{what}: {text}");
}

/// Runs a check for each list, on all processors. Gives how often it is true.
fn count(lists: &[(String, Value)], check: impl Fn(&str, &Value) -> bool + Sync) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let check = &check;
    std::thread::scope(|scope| {
        let parts: Vec<_> = lists
            .chunks(lists.len().div_ceil(threads))
            .map(|part| scope.spawn(move || part.iter().filter(|(place, list)| check(place, list)).count()))
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    })
}

fn is_shown_in_letters(place: &str, list: &Value, commands: &[&[&str]]) -> bool {
    let outputs = commands.iter().map(|command| {
        let text = output(command, list);
        assert_not_obeyed(&format!("{place} {command:?}"), &text);
        text.contains("owned")
    });
    outputs.filter(|shown| *shown).count() > 0
}

#[test]
fn no_text_of_an_object_is_obeyed() {
    let commands: [&[&str]; 5] = [
        &["--color", "always", "explain", "-f", "-", "--pod", "ns/p"],
        &["explain", "-f", "-", "--pod", "ns/p", "-o", "json"],
        &["--color", "always", "simulate", "-f", "-"],
        &["simulate", "-f", "-", "-o", "json"],
        &["simulate", "-f", "-", "-o", "html"],
    ];
    let lists = hostile_lists();
    assert!(lists.len() > 100, "{}", lists.len());
    let shown = count(&lists, |place, list| is_shown_in_letters(place, list, &commands));
    assert!(shown > 30, "the texts come out in letters: {shown}");
}

#[test]
fn no_text_is_obeyed_when_other_objects_are_explained_and_capacity_is_planned() {
    let commands: [&[&str]; 6] = [
        &["--color", "always", "explain", "-f", "-"],
        &["--color", "always", "explain", "-f", "-", "-n", "ns", "pvc/c"],
        &["--color", "always", "explain", "-f", "-", "pv/pv"],
        &["--color", "always", "explain", "-f", "-", "node/n1"],
        &["--color", "always", "explain", "-f", "-", "-n", "ns", "deploy/w"],
        &["--color", "always", "plan", "-f", "-"],
    ];
    let shown = count(&hostile_lists(), |place, list| {
        is_shown_in_letters(place, list, &commands)
    });
    assert!(shown > 30, "the texts come out in letters: {shown}");
}

#[test]
fn no_text_is_obeyed_when_a_cluster_is_started() {
    let shown = count(&hostile_lists(), |place, list| {
        let text = greeting(list);
        assert_not_obeyed(place, &text);
        text.contains("owned")
    });
    assert!(shown > 30, "the texts come out in letters: {shown}");
}

#[test]
fn a_screen_is_drawn_on_terminals_alone() {
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["view", "--terminal", "--kubeconfig", "no-such-kubeconfig"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stdout, b"");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("--terminal needs a terminal"), "{told}");
}
