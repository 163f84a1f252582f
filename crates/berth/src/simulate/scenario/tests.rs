use super::*;

const HEAD: &str = "apiVersion: berth.dev/v1alpha1\nkind: Scenario\n";

fn read(steps: &str) -> Result<Scenario, String> {
    let text = format!("{HEAD}{steps}");
    read_text(&"s.yaml".into(), &text, Path::new("")).map_err(|error| error.to_string())
}

#[test]
fn every_action_is_read() {
    let scenario = read(
        "metadata: {name: all}
steps:
- at: 0s
  do:
  - addNodes: {count: 2, generateName: new-, like: n1, labels: {disk: ssd}}
  - addNodes: {generateName: big-, template: {status: {allocatable: {cpu: '64'}}}}
  - deleteNodes: {nodes: [n1]}
  - cordon: {zone: a}
  - uncordon: {nodeSelector: {disk: ssd}}
  - drain: {nodes: [n1], disableEviction: true}
- at: 1h30m
  name: later
  do:
  - stopNodes: {zone: a}
  - startNodes: {zone: a}
  - refusePods: {nodes: [n2]}
  - scale: {kind: Deployment, namespace: shop, name: web, replicas: 3}
  - delete: {kind: PersistentVolumeClaim, name: data}
  - apply: {objects: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]}
  - setCapacity: {storageClass: lvm, nodeTopology: {zone: a}, capacity: '0'}
",
    )
    .unwrap();
    assert_eq!(scenario.steps.len(), 2);
    assert_eq!(
        scenario.steps[0].name,
        "addNodes, addNodes, deleteNodes, cordon, uncordon, drain"
    );
    assert_eq!(scenario.steps[1].name, "later");
    assert_eq!(scenario.steps[1].at, SignedDuration::from_mins(90));
    assert_eq!(scenario.steps[1].actions.len(), 7);
}

#[test]
fn what_is_wrong_is_said_with_its_step_and_field() {
    for (steps, said) in [
        ("steps: []", "s.yaml: steps: there is none"),
        ("step: []", "unknown field `step`"),
        (
            "steps: [{at: 5m, do: []}]",
            "s.yaml: steps[0].do: there is nothing to do",
        ),
        (
            "steps: [{at: soon, do: [{cordon: {zone: a}}]}]",
            "s.yaml: steps[0].at: found \"soon\", expected a time from the start, such as 90s, 10m or 1h30m",
        ),
        (
            "steps: [{at: 10, do: [{cordon: {zone: a}}]}]",
            "s.yaml: steps[0].at: found 10 without a unit, expected a time from the start; write 10s or 10m",
        ),
        (
            "steps: {at: 10m}",
            "s.yaml: steps: found fields, expected a list, such as [a, b]",
        ),
        (
            "steps: [{at: 5m, do: [drain]}]",
            "s.yaml: steps[0].do[0]: found \"drain\" alone, expected what it is done to",
        ),
        (
            "steps: [{at: 5m, do: {drain: {nodes: [a]}}}]",
            "s.yaml: steps[0].do: found fields, expected a list",
        ),
        (
            "steps: [{at: 5m, do: [{cordon: {zone: a}}]}, {at: 4m, do: [{cordon: {zone: a}}]}]",
            "s.yaml: steps[1].at: 4m is before the step above",
        ),
        (
            "steps: [{at: 5m, do: [{explode: {}}]}]",
            "s.yaml: steps[0].do[0]: there is no action `explode`; known are addNodes, ",
        ),
        (
            "steps: [{at: 5m, do: [{cordon: {zones: a}}]}]",
            "s.yaml: steps[0].do[0].cordon.zones: unknown field `zones`",
        ),
        (
            "steps: [{at: 5m, do: [{cordon: {}}]}]",
            "s.yaml: steps[0].do[0].cordon: it selects no nodes",
        ),
        (
            "steps: [{at: 5m, do: [{drain: {}}]}]",
            "s.yaml: steps[0].do[0].drain: it selects no nodes",
        ),
        (
            "steps: [{at: 5m, do: [{addNodes: {generateName: new-}}]}]",
            "s.yaml: steps[0].do[0].addNodes: expected either `like`",
        ),
        (
            "steps: [{at: 5m, do: [{addNodes: {generateName: new-, like: a, count: 0}}]}]",
            "s.yaml: steps[0].do[0].addNodes.count: found 0",
        ),
        (
            "steps: [{at: 5m, do: [{scale: {kind: Pod, name: a, replicas: 1}}]}]",
            "s.yaml: steps[0].do[0].scale.kind: found \"Pod\", expected Deployment",
        ),
        (
            "steps: [{at: 5m, do: [{scale: {kind: Pod, name: a, replicas: -1}}]}]",
            "s.yaml: steps[0].do[0].scale.replicas: found the number `-1`, expected a whole number",
        ),
        (
            "steps: [{at: 5m, do: [{apply: {}}]}]",
            "s.yaml: steps[0].do[0].apply: expected `filename` or `objects`",
        ),
        (
            "steps: [{at: 5m, do: [{apply: {filename: no-such-file.yaml}}]}]",
            "s.yaml: steps[0].do[0].apply: no-such-file.yaml: No such file",
        ),
        (
            "steps: [{at: 5m, do: [{apply: {objects: [{apiVersion: v1, kind: Pod, metadata: {name: 5}}]}}]}]",
            "s.yaml: steps[0].do[0].apply: objects: document 1, item 1",
        ),
        (
            "steps: [{at: 5m, do: [{setCapacity: {storageClass: a, capacity: much}}]}]",
            "s.yaml: steps[0].do[0].setCapacity.capacity: ",
        ),
    ] {
        let error = read(steps).unwrap_err();
        assert!(error.contains(said), "{steps}\n  said {error}\n  not  {said}");
    }
    let other = read_text(&"s.yaml".into(), "apiVersion: v1\nkind: Pod\n", Path::new(""));
    assert!(
        other
            .unwrap_err()
            .to_string()
            .contains("expected \"berth.dev/v1alpha1\" and \"Scenario\"")
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(at|do|zone|drain|[a-z0-9:{}\\[\\] ,\n-]){0,40}") {
        let _ = read(&format!("steps:\n- at: 5m\n  do:\n  - {text}"));
        let _ = read(&text);
    }
}
