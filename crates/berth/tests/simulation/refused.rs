//! What cannot be simulated is reported with exit status 2, and never hangs.

use super::*;

fn refusal(objects: &[Value]) -> String {
    let output = run("simulate", objects, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    stderr(&output).to_owned()
}

#[test]
fn a_workload_that_an_api_server_refuses_is_refused() {
    let labelled = |labels: Value| json!({"template": {"metadata": {"labels": labels}}});
    let costly =
        json!({"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1x"}}}]}}});
    for (object, said) in [
        (
            workload("Deployment", "w", labelled(json!({"app": "other"}))),
            "Deployment \"w\": spec.selector: does not match the labels of spec.template",
        ),
        (
            workload("ReplicaSet", "w", labelled(json!({"app": "other"}))),
            "ReplicaSet \"w\": spec.selector: does not match",
        ),
        (
            workload("StatefulSet", "w", labelled(json!({"app": 1}))),
            "spec.template.metadata.labels.app: invalid type: integer `1`, expected a string; put the value in quotes",
        ),
        (
            object("apps/v1", "Deployment", "w", json!({})),
            "Deployment \"w\": spec: is missing",
        ),
        (
            workload("Deployment", "w", costly),
            "spec.template.spec.containers[0].resources.requests.cpu: \"1x\" is not a quantity",
        ),
        (
            workload("Deployment", "w", json!({"replicas": -1})),
            "spec.replicas: found -1",
        ),
    ] {
        let error = refusal(&[node("n1", "a"), object]);
        assert!(error.contains(said), "{error}");
        assert!(
            error.starts_with("error: standard input: document 1, item 2"),
            "{error}"
        );
    }
}

/// Nothing refuses this one: its pods fail as soon as they are on the node.
#[test]
fn a_workload_that_never_gets_there_comes_to_an_end() {
    let mut refusing = node("n1", "a");
    merge(
        &mut refusing,
        json!({"metadata": {"annotations": {"berth.dev/agent": "refuse"}}}),
    );
    let objects = [refusing, workload("Deployment", "w", json!({"replicas": 2}))];
    let outcome = simulated(&objects, &[]);
    let pods = outcome["pods"].as_array().unwrap();
    assert!((10..200).contains(&pods.len()), "{} pods in two hours", pods.len());
    assert!(pods.iter().all(|pod| pod["phase"] != "Running"));
    assert_ne!(outcome["summary"]["notRunning"], 0);
}

#[test]
fn nothing_to_simulate_is_an_error() {
    for text in [
        "",
        "# nothing\n---\n",
        "apiVersion: v1\nkind: Pood\nmetadata: {name: p}\n",
    ] {
        let output = run_text("simulate", text, &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("there is nothing to simulate"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn fields_that_do_not_exist_are_told_and_bad_names_refused() {
    let output = run(
        "simulate",
        &[node("n1", "a"), pod("p", json!({}), json!({"nodeSelectr": {"a": "b"}}))],
        &[],
    );
    assert_eq!(output.status.code(), Some(0));
    let said = "Pod \"p\": spec.nodeSelectr: Kubernetes has no such field; it is ignored; did you mean `nodeSelector`?";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    let told = run(
        "explain",
        &[node("n1", "a"), pod("p", json!({}), json!({"nodeSelectr": {}}))],
        &["--pod", "p"],
    );
    assert!(stderr(&told).contains(said), "{}", stderr(&told));
    let error = refusal(&[node("N_1", "a")]);
    assert!(error.contains("metadata.name: found \"N_1\", expected"), "{error}");
}

#[test]
fn a_priority_class_that_is_not_there_is_an_error() {
    let named = json!({"priorityClassName": "gone"});
    let said = "spec.priorityClassName: no PriorityClass with name gone was found";
    let error = refusal(&[node("n1", "a"), pod("p", json!({}), named.clone())]);
    assert!(error.contains(&format!("Pod \"default/p\": {said}")), "{error}");
    assert_eq!(error.matches("no PriorityClass").count(), 1, "{error}");
    let error = refusal(&[workload("Deployment", "w", json!({"template": {"spec": named}}))]);
    assert!(error.contains(said), "{error}");
    let output = run(
        "explain",
        &[node("n1", "a"), pod("p", json!({}), named)],
        &["--pod", "p"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
}

/// A step may specify only the changes of an existing workload, but not create an incomplete one.
#[test]
fn a_scenario_changes_workloads_by_parts_and_checks_the_whole() {
    let part = |name: &str| object("apps/v1", "Deployment", name, json!({"spec": {"replicas": 3}}));
    let objects = [node("n1", "a"), workload("Deployment", "w", json!({}))];
    let steps = |name: &str| scenario(json!([{"at": "1m", "do": [{"apply": {"objects": [part(name)]}}]}]));
    let outcome = simulated(&objects, &["--scenario", steps("w").path().to_str().unwrap()]);
    assert_eq!(outcome["summary"]["placed"], 3, "{outcome}");
    let output = run(
        "simulate",
        &objects,
        &["--scenario", steps("other").path().to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(2));
    let said = "apply: at 1m: Deployment default/other: spec.selector: is missing";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
}

#[test]
fn an_agent_that_does_not_exist_is_told_and_a_gate_too() {
    let mut odd = node("n1", "a");
    merge(
        &mut odd,
        json!({"metadata": {"annotations": {"berth.dev/agent": "sotp"}}}),
    );
    let output = run("simulate", &[odd], &[]);
    let said = "Node \"n1\": annotation berth.dev/agent: found \"sotp\", expected run, cordon, refuse or stop";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    let output = run("simulate", &[node("n1", "a")], &["--feature-gates", "Foo=true"]);
    assert!(stderr(&output).contains("error: --feature-gates: there is no feature gate \"Foo\""));
    assert_eq!(stderr(&output).matches("Foo").count(), 1, "{}", stderr(&output));
}
