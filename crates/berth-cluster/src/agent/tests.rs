//! Stories of one node: a pod is bound to it, and what its agent does.

use super::*;
use crate::status;
use crate::testing::Story;
use berth_testing::{Manifest, volume};
use serde_json::json;

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = berth_testing::pod(name, &[]).on("n1");
    field::merge(&mut pod, &json!({ "spec": spec }));
    pod
}

fn with_claim(name: &str, claim: &str) -> Value {
    berth_testing::pod(name, &[claim]).on("n1")
}

fn local_volume(name: &str, node: &str) -> Value {
    volume(name, "local", 1).on(node)
}

fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}})
}

fn bind(story: &mut Story, claim: &str, volume: &str) {
    let uid = field::uid(story.get("PersistentVolumeClaim", claim)).to_owned();
    story.patch("PersistentVolume", volume, json!({"spec": {"claimRef": {"uid": uid}}}));
    story.patch("PersistentVolumeClaim", claim, json!({"spec": {"volumeName": volume}}));
    story.set_status("PersistentVolumeClaim", claim, json!({"phase": "Bound"}));
}

#[test]
fn a_bound_pod_runs() {
    let mut story = Story::with_nodes(1);
    story.create(pod(
        "p",
        json!({"initContainers": [{"name": "setup", "image": "setup:1"}]}),
    ));
    story.create(pod("q", json!({})));
    story.create(pod("elsewhere", json!({"nodeName": "n9"})));
    story.settle();
    let pod = story.get("Pod", "p");
    assert_eq!(pod["status"]["phase"], "Running");
    for condition in ["Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert!(status::holds(pod, condition), "{condition}");
    }
    assert_eq!(pod["status"]["startTime"], "2026-01-01T00:00:00Z");
    assert_eq!(
        pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"],
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(
        pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"],
        "Completed"
    );
    assert_eq!(pod["status"]["podIP"], "10.0.1.2");
    assert_eq!(story.get("Pod", "q")["status"]["podIP"], "10.0.1.3");
    assert_eq!(story.get("Pod", "elsewhere")["status"]["phase"], "Pending");
    assert_eq!(story.messages(), ["Started Started container main"; 2]);
}

#[test]
fn sidecars_run_as_long_as_their_pod() {
    let sidecar = json!({"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"});
    let mut story = Story::with_nodes(1);
    let setup = json!({"name": "setup", "image": "setup:1"});
    let mut ends = pod("ends", json!({"restartPolicy": "Never", "initContainers": [sidecar]}));
    field::set(&mut ends, &["metadata", "annotations", names::RUN_SECONDS], json!("5"));
    story.create(pod("runs", json!({"initContainers": [setup, sidecar]})));
    story.create(ends);
    story.settle();
    let statuses = |story: &Story, pod: &str| story.get("Pod", pod)["status"]["initContainerStatuses"].clone();
    let running = statuses(&story, "runs");
    assert!(running[0]["state"]["terminated"].is_object() && running[0]["ready"] == true);
    assert!(running[1]["state"]["running"].is_object(), "{running}");
    assert!(running[1]["ready"] == true && running[1]["started"] == true);
    let ended = statuses(&story, "ends");
    assert_eq!(story.get("Pod", "ends")["status"]["phase"], "Succeeded");
    assert!(
        ended[0]["state"]["terminated"].is_object() && ended[0]["ready"] == false,
        "{ended}"
    );
}

#[test]
fn a_pod_waits_for_its_claims_and_says_why_once() {
    let mut story = Story::with_nodes(1);
    story.create(with_claim("p", "c"));
    story.settle();
    story.create(claim("c"));
    story.settle();
    story.create(local_volume("pv", "n1"));
    story.settle();
    assert_eq!(story.pods(), ["p Pending"]);
    let pod = story.get("Pod", "p");
    assert_eq!(
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"],
        "ContainerCreating"
    );
    assert!(!status::holds(pod, "Ready") && status::holds(pod, "PodScheduled"));
    story.patch("PersistentVolumeClaim", "c", json!({"spec": {"volumeName": "gone"}}));
    story.set_status("PersistentVolumeClaim", "c", json!({"phase": "Bound"}));
    story.settle();
    story.patch("PersistentVolumeClaim", "c", json!({"spec": {"volumeName": "pv"}}));
    story.patch(
        "PersistentVolume",
        "pv",
        json!({"spec": {"claimRef": {"uid": "another"}}}),
    );
    story.settle();
    bind(&mut story, "c", "pv");
    story.settle();
    assert_eq!(story.pods(), ["p Running"]);
    let uid = field::uid(story.get("PersistentVolumeClaim", "c"));
    assert_eq!(
        story.messages(),
        [
            "FailedMount persistentvolumeclaim \"c\" not found",
            "FailedMount error processing PVC default/c: PVC is not bound",
            "FailedMount error processing PVC default/c: failed to fetch PV gone from API server: persistentvolumes \"gone\" not found",
            &format!(
                "FailedMount error processing PVC default/c: PV pv spec.claimRef.uid another does not match pvc.UID {uid}"
            ),
            "Started Started container main",
        ]
    );
}

#[test]
fn a_volume_of_another_node_is_not_mounted() {
    let mut story = Story::with_nodes(2);
    story.create(claim("c"));
    story.create(local_volume("pv", "n2"));
    bind(&mut story, "c", "pv");
    story.create(with_claim("p", "c"));
    story.settle();
    assert_eq!(story.pods(), ["p Pending"]);
    let expected =
        "FailedMount MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    assert_eq!(story.messages(), [expected]);
    story.patch(
        "Node",
        "n1",
        json!({"metadata": {"labels": {"kubernetes.io/hostname": "n2"}}}),
    );
    story.settle();
    assert_eq!(story.pods(), ["p Running"]);
}

#[test]
fn an_affinity_that_cannot_be_read_or_selects_nothing_admits_no_node() {
    for required in [
        json!({}),
        json!({"nodeSelectorTerms": []}),
        json!({"nodeSelectorTerms": [{}]}),
        json!("x"),
        json!({"nodeSelectorTerms": "x"}),
    ] {
        let mut story = Story::with_nodes(1);
        story.create(claim("c"));
        story.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": required}}}));
        bind(&mut story, "c", "pv");
        story.create(with_claim("p", "c"));
        story.settle();
        assert_eq!(story.pods(), ["p Pending"], "{required}");
    }
}

#[test]
fn an_ephemeral_claim_must_be_the_pods_own() {
    let mut story = Story::with_nodes(1);
    story.create(pod(
        "p",
        json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}),
    ));
    story.create(claim("p-scratch"));
    story.create(local_volume("pv", "n1"));
    bind(&mut story, "p-scratch", "pv");
    story.settle();
    assert_eq!(
        story.messages(),
        ["FailedMount PVC default/p-scratch was not created for pod default/p (pod is not owner)"]
    );
    let owner = field::controller_reference(story.get("Pod", "p"));
    story.patch(
        "PersistentVolumeClaim",
        "p-scratch",
        json!({"metadata": {"ownerReferences": [owner]}}),
    );
    story.settle();
    assert_eq!(story.pods(), ["p Running"]);
}

#[test]
fn a_deleted_pod_goes_when_its_containers_have_stopped() {
    let mut story = Story::with_nodes(1);
    story.create(pod("p", json!({})));
    story.settle();
    story.delete("Pod", "p");
    let settings = Settings {
        stop_seconds: None,
        ..Settings::default()
    };
    let step = step(story.cluster.objects(), "n1", Mode::Run, &settings, story.now);
    assert_eq!((step.effects.len(), step.wake), (0, Some(field::after(story.now, 30))));
    assert_eq!(story.pods(), ["p Terminating"]);
    story.settle();
    assert!(story.pods().is_empty());
    assert_eq!(field::seconds(story.now), "2026-01-01T00:00:01Z");
}

#[test]
fn a_deleted_pod_that_never_ran_goes_at_once() {
    let mut story = Story::with_nodes(1);
    story.create(with_claim("p", "missing"));
    story.settle();
    story.delete("Pod", "p");
    story.settle();
    assert!(story.pods().is_empty());
    assert_eq!(field::seconds(story.now), "2026-01-01T00:00:00Z");
}

#[test]
fn a_pod_with_a_finalizer_is_released_once() {
    let mut story = Story::with_nodes(1);
    let mut kept = pod("p", json!({}));
    field::set(&mut kept, &["metadata", "finalizers"], json!(["example.com/x"]));
    story.create(kept);
    story.settle();
    story.delete("Pod", "p");
    story.settle();
    assert_eq!(story.pods(), ["p Terminating"]);
    story.patch("Pod", "p", json!({"metadata": {"finalizers": null}}));
    assert!(story.pods().is_empty());
}

#[test]
fn a_stopped_agent_does_nothing() {
    let mut story = Story::with_nodes(1);
    story.create(pod("p", json!({})));
    story.mode = Mode::Stop;
    story.settle();
    assert_eq!(story.pods(), ["p Pending"]);
    story.mode = Mode::Run;
    story.settle();
    story.mode = Mode::Stop;
    story.delete("Pod", "p");
    story.settle();
    assert_eq!(story.pods(), ["p Terminating"]);
}

#[test]
fn a_cordoned_agent_marks_its_node_and_goes_on() {
    let mut story = Story::with_nodes(1);
    story.create(pod("p", json!({})));
    story.mode = Mode::Cordon;
    story.settle();
    assert_eq!(story.pods(), ["p Running"]);
    assert_eq!(story.get("Node", "n1")["spec"]["unschedulable"], true);
    let effect = uncordon(story.get("Node", "n1"));
    story.carry_out(&[effect]);
    assert!(story.get("Node", "n1")["spec"]["unschedulable"].is_null());
}

#[test]
fn a_refusing_agent_rejects_new_pods_and_keeps_running_ones() {
    let mut story = Story::with_nodes(1);
    story.create(pod("old", json!({})));
    story.settle();
    story.create(pod("new", json!({})));
    story.mode = Mode::Refuse;
    story.settle();
    assert_eq!(story.pods(), ["new Failed", "old Running"]);
    assert_eq!(story.get("Pod", "new")["status"]["reason"], "UnexpectedAdmissionError");
}

#[test]
fn the_mode_can_stand_on_the_node() {
    let node = |mode: &str| json!({"metadata": {"annotations": {names::AGENT_MODE: mode}}});
    assert_eq!(Mode::of_node(&json!({})), Some(Mode::Run));
    assert_eq!(Mode::of_node(&node("refuse")), Some(Mode::Refuse));
    assert_eq!(Mode::of_node(&node("stop")), Some(Mode::Stop));
    assert_eq!(Mode::of_node(&node("dance")), None);
}

#[test]
fn pods_end_by_themselves_only_if_they_are_not_restarted() {
    let mut story = Story::with_nodes(1);
    for (name, policy, seconds, code) in [
        ("always", "Always", "5", "0"),
        ("never", "Never", "5", "3"),
        ("once", "OnFailure", "7", "3"),
        ("broken", "Never", "soon", "0"),
    ] {
        let mut pod = pod(name, json!({"restartPolicy": policy}));
        field::set(
            &mut pod,
            &["metadata", "annotations"],
            json!({names::RUN_SECONDS: seconds, names::EXIT_CODE: code}),
        );
        story.create(pod);
    }
    story.settle();
    assert_eq!(
        story.pods(),
        ["always Running", "broken Running", "never Failed", "once Succeeded"]
    );
    let state = &story.get("Pod", "never")["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&state["exitCode"], &state["finishedAt"]),
        (&json!(3), &json!("2026-01-01T00:00:05Z"))
    );
}

#[test]
fn extended_resources_of_the_capacity_can_be_had() {
    let mut story = Story::with_nodes(1);
    let settings = Settings {
        heartbeats: true,
        ..Settings::default()
    };
    story.set_status("Node", "n1", json!({"allocatable": {"cpu": "60"}}));
    let allocatable = |story: &mut Story, capacity: Value| {
        story.set_status("Node", "n1", json!({ "capacity": capacity }));
        let step = step(story.cluster.objects(), "n1", Mode::Run, &settings, story.now);
        story.carry_out(&step.effects);
        story.get("Node", "n1")["status"]["allocatable"]["example.com/gpu"].clone()
    };
    assert_eq!(
        allocatable(&mut story, json!({"cpu": "64", "example.com/gpu": "4"})),
        "4"
    );
    let cpu = &story.get("Node", "n1")["status"]["allocatable"]["cpu"];
    assert_eq!(cpu, "60", "what a kubelet knows of its machine stays");
    let gone = allocatable(&mut story, json!({"cpu": "64", "example.com/gpu": null}));
    assert_eq!(gone, Value::Null);
}

#[test]
fn heartbeats_keep_a_node_ready_and_its_lease_fresh() {
    let mut story = Story::with_nodes(1);
    let settings = Settings {
        heartbeats: true,
        ..Settings::default()
    };
    let beat = |story: &mut Story| {
        let step = step(story.cluster.objects(), "n1", Mode::Run, &settings, story.now);
        story.carry_out(&step.effects);
        step
    };
    let first = beat(&mut story);
    assert_eq!(first.wake, Some(field::after(story.now, 10)));
    assert!(status::holds(story.get("Node", "n1"), "Ready"));
    let lease = |story: &Story| {
        let lease = story.cluster.objects().get("Lease", names::NODE_LEASES, "n1").unwrap();
        field::text(lease, "/spec/renewTime").to_owned()
    };
    assert_eq!(lease(&story), "2026-01-01T00:00:00.000000Z");
    assert!(beat(&mut story).effects.is_empty());
    story.now = field::after(story.now, 10);
    assert_eq!(beat(&mut story).effects.len(), 1);
    assert_eq!(lease(&story), "2026-01-01T00:00:10.000000Z");
    story.delete("Node", "n1");
    assert!(
        story.cluster.objects().get("Lease", names::NODE_LEASES, "n1").is_none(),
        "the lease goes with its node"
    );
}

#[test]
fn any_pod_is_survived() {
    let broken = [
        json!(null),
        json!(3),
        json!([]),
        json!({"containers": 3, "volumes": "x"}),
        json!({"containers": [3, {}], "volumes": [null, {"ephemeral": {}}]}),
        json!({"nodeName": "n1", "containers": [null], "volumes": [{"persistentVolumeClaim": 3}], "restartPolicy": 5}),
    ];
    for spec in broken {
        let mut story = Story::with_nodes(1);
        story.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec, "status": spec}));
        story.settle();
        story.delete("Pod", "p");
        story.settle();
        assert!(story.pods().is_empty());
    }
}

/// Runs the agent of `n1` until it has nothing to do at this moment, with pods that wait for their configuration.
fn look(story: &mut Story) {
    let settings = Settings {
        needs_configuration: true,
        ..Settings::default()
    };
    for _ in 0..20 {
        let step = step(story.cluster.objects(), "n1", Mode::Run, &settings, story.now);
        if step.effects.is_empty() {
            return;
        }
        story.carry_out(&step.effects);
    }
    let step = step(story.cluster.objects(), "n1", Mode::Run, &settings, story.now);
    panic!("does not settle: {:#?}", step.effects);
}

fn config(kind: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "data": data})
}

#[test]
fn a_pod_waits_for_the_secrets_and_config_maps_of_its_volumes() {
    let mut story = Story::with_nodes(1);
    let volumes = json!([
        {"name": "tls", "secret": {"secretName": "tls", "items": [{"key": "tls.key", "path": "key"}]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "kube-root-ca.crt"}},
            {"secret": {"name": "maybe", "optional": true}},
            {"configMap": {"name": "app"}},
        ]}},
    ]);
    story.create(pod("p", json!({ "volumes": volumes })));
    let mut told = Vec::new();
    for made in [
        None,
        Some(config("Secret", "tls", json!({"other": ""}))),
        Some(config("ConfigMap", "app", json!({}))),
    ] {
        made.into_iter().for_each(|made| story.create(made));
        look(&mut story);
        let pod = story.get("Pod", "p");
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        assert_eq!(
            (&pod["status"]["phase"], waiting),
            (&json!("Pending"), &json!("ContainerCreating"))
        );
        told.push(reported_problem(pod).to_owned());
        story.patch("Pod", "p", json!({"metadata": {"labels": {"looked": "again"}}}));
        look(&mut story);
    }
    let missing_key = r#"MountVolume.SetUp failed for volume "tls" : references non-existent secret key: tls.key"#;
    let missing_secret = r#"MountVolume.SetUp failed for volume "tls" : secret "tls" not found"#;
    assert_eq!(told, [missing_secret, missing_key, missing_key]);
    story.patch("Secret", "tls", json!({"data": {"tls.key": ""}}));
    story.delete("ConfigMap", "app");
    look(&mut story);
    let missing_map = r#"MountVolume.SetUp failed for volume "all" : configmap "app" not found"#;
    assert_eq!(reported_problem(story.get("Pod", "p")), missing_map);
    story.create(config("ConfigMap", "app", json!({})));
    look(&mut story);
    assert_eq!(story.get("Pod", "p")["status"]["phase"], "Running");
    let events = [missing_secret, missing_key, missing_map].map(|message| format!("FailedMount {message}"));
    assert_eq!(story.messages()[..3], events, "each once");
}

#[test]
fn a_container_without_its_environment_is_not_created() {
    let mut story = Story::with_nodes(1);
    let variable = |kind: &str, name: &str| json!({"name": "V", "valueFrom": {kind: {"name": name, "key": "k"}}});
    let containers = json!([
        {"name": "main", "image": "app:1", "env": [variable("secretKeyRef", "login")]},
        {"name": "side", "image": "app:1", "envFrom": [{"configMapRef": {"name": "later", "optional": true}}]},
    ]);
    let setup = json!([{"name": "setup", "image": "app:1", "envFrom": [{"configMapRef": {"name": "setup"}}]}]);
    story.create(pod("p", json!({"containers": containers, "initContainers": setup})));
    look(&mut story);
    let status = story.get("Pod", "p")["status"].clone();
    let states = |part: &str| -> Vec<Value> {
        let statuses = status[part].as_array().unwrap().iter();
        statuses.map(|status| status["state"]["waiting"].clone()).collect()
    };
    let lacks = |message: &str| json!({"reason": "CreateContainerConfigError", "message": message});
    let expected = [
        lacks(r#"secret "login" not found"#),
        json!({"reason": "ContainerCreating"}),
    ];
    assert_eq!(states("containerStatuses"), expected);
    assert_eq!(
        states("initContainerStatuses"),
        [lacks(r#"configmap "setup" not found"#)]
    );
    assert_eq!(status["phase"], "Pending");
    story.create(config("ConfigMap", "setup", json!({})));
    story.create(config("Secret", "login", json!({"other": ""})));
    look(&mut story);
    let pod = story.get("Pod", "p");
    assert_eq!(reported_problem(pod), "couldn't find key k in Secret default/login");
    story.patch("Secret", "login", json!({"data": {"k": ""}}));
    look(&mut story);
    assert_eq!(story.get("Pod", "p")["status"]["phase"], "Running");
    let told = [
        r#"Failed Error: secret "login" not found"#,
        r#"Failed Error: configmap "setup" not found"#,
        "Failed Error: couldn't find key k in Secret default/login",
    ];
    assert_eq!(story.messages()[..3], told);
    // Files rarely contain them: a simulation does not require them.
    let mut simulated = Story::with_nodes(1);
    simulated.create(self::pod("p", json!({ "containers": containers })));
    simulated.settle();
    assert_eq!(simulated.pods(), ["p Running"]);
}

fn annotated(name: &str, annotations: Value) -> Value {
    let mut pod = pod(name, json!({}));
    field::set(&mut pod, &["metadata", "annotations"], annotations);
    pod
}

#[test]
fn containers_and_probes_are_slow_where_annotations_say_so() {
    let mut story = Story::with_nodes(1);
    let slow = json!({names::START_SECONDS: "20", names::READY_SECONDS: "30"});
    story.create(annotated("slow", slow));
    story.create(annotated("never", json!({names::READY_SECONDS: "never"})));
    story.create(annotated(
        "broken",
        json!({names::READY_SECONDS: "soon", names::START_SECONDS: "-1"}),
    ));
    look(&mut story);
    let is_ready = |story: &Story, name: &str| {
        let pod = story.get("Pod", name);
        let container = pod["status"]["containerStatuses"][0]["ready"] == true;
        assert_eq!(status::holds(pod, "Ready"), container, "{pod}");
        container
    };
    assert_eq!(story.pods(), ["broken Running", "never Running", "slow Pending"]);
    assert!(is_ready(&story, "broken") && !is_ready(&story, "never"));
    story.now = field::after(story.now, 19);
    look(&mut story);
    assert_eq!(story.get("Pod", "slow")["status"]["phase"], "Pending");
    story.now = field::after(story.now, 1);
    look(&mut story);
    assert_eq!(story.get("Pod", "slow")["status"]["phase"], "Running");
    assert!(!is_ready(&story, "slow"));
    story.settle();
    assert_eq!(
        field::seconds(story.now),
        "2026-01-01T00:00:50Z",
        "nothing is waited for any more"
    );
    assert!(is_ready(&story, "slow") && !is_ready(&story, "never"));
    let unhealthy = story
        .messages()
        .iter()
        .filter(|told| told.starts_with("Unhealthy"))
        .count();
    assert_eq!(unhealthy, 2);
}

#[test]
fn containers_that_end_are_started_again_after_a_growing_while_until_a_simulation_has_seen_enough() {
    let mut story = Story::with_nodes(1);
    story.create(annotated("p", json!({names::RUN_SECONDS: "5", names::EXIT_CODE: "1"})));
    look(&mut story);
    assert!(status::holds(story.get("Pod", "p"), "Ready"));
    story.settle();
    let pod = story.get("Pod", "p");
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(
        (&pod["status"]["phase"], &container["restartCount"]),
        (&json!("Running"), &json!(5))
    );
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
    assert!(!status::holds(pod, "Ready"));
    // Six runs of 5 s, with 10, 20, 40, 80 and 160 s in between.
    assert_eq!(field::seconds(story.now), "2026-01-01T00:05:40Z");
    story.now = field::after(story.now, 300);
    look(&mut story);
    let container = &story.get("Pod", "p")["status"]["containerStatuses"][0];
    assert!(
        container["state"]["running"].is_object(),
        "an agent that is asked goes on: {container}"
    );
}
