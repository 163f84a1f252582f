//! Stories of DaemonSets.

use super::*;

/// Binds pods to their nodes and runs agents until nothing changes.
fn settle(story: &mut Story) {
    for _ in 0..200 {
        let mut step = story.control();
        let unbound: Vec<Value> = story
            .cluster
            .objects()
            .of_kind("Pod")
            .filter(|pod| field::text(pod, "/spec/nodeName").is_empty())
            .cloned()
            .collect();
        for pod in unbound {
            let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
            let node = field::text(&pod, &format!("{terms}/0/matchFields/0/values/0")).to_owned();
            story.bind(&pod, &node);
        }
        step.append(story.run_agents());
        match (step.effects.is_empty(), step.wake) {
            (true, None) => return,
            (true, Some(wake)) => story.now = story.now.max(wake),
            (false, _) => {}
        }
    }
    panic!("does not settle");
}

fn nodes_with_pods(story: &Story) -> Vec<String> {
    let pods = story.cluster.objects().of_kind("Pod");
    let mut nodes: Vec<String> = pods.map(|pod| field::text(pod, "/spec/nodeName").to_owned()).collect();
    nodes.sort();
    nodes
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

#[test]
fn every_node_that_is_meant_has_a_pod() {
    let mut story = Story::with_nodes(3);
    let labels = |role: &str| json!({"metadata": {"labels": {"role": role}}});
    for name in ["n1", "n2"] {
        story.patch("Node", name, labels("storage"));
    }
    let selector = json!({"template": {"spec": {"nodeSelector": {"role": "storage"}}}});
    story.create(workload("DaemonSet", "disks", selector));
    settle(&mut story);
    assert_eq!(nodes_with_pods(&story), ["n1", "n2"]);
    let pod = story.cluster.objects().of_kind("Pod").next().unwrap();
    assert!(field::name(pod).starts_with("disks-"));
    assert_eq!(field::items(pod, "/spec/tolerations").len(), 6);

    story.patch("Node", "n3", labels("storage"));
    story.patch("Node", "n1", labels("other"));
    settle(&mut story);
    assert_eq!(nodes_with_pods(&story), ["n2", "n3"], "labels decide");
    story.create(node("n4"));
    story.patch("Node", "n4", labels("storage"));
    story.delete("Node", "n2");
    settle(&mut story);
    assert_eq!(nodes_with_pods(&story), ["n3", "n4"], "nodes come and go");
    let status = &story.get("DaemonSet", "disks")["status"];
    let counts = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
    ];
    assert_eq!(counts.map(|name| status[name].as_i64()), [Some(2); 4]);
    assert_eq!(status["updatedNumberScheduled"], 2);
    assert_eq!(status["numberMisscheduled"], 0);
    assert!(story.is_settled());
    story.delete("DaemonSet", "disks");
    settle(&mut story);
    assert_eq!(story.pods(), [""; 0]);
}

#[test]
fn taints_keep_pods_away_and_trouble_does_not() {
    let mut story = Story::with_nodes(4);
    let taint = |key: &str, effect: &str| json!({"spec": {"taints": [{"key": key, "effect": effect}]}});
    story.patch("Node", "n1", taint("node.kubernetes.io/unschedulable", "NoSchedule"));
    story.patch("Node", "n2", taint("node.kubernetes.io/not-ready", "NoExecute"));
    story.patch("Node", "n3", taint("gpu", "NoSchedule"));
    story.create(workload("DaemonSet", "log", json!({})));
    settle(&mut story);
    assert_eq!(nodes_with_pods(&story), ["n1", "n2", "n4"]);
    story.patch("Node", "n4", taint("gpu", "NoSchedule"));
    story.patch("Node", "n2", taint("gpu", "NoExecute"));
    settle(&mut story);
    assert_eq!(nodes_with_pods(&story), ["n1", "n4"], "where it runs, it may stay");
    assert_eq!(story.get("DaemonSet", "log")["status"]["numberMisscheduled"], 1);
}

#[test]
fn a_new_template_replaces_pods_a_few_at_a_time() {
    let mut story = Story::with_nodes(4);
    let rolling = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}});
    story.create(workload("DaemonSet", "log", rolling));
    settle(&mut story);
    let before: Vec<String> = story.names("Pod").iter().map(|name| (*name).to_owned()).collect();
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}}});
    story.patch("DaemonSet", "log", image);
    assert_eq!(created_and_deleted(&story.control()).1.len(), 2);
    assert_eq!(created_and_deleted(&story.control()).1.len(), 0, "two are away");
    settle(&mut story);
    assert_eq!(nodes_with_pods(&story), ["n1", "n2", "n3", "n4"]);
    assert!(
        story
            .names("Pod")
            .iter()
            .all(|name| !before.contains(&(*name).to_owned()))
    );
    assert_eq!(story.names("ControllerRevision").len(), 2);
    assert!(story.is_settled());

    let by_hand = json!({"spec": {"updateStrategy": {"type": "OnDelete"}, "template": {"metadata": {"labels": {"app": "log", "v": "3"}}}}});
    story.patch("DaemonSet", "log", by_hand);
    assert_eq!(created_and_deleted(&story.control()).1.len(), 0);
}

#[test]
fn a_pod_that_failed_comes_back_after_a_while_and_one_too_many_goes() {
    let mut story = Story::with_nodes(1);
    story.create(workload("DaemonSet", "log", json!({})));
    settle(&mut story);
    let name = story.names("Pod")[0].to_owned();
    story.set_status("Pod", &name, json!({"phase": "Failed"}));
    let begin = story.now;
    settle(&mut story);
    assert!(story.find("Pod", &name).is_none());
    assert_eq!(nodes_with_pods(&story), ["n1"]);
    assert!(
        story.now.duration_since(begin).as_secs() >= 10
            || story.messages().iter().any(|said| said.starts_with("FailedDaemonPod"))
    );
    let mut twin = story.cluster.objects().of_kind("Pod").next().unwrap().clone();
    for own in ["uid", "resourceVersion", "creationTimestamp"] {
        field::unset(&mut twin, &["metadata", own]);
    }
    field::set(&mut twin, &["metadata", "name"], json!("zzz"));
    story.create(twin);
    settle(&mut story);
    assert_eq!(story.pods().len(), 1);
    assert!(story.find("Pod", "zzz").is_none());
}

#[test]
fn the_pods_of_a_dump_without_revisions_stay() {
    let mut story = Story::with_nodes(1);
    let mut set = workload("DaemonSet", "log", json!({}));
    field::merge(
        &mut set,
        &json!({"metadata": {"uid": "u", "generation": 7}, "status": {"observedGeneration": 7, "updatedNumberScheduled": 1,
            "currentNumberScheduled": 1, "desiredNumberScheduled": 1}}),
    );
    story.create(set);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log", "uid": "u", "controller": true}]);
    story.create(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "log-x", "namespace": "default",
            "labels": {"app": "log", "controller-revision-hash": "5d8f7c"}, "ownerReferences": owner},
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]}, "status": {"phase": "Running"}}),
    );
    settle(&mut story);
    assert_eq!(story.pods(), ["log-x Running"]);
    assert_eq!(story.names("ControllerRevision"), ["log-5d8f7c"]);
}
