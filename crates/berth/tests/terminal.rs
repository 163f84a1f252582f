//! Whatever an object contains, a terminal displays it and does not interpret it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// Clears the screen, renames the window, hides what follows, starts a sequence in one character, returns to the start
/// of the line, changes the text direction, writes black on black, and starts a new line.
const HOSTILE: &str = "a\x1b[2J\x1b]0;owned\x07\x1b[8m\u{9b}2J\r\u{202e}b\x1b[30m\nforged";

/// One object of each kind that commands display.
fn objects() -> Value {
    let labels = json!({"kubernetes.io/hostname": "n1", "zone": "a"});
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels},
            "spec": {"taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": {"zone": "b"}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"},
            "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
                "csi": {"driver": "d.example.com", "volumeHandle": "h"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"k": "v"}}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}},
            "spec": {"schedulerName": "default-scheduler", "nodeSelector": {"zone": "a"}, "priorityClassName": "high",
                "containers": [{"name": "m", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
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

#[test]
fn no_text_of_an_object_is_obeyed() {
    let list = objects();
    let mut places = Vec::new();
    texts(&list, "", &mut places);
    assert!(places.len() > 60, "{}", places.len());
    let commands: [&[&str]; 5] = [
        &["--color", "always", "explain", "-f", "-", "--pod", "ns/p"],
        &["explain", "-f", "-", "--pod", "ns/p", "-o", "json"],
        &["--color", "always", "simulate", "-f", "-"],
        &["simulate", "-f", "-", "-o", "json"],
        &["simulate", "-f", "-", "-o", "html"],
    ];
    let mut shown = 0;
    for place in &places {
        let mut changed = list.clone();
        *changed.pointer_mut(place).unwrap() = HOSTILE.into();
        for command in commands {
            let text = output(command, &changed);
            assert!(!is_obeyed(&text), "{place} {command:?}: {text:?}");
            let begins = |line: &str| line.starts_with("forged");
            assert!(!text.lines().any(begins), "{place} {command:?}: {text}");
            shown += usize::from(text.contains("owned"));
        }
    }
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
