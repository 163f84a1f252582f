//! The verdict, the section NOT RUNNING, the JSON and the exit status agree on which pods do not run.

use super::*;

/// The exit status, the table and the JSON of a simulation. The two runs must agree on the status.
fn verdict(objects: &[Value], arguments: &[&str]) -> (Option<i32>, String, Value) {
    let table = run("simulate", objects, arguments);
    let json = run("simulate", objects, &[&["-o", "json"], arguments].concat());
    assert_eq!(table.status.code(), json.status.code());
    let outcome = json_of(&json);
    let listed = outcome["notRunning"].as_array().unwrap().len();
    assert_eq!(outcome["summary"]["notRunning"], listed, "{outcome}");
    let text = String::from_utf8(table.stdout).unwrap();
    assert_eq!(text.contains("NOT RUNNING"), listed > 0, "{text}");
    (table.status.code(), text, outcome)
}

/// Asserts that everything runs.
fn all_run(objects: &[Value], arguments: &[&str]) -> Value {
    let (status, text, outcome) = verdict(objects, arguments);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.starts_with("Every pod has a node"), "{text}");
    outcome
}

/// Asserts the beginning of the verdict, and returns what does not run, as `name: message`.
fn not_running(objects: &[Value], arguments: &[&str], begin: &str) -> Vec<String> {
    let (status, text, outcome) = verdict(objects, arguments);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with(begin), "{text}");
    listed(&outcome["notRunning"])
}

/// Returns the evicted pods that nothing creates again. They do not exist, so that everything runs.
fn evicted(objects: &[Value]) -> Vec<String> {
    let (status, text, outcome) = verdict(objects, &[]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("EVICTED, NOT CREATED AGAIN"), "{text}");
    listed(&outcome["evicted"])
}

/// Pods as `name: message`.
fn listed(pods: &Value) -> Vec<String> {
    let part = |pod: &Value, name: &str| pod[name].as_str().unwrap().to_owned();
    let pods = pods.as_array().unwrap().iter();
    pods.map(|pod| format!("{}: {}", part(pod, "pod"), part(pod, "message")))
        .collect()
}

fn with_agent(mut node: Value, mode: &str) -> Value {
    merge(
        &mut node,
        json!({"metadata": {"annotations": {"berth.dev/agent": mode}}}),
    );
    node
}

fn on_node(mut pod: Value, node: &str, status: Value) -> Value {
    merge(&mut pod, json!({"spec": {"nodeName": node}, "status": status}));
    pod
}

#[test]
fn a_pod_on_a_node_that_does_not_respond_does_not_run() {
    let objects = [
        with_agent(node("n1", "a"), "stop"),
        on_node(pod("p", json!({}), json!({})), "n1", json!({"phase": "Pending"})),
    ];
    let found = not_running(&objects, &[], "1 pod does not run: 1 of 1 pods placed");
    assert_eq!(found, ["default/p: node n1 does not respond"]);
}

#[test]
fn a_pod_that_cannot_leave_a_stopped_node_does_not_run() {
    let objects = [node("n1", "a"), pod("p", json!({}), json!({}))];
    let steps = scenario(json!([{"at": "1m", "do": [{"stopNodes": {"nodes": ["n1"]}}]}]));
    let path = steps.path().to_str().unwrap();
    let found = not_running(&objects, &["--scenario", path], "1 pod does not run");
    assert_eq!(found, ["default/p: terminating, but node n1 does not respond"]);
}

/// Its ReplicaSet has another pod instead.
#[test]
fn a_replaced_pod_on_a_stopped_node_is_not_missed() {
    let mut cordoned = node("n2", "b");
    merge(&mut cordoned, json!({"spec": {"unschedulable": true}}));
    let objects = [
        node("n1", "a"),
        cordoned,
        workload("Deployment", "w", json!({"replicas": 1})),
    ];
    let steps = scenario(json!([{"at": "1m", "do": [
        {"uncordon": {"nodes": ["n2"]}}, {"stopNodes": {"nodes": ["n1"]}}]}]));
    let outcome = all_run(&objects, &["--scenario", steps.path().to_str().unwrap()]);
    assert_eq!(outcome["summary"]["pods"], 2, "the old pod is still there: {outcome}");
}

#[test]
fn a_finished_pod_on_a_stopped_node_is_not_missed() {
    let done = pod("p", json!({}), json!({"restartPolicy": "Never"}));
    let objects = [
        with_agent(node("n1", "a"), "stop"),
        on_node(done, "n1", json!({"phase": "Succeeded"})),
    ];
    all_run(&objects, &[]);
}

/// Snapshots of real clusters contain evicted pods that their workloads replaced long ago.
#[test]
fn a_failed_pod_that_its_workload_has_replaced_is_history() {
    let mut set = workload("ReplicaSet", "w", json!({"replicas": 1}));
    merge(
        &mut set,
        json!({"metadata": {"uid": "uid-set", "namespace": "default"}}),
    );
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "uid-set", "controller": true}]);
    let mut old = pod("old", json!({}), json!({}));
    merge(
        &mut old,
        json!({"metadata": {"ownerReferences": owner, "labels": set["spec"]["selector"]["matchLabels"]}}),
    );
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
    let objects = [node("n1", "a"), set, on_node(old, "n1", evicted)];
    all_run(&objects, &[]);
}

#[test]
fn a_failed_pod_without_a_workload_does_not_run() {
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
    let objects = [node("n1", "a"), on_node(pod("p", json!({}), json!({})), "n1", evicted)];
    let found = not_running(&objects, &[], "1 pod does not run");
    assert_eq!(found, ["default/p: low on memory"]);
}

#[test]
fn a_rejected_pod_that_runs_elsewhere_is_history() {
    let objects = [
        with_agent(node("n1", "a"), "refuse"),
        node("n2", "b"),
        workload("Deployment", "w", json!({"replicas": 2})),
    ];
    all_run(&objects, &[]);
}

#[test]
fn a_rejected_pod_that_should_run_once_does_not_run() {
    let objects = [
        with_agent(node("n1", "a"), "refuse"),
        pod("p", json!({}), json!({"restartPolicy": "Never"})),
    ];
    let found = not_running(&objects, &[], "1 pod does not run");
    assert_eq!(found, ["default/p: Pod was rejected: node n1 refuses new pods"]);
}

/// At the end of the first step the next pods wait, and nothing else counts. After the second one everything runs.
#[test]
fn while_pods_wait_after_a_rejection_the_reason_is_told() {
    let objects = [node("n1", "a"), workload("Deployment", "w", json!({"replicas": 1}))];
    let steps = scenario(json!([
        {"at": "1m", "do": [
            {"refusePods": {"nodes": ["n1"]}}, {"scale": {"kind": "Deployment", "name": "w", "replicas": 3}}]},
        {"at": "10m", "do": [{"startNodes": {"nodes": ["n1"]}}]}]));
    let outcome = all_run(&objects, &["--scenario", steps.path().to_str().unwrap()]);
    let waiting = outcome["steps"][1]["pods"]["pending"].as_array().unwrap();
    assert_eq!(waiting.len(), 2, "as many as are missing: {waiting:?}");
    for pod in waiting {
        let said = "waits before the next attempt: Pod was rejected: node n1 refuses new pods";
        assert_eq!(pod["message"], said);
    }
    assert_eq!(outcome["steps"][2]["pods"]["pending"], json!([]));
    let at_any_step = run(
        "simulate",
        &objects,
        &[
            "--fail-on",
            "pending-at-any-step",
            "--scenario",
            steps.path().to_str().unwrap(),
        ],
    );
    assert_eq!(at_any_step.status.code(), Some(1));
}

#[test]
fn a_preempted_pod_that_nothing_creates_again_is_told() {
    let request = json!({"requests": {"cpu": "3"}});
    let low = on_node(
        pod("low", request.clone(), json!({})),
        "n1",
        json!({"phase": "Running"}),
    );
    let high = pod("high", request, json!({"priorityClassName": "system-cluster-critical"}));
    let found = evicted(&[node("n1", "a"), low, high]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("default/low: Preempted by pod "), "{found:?}");
}

#[test]
fn a_pod_that_a_taint_evicts_and_nothing_creates_again_is_told() {
    let mut tainted = node("n1", "a");
    merge(
        &mut tainted,
        json!({"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}}),
    );
    let there = on_node(pod("p", json!({}), json!({})), "n1", json!({"phase": "Running"}));
    let found = evicted(&[tainted, there]);
    assert_eq!(found, ["default/p: evicted from node n1 by a NoExecute taint"]);
}

#[test]
fn a_pod_that_a_scenario_deletes_is_not_missed() {
    let objects = [node("n1", "a"), pod("p", json!({}), json!({}))];
    let steps = scenario(json!([{"at": "1m", "do": [{"delete": {"kind": "Pod", "name": "p"}}]}]));
    all_run(&objects, &["--scenario", steps.path().to_str().unwrap()]);
}

/// A Job with one pod that is tried once.
fn job() -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
    object(
        "batch/v1",
        "Job",
        "j",
        json!({"spec": {"backoffLimit": 0, "template": template}}),
    )
}

#[test]
fn a_job_that_fails_does_not_run() {
    let objects = [with_agent(node("n1", "a"), "refuse"), job()];
    let found = not_running(&objects, &[], "1 pod does not run");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("a pod of Job default/j: the Job has failed: "),
        "{found:?}"
    );
}

#[test]
fn a_job_that_retries_elsewhere_or_had_failed_before_is_not_missed() {
    let mut retries = job();
    merge(&mut retries, json!({"spec": {"backoffLimit": 6}}));
    all_run(&[with_agent(node("n1", "a"), "refuse"), node("n2", "b"), retries], &[]);
    let mut failed = job();
    let condition = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"});
    merge(
        &mut failed,
        json!({"metadata": {"namespace": "default"}, "status": {"conditions": [condition]}}),
    );
    all_run(&[node("n1", "a"), failed], &[]);
}

/// A node with two disks, a pod that uses both, and pods that use one each.
fn one_of_two_or_two_of_one(others: &[&str]) -> Vec<Value> {
    let mut objects = vec![berth_testing::node("n1"), berth_testing::local_class()];
    objects.extend(["disk-a", "disk-b"].map(|name| berth_testing::volume(name, "local", 10).on("n1")));
    objects.extend(["both-a", "both-b"].map(|name| berth_testing::claim(name, "local", 5)));
    objects.push(berth_testing::pod("both", &["both-a", "both-b"]));
    objects.extend(others.iter().map(|name| berth_testing::claim(name, "local", 5)));
    objects.extend(others.iter().map(|name| berth_testing::pod(name, &[name])));
    objects
}

#[test]
fn pods_that_are_considered_together_are_told_with_what_no_assignment_exceeds() {
    let (status, text, outcome) = verdict(&one_of_two_or_two_of_one(&["first", "second"]), &[]);
    assert_eq!(status, Some(1), "{text}");
    let sentence = "Considered together, 2 of 3 waiting pods are placed; one by one, it would be 1. That is optimal.";
    let on_one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(on_one_line.contains(sentence), "{text}");
    let together = json!({"pods": 3, "oneByOne": 1, "placed": 2, "atMost": 2, "isOptimal": true});
    assert_eq!(outcome["summary"]["together"], together);
    let left = listed(&outcome["notRunning"]);
    let [left] = left.as_slice() else { panic!("{left:?}") };
    assert!(left.starts_with("default/both: 0/1 nodes are available: "), "{left}");
    let to = "It gives way to pods that need its place: default/first, default/second.";
    assert!(left.ends_with(to), "{left}");
    let events = outcome["events"].as_array().unwrap();
    let is_told = |event: &&Value| event["message"].as_str().unwrap().ends_with(to);
    assert_eq!(events.iter().find(is_told).unwrap()["reason"], "FailedScheduling");
}

#[test]
fn pods_that_are_left_out_either_way_are_told_with_the_bound() {
    let (status, text, outcome) = verdict(&one_of_two_or_two_of_one(&["first"]), &[]);
    assert_eq!(status, Some(1), "{text}");
    let on_one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = "Considered together, 1 of 2 waiting pods are placed. That is optimal.";
    assert!(on_one_line.contains(sentence), "{text}");
    assert_eq!(outcome["summary"]["together"]["atMost"], 1);
    let left = listed(&outcome["notRunning"]);
    assert!(!left[0].contains("gives way"), "{left:?}");
    let one = one_of_two_or_two_of_one(&[]);
    assert_eq!(all_run(&one, &[])["summary"]["together"], Value::Null);
}
