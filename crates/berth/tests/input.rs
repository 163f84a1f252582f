//! Reading clusters from files: what is accepted, what is reported, and that nothing panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth::input::{self, NoProgress, Source};
use berth_core::api::Object;
use proptest::prelude::*;
use std::path::Path;

/// Reads a text and returns the objects as `Kind/ns/name`, or the error message.
fn read(text: &str) -> Result<Vec<String>, String> {
    let mut objects = Vec::new();
    input::read_text("in.yaml", text, &mut |object| objects.push(named(&object)))
        .map(|_| objects)
        .map_err(|error| error.to_string())
}

fn named(object: &Object) -> String {
    format!("{}/{}", object.kind(), object.metadata().full_name())
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(read(text).unwrap_or_else(|error| panic!("{error}")), expected);
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    assert_eq!(read(text).expect_err("this must not be accepted"), expected);
}

#[test]
fn yaml_with_many_documents() {
    check(
        "# a comment\n---\nkind: Node\napiVersion: v1\nmetadata: {name: n1}\n---\n---\n# nothing here\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n...\n",
        &["Node/n1", "Pod/default/p"],
    );
    check("", &[]);
    check("---\n---\n", &[]);
}

#[test]
fn json_one_or_many() {
    check(
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}
           {"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}"#,
        &["Node/n1", "Node/n2"],
    );
    check(
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n2}}\n",
        &["Node/n1", "Node/n2"],
    );
    check(
        "\u{feff}{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}}",
        &["Node/n1"],
    );
}

#[test]
fn lists_of_typed_and_untyped_items() {
    check(
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: n1}\n\
         - apiVersion: v1\n  kind: Pod\n  metadata: {name: p, namespace: ns}\nkind: List\n",
        &["Node/n1", "Pod/ns/p"],
    );
    check(
        "apiVersion: v1\nitems: [{metadata: {name: n1}}, {metadata: {name: n2}}]\nkind: NodeList\n",
        &["Node/n1", "Node/n2"],
    );
    check(
        r#"{"items":[{"metadata":{"name":"local"},"provisioner":"x"}],"kind":"StorageClassList","apiVersion":"storage.k8s.io/v1"}"#,
        &["StorageClass/local"],
    );
    check(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: NodeList, items: [{metadata: {name: n1}}]}\n- {apiVersion: v1, kind: Node, metadata: {name: n2}}",
        &["Node/n1", "Node/n2"],
    );
    check("apiVersion: v1\nkind: List\n", &[]);
    check("apiVersion: v1\nkind: PodList\nitems: null\n", &[]);
    check(r#"{"apiVersion":"v1","kind":"PodList","items":[]}"#, &[]);
}

#[test]
fn kinds_that_decisions_do_not_read_are_counted() {
    let text = "{apiVersion: v1, kind: Secret, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ConfigMap}\n---\n\
                {apiVersion: v1, kind: Secret, metadata: {name: b}}\n---\n{apiVersion: example.com/v1, kind: Node}\n---\n\
                {apiVersion: example.com/v1, kind: Recipe, items: [{flour: 1}]}\n";
    let summary = input::read_text("in.yaml", text, &mut |object| panic!("{}", named(&object))).unwrap();
    assert_eq!(
        summary.to_string(),
        "skipped 5 objects of kinds that decisions do not read: Secret 2, ConfigMap 1, Node 1, Recipe 1"
    );
}

#[test]
fn aliases_and_merges_unfold() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- &n\n  apiVersion: v1\n  kind: Node\n  metadata: &m {name: n1, labels: {zone: a}}\n\
                - <<: *n\n  metadata: {<<: *m, name: n2}\n";
    let mut zones = Vec::new();
    input::read_text("in.yaml", text, &mut |object| {
        zones.push((named(&object), object.metadata().labels["zone"].clone()));
    })
    .unwrap();
    assert_eq!(
        zones,
        [
            ("Node/n1".to_owned(), "a".to_owned()),
            ("Node/n2".to_owned(), "a".to_owned())
        ]
    );
}

#[test]
fn numbers_and_quantities_are_read_as_kubectl_reads_them() {
    let text = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec: {capacity: {storage: 1e3, a: 0x10, b: 1_000, c: 0.5, d: 1.5Ki}}\n";
    let mut found = Vec::new();
    input::read_text("in.yaml", text, &mut |object| {
        let Object::PersistentVolume(volume) = object else {
            panic!("not a volume");
        };
        found = ["storage", "a", "b", "c", "d"]
            .map(|key| volume.spec.capacity[key].milli_value())
            .to_vec();
    })
    .unwrap();
    assert_eq!(found, [1_000_000, 16_000, 1_000_000, 500, 1_536_000]);
}

#[test]
fn a_broken_field_is_named_with_its_place() {
    check_error(
        "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\n\
         metadata: {name: data, namespace: prod}\nspec:\n  resources: {requests: {storage: ten}}\n",
        "in.yaml: document 2 (line 3): PersistentVolumeClaim \"prod/data\": spec.resources.requests.storage: \
         \"ten\" is not a quantity: expected a number with an optional suffix (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, \
         or an exponent), such as 100Gi, 250m or 1e3",
    );
    check_error(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n1}}\n\
         - {apiVersion: v1, kind: Node, metadata: {name: n2, labels: {gpu: yes}}}\n",
        "in.yaml: document 1, item 2 (line 5): Node \"n2\": metadata.labels.gpu: invalid type: boolean `true`, \
         expected a string; put the value in quotes: without them, yes, no, on, off, y, n, true and false are booleans",
    );
    check_error(
        "{\"apiVersion\":\"v1\",\"kind\":\"List\",\n\"items\":[\n{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n2\",\"labels\":{\"v\":1}}}]}",
        "in.yaml: document 1, item 1 (line 3): Node \"n2\": metadata.labels.v: invalid type: integer `1`, \
         expected a string; put the value in quotes: without them it is a number",
    );
    check_error(
        "apiVersion: v1\nkind: Node\nmetadata: {}\n",
        "in.yaml: document 1 (line 1): Node \"\": metadata.name: expected the object's name",
    );
    check_error(
        "just a text\n",
        "in.yaml: document 1 (line 1): a text: expected an object with `apiVersion` and `kind`",
    );
    check_error(
        "items: [{metadata: {name: a}}]\n",
        "in.yaml: document 1, item 1 (line 1): expected `apiVersion` and `kind`: the list is of kind \"\", \
         from which they cannot be told; write them into each item",
    );
}

#[test]
fn every_problem_is_told_up_to_a_bound() {
    let broken = "---\n{apiVersion: v1, kind: Node}\n".repeat(30);
    let error = read(&broken).unwrap_err();
    assert_eq!(error.lines().count(), 21, "{error}");
    assert!(error.ends_with("and 10 more problems"), "{error}");
}

#[test]
fn an_object_that_is_there_twice_is_an_error_with_both_places() {
    check_error(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n\n{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}}\n",
        "Pod \"default/p\" is defined twice: in in.yaml: document 1 (line 1), and in in.yaml: document 2 (line 4); keep one of the two",
    );
}

#[test]
fn syntax_errors_have_a_position() {
    check_error(
        "apiVersion: v1\nkind: Node\nkind: Node\n",
        "in.yaml: document 1 (line 1): line 3, column 1: the key \"kind\" appears twice; keep one",
    );
    check_error(
        "{\"apiVersion\":\"v1\",\n \"a\": {\"b\":1,\"b\":2}}",
        "in.yaml: document 1 (line 1): line 2, column 16: the key \"b\" appears twice; keep one",
    );
    check_error(
        "a: &x [*x]\n",
        "in.yaml: document 1 (line 1): line 1, column 8: the alias refers to a value that it is part of",
    );
    let error = read("{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\na: b: c\n").unwrap_err();
    assert!(
        error.starts_with("in.yaml: document 2 (line 2): line 3, column "),
        "{error}"
    );
    let error = read("a: .inf\n").unwrap_err();
    assert!(error.contains("expected a finite number"), "{error}");
}

#[test]
fn a_billion_laughs_are_cut_short() {
    let mut text = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let error = read(&text).unwrap_err();
    assert!(error.contains("unfold to more than 200000 values"), "{error}");
}

#[test]
fn deep_nesting_is_refused_not_overflown() {
    for text in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        "- ".repeat(100_000),
        (0..3000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
    ] {
        assert!(read(&text).is_err());
    }
}

fn read_paths(paths: &[&Path]) -> Result<Vec<String>, String> {
    let sources: Vec<Source> = paths.iter().map(|path| path.as_os_str().into()).collect();
    let mut objects = Vec::new();
    input::read(&sources, &mut std::io::empty(), &mut NoProgress, &mut |object| {
        objects.push(named(&object));
    })
    .map(|_| objects)
    .map_err(|error| error.to_string())
}

#[test]
fn directories_are_read_in_order_and_to_the_bottom() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let node = |name: &str| format!("{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"{name}\"}}}}");
    write("b.yaml", &node("b"));
    write("a/z.YML", &node("az"));
    write("c.json", &node("c"));
    write("notes.txt", "not for us");
    write(".git/x.yaml", "not for us");
    assert_eq!(
        read_paths(&[directory.path()]).unwrap(),
        ["Node/az", "Node/b", "Node/c"]
    );
    std::fs::write(directory.path().join("bad.json"), "a: b").unwrap();
    let error = read_paths(&[directory.path()]).unwrap_err();
    assert!(
        error.contains("bad.json: document 1 (line 1): line 1, column 1: not JSON: expected value"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_read_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let error = read_paths(&[directory.path()]).unwrap_err();
    assert!(error.contains("holds no .yaml, .yml or .json file"), "{error}");
    let missing = directory.path().join("missing.yaml");
    let error = read_paths(&[&missing]).unwrap_err();
    assert!(error.contains("missing.yaml: No such file"), "{error}");
    let binary = directory.path().join("binary.yaml");
    std::fs::write(&binary, b"a: b\nc: \xff\xfe\n").unwrap();
    let error = read_paths(&[&binary]).unwrap_err();
    assert!(
        error.ends_with("binary.yaml: line 2: not UTF-8 text; expected YAML or JSON in UTF-8"),
        "{error}"
    );
}

/// Reading it would wait for a writer that never comes.
#[cfg(unix)]
#[test]
fn a_pipe_in_a_directory_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let error = read_paths(&[directory.path()]).unwrap_err();
    assert!(error.contains("pipe.yaml: it is not a regular file"), "{error}");
}

#[test]
fn standard_input_is_a_source() {
    let mut objects = Vec::new();
    let mut text = &b"{apiVersion: v1, kind: Node, metadata: {name: n1}}"[..];
    input::read(&[Source::StandardInput], &mut text, &mut NoProgress, &mut |object| {
        objects.push(named(&object));
    })
    .unwrap();
    assert_eq!(objects, ["Node/n1"]);
}

const CORPUS: &[&str] = &[
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: b}}\nspec:\n  containers:\n  - name: c\n    resources: {requests: {cpu: 100m}}\n  volumes:\n  - {name: v, persistentVolumeClaim: {claimName: data}}\n",
    "apiVersion: v1\nkind: PersistentVolume\nmetadata: &m\n  name: pv\nspec:\n  capacity: {storage: 10Gi}\n  accessModes: [ReadWriteOnce]\n  nodeAffinity:\n    required:\n      nodeSelectorTerms:\n      - matchExpressions:\n        - {key: kubernetes.io/hostname, operator: In, values: [n1]}\n",
    "---\napiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: v1, kind: Node, metadata: {name: n1}}\n- <<: *a\n  metadata: {name: n2}\n---\n{}\n",
    r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a","namespace":"x"},"spec":{"nodeName":"n1","overhead":{"cpu":1.5}}}]}"#,
    r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSIStorageCapacity","metadata":{"name":"c"},"storageClassName":"s","capacity":"1Gi","nodeTopology":{"matchLabels":{"zone":"a"}}}"#,
    "apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  annotations:\n    text: |\n      several\n      lines\n    folded: >-\n      and\n      more\nstatus: {allocatable: {cpu: !!str 4, pods: 0x10}}\n",
];

/// Aliases are unfolded, so a few lines of text can be thousands of levels deep.
#[test]
fn documents_have_a_depth_that_any_stack_can_hold() {
    let nested = |depth: usize| format!("a: {}{}\n", "[".repeat(depth), "]".repeat(depth));
    let chained = |links: usize| {
        let link = |at: usize| format!("a{at}: &a{at} {}*a{}{}\n", "[".repeat(50), at - 1, "]".repeat(50));
        format!("a0: &a0 [1]\n{}", (1..=links).map(link).collect::<String>())
    };
    let object = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n";
    // On the stack of a worker thread.
    std::thread::spawn(move || {
        for (text, is_read) in [
            (nested(120), true),
            (nested(128), false),
            (chained(2), true),
            (chained(60), false),
        ] {
            match read(&format!("{object}{text}")) {
                Ok(found) => assert!(is_read && found == ["Node/n1"], "{found:?}"),
                Err(error) => assert!(
                    !is_read && error.contains("nested more than 128 levels deep"),
                    "{error}"
                ),
            }
        }
    })
    .join()
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = input::read(&[Source::StandardInput], &mut &bytes[..], &mut NoProgress, &mut |_| {});
    }

    #[test]
    fn any_yaml_like_text_is_read_or_refused(text in "[-\\[\\]{}:,&*!|>'\"%@#?~ \n\ta-c<0-9.]{0,120}") {
        let _ = read(&text);
    }

    #[test]
    fn mutated_documents_are_read_or_refused(
        which in 0..CORPUS.len(),
        other in 0..CORPUS.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..8),
        splice in any::<prop::sample::Index>(),
    ) {
        let mut bytes = CORPUS[which].as_bytes().to_vec();
        for (at, byte, edit) in edits {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match edit {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => { bytes.remove(at); }
                2 => bytes.insert(at, b"-:[]{}\"'&*!|>\n \t#%@`,?"[usize::from(byte) % 22]),
                _ => bytes.insert(at, byte),
            }
        }
        let tail = CORPUS[other].as_bytes();
        bytes.extend_from_slice(&tail[splice.index(tail.len())..]);
        let _ = input::read(&[Source::StandardInput], &mut &bytes[..], &mut NoProgress, &mut |_| {});
    }

    /// JSON has the same meaning when it is read as YAML.
    #[test]
    fn json_and_yaml_agree(labels in proptest::collection::btree_map("[a-z]{1,5}", "\\PC{0,10}", 0..4)) {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}});
        let mut found = Vec::new();
        let as_json = object.to_string();
        let as_yaml = format!("---\n{as_json}\n");
        for text in [as_json, as_yaml] {
            input::read_text("in", &text, &mut |object| found.push(object.metadata().labels.clone())).unwrap();
        }
        prop_assert_eq!(&found, &vec![labels.clone(), labels]);
    }
}
