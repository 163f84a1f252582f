//! Pods and their subresources.

use k8s_openapi::api::core::v1::{Binding, LimitRange, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DynamicObject, EvictParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::{causes, namespace, object, pod, refusal, unique};

pub(crate) async fn defaults_are_filled_in(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(&client).await);
    let created = pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let spec = created.spec.unwrap();
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.scheduler_name.as_deref(), Some("default-scheduler"));
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    assert_eq!(spec.dns_policy.as_deref(), Some("ClusterFirst"));
    assert_eq!(spec.priority, Some(0));
    assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("IfNotPresent"));
    let tolerations = spec.tolerations.unwrap();
    assert!(
        tolerations
            .iter()
            .any(|t| t.key.as_deref() == Some("node.kubernetes.io/not-ready"))
    );
    let status = created.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
}

async fn bind(client: &Client, namespace: &str, pod: &str, node: &str) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let binding: Binding = object(json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}));
    let answer: serde_json::Value = pods
        .create_subresource("binding", pod, &PostParams::default(), &binding)
        .await?;
    assert_eq!(answer["status"], "Success");
    Ok(())
}

pub(crate) async fn a_binding_places_a_pod_once(client: Client) {
    let here = namespace(&client).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &here);
    pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    bind(&client, &here, "a", "n1").await.unwrap();
    let bound = pods.get("a").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|c| c.type_ == "PodScheduled" && c.status == "True")
    );
    let status = refusal(bind(&client, &here, "a", "n2").await);
    assert_eq!(status.code, 409);
    assert!(
        status.message.contains("pod a is already assigned to node \"n1\""),
        "{}",
        status.message
    );
    assert_eq!(refusal(bind(&client, &here, "nobody", "n1").await).code, 404);
}

pub(crate) async fn the_status_is_apart(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(&client).await);
    pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"phase": "Running"}, "spec": {"nodeName": "n9"}}));
    let patched = pods.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(patched.spec.unwrap().node_name, None);
    let patch = Patch::Merge(json!({"status": {"phase": "Failed"}, "metadata": {"labels": {"x": "y"}}}));
    let patched = pods.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.labels()["x"], "y");
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Running"));

    // A node, in contrast, registers itself with its status.
    let nodes: Api<Node> = Api::all(client);
    let name = unique("node");
    let node: Node = object(json!({"metadata": {"name": name}, "status": {"capacity": {"cpu": "4"}}}));
    let created = nodes.create(&PostParams::default(), &node).await.unwrap();
    assert_eq!(created.status.unwrap().capacity.unwrap()["cpu"].0, "4");
}

pub(crate) async fn the_spec_is_fixed(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(&client).await);
    pods.create(&PostParams::default(), &pod("a")).await.unwrap();
    let image = Patch::Strategic(json!({"spec": {"containers": [{"name": "main", "image": "busybox:1.37"}]}}));
    pods.patch("a", &PatchParams::default(), &image).await.unwrap();
    let selector = Patch::Merge(json!({"spec": {"nodeSelector": {"x": "y"}}}));
    let status = refusal(pods.patch("a", &PatchParams::default(), &selector).await);
    assert_eq!(status.code, 422);
    assert!(
        status.message.contains("pod updates may not change fields other than"),
        "{}",
        status.message
    );
}

pub(crate) async fn a_bad_pod_names_its_fields(client: Client) {
    let here = namespace(&client).await;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    let pods: Api<DynamicObject> = Api::namespaced_with(client, &here, &resource);
    let check = async |spec: serde_json::Value, expected: &[&str]| {
        let pod: DynamicObject =
            object(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}));
        let status = refusal(pods.create(&PostParams::default(), &pod).await);
        assert_eq!(
            (status.code, status.reason.as_str()),
            (422, "Invalid"),
            "{}",
            status.message
        );
        assert_eq!(causes(&status), expected, "{}", status.message);
    };
    check(json!({"containers": []}), &["spec.containers"]).await;
    check(json!({"containers": [{"name": "c"}]}), &["spec.containers[0].image"]).await;
    check(json!({"containers": [{"image": "i"}]}), &["spec.containers[0].name"]).await;
    check(
        json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
        &["spec.containers[0].volumeMounts[0].name"],
    )
    .await;
    check(
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1"}}}]}),
        &["spec.containers[0].resources.requests[cpu]"],
    )
    .await;
}

pub(crate) async fn an_eviction_respects_the_budget(client: Client) {
    let here = namespace(&client).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &here);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &here);
    for (name, ready) in [("a", "True"), ("b", "True"), ("unready", "False")] {
        let mut wanted = pod(name);
        wanted.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        wanted.spec.as_mut().unwrap().node_name = Some("n1".into());
        pods.create(&PostParams::default(), &wanted).await.unwrap();
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let running = Patch::Merge(json!({"status": {"phase": "Running", "conditions": conditions}}));
        pods.patch_status(name, &PatchParams::default(), &running)
            .await
            .unwrap();
    }
    let budget =
        json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    budgets.create(&PostParams::default(), &object(budget)).await.unwrap();
    let status = Patch::Merge(
        json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2}}),
    );
    budgets
        .patch_status("web", &PatchParams::default(), &status)
        .await
        .unwrap();

    pods.evict("a", &EvictParams::default()).await.unwrap();
    assert!(pods.get("a").await.unwrap().metadata.deletion_timestamp.is_some());
    let refused = refusal(pods.evict("b", &EvictParams::default()).await);
    assert_eq!((refused.code, refused.reason.as_str()), (429, "TooManyRequests"));
    assert_eq!(
        refused.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    // An unready pod does not count as healthy for the budget.
    pods.evict("unready", &EvictParams::default()).await.unwrap();
    let disrupted = budgets.get("web").await.unwrap().status.unwrap();
    assert_eq!(disrupted.disruptions_allowed, Some(0));
    assert!(disrupted.disrupted_pods.unwrap().contains_key("a"));
}

pub(crate) async fn priorities_come_from_their_class(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(&client).await);
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let name = unique("high");
    let class = object(json!({"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}));
    classes.create(&PostParams::default(), &class).await.unwrap();
    let mut wanted = pod("a");
    wanted.spec.as_mut().unwrap().priority_class_name = Some(name);
    let spec = pods
        .create(&PostParams::default(), &wanted)
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(spec.priority, Some(1000));
    assert_eq!(spec.preemption_policy.as_deref(), Some("Never"));
    let mut wanted = pod("b");
    wanted.spec.as_mut().unwrap().priority_class_name = Some("no-such-class".into());
    let status = refusal(pods.create(&PostParams::default(), &wanted).await);
    assert_eq!(status.code, 403);
    assert!(
        status
            .message
            .contains("no PriorityClass with name no-such-class was found"),
        "{}",
        status.message
    );
}

/// A field of KEP-1472 (Size of ephemeral inline volumes) that no released Kubernetes has.
pub(crate) async fn inline_volumes_keep_their_size(client: Client) {
    if !super::volumes::has_capacity_tracking(&client).await {
        return;
    }
    let here = namespace(&client).await;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
    let pods: Api<DynamicObject> = Api::namespaced_with(client, &here, &resource);
    let wanted: DynamicObject = object(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "scratch", "csi": {"driver": "lvm.example.com", "fsSize": "5Gi"}}]}}),
    );
    let created = pods.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(created.data["spec"]["volumes"][0]["csi"]["fsSize"], "5Gi");
    let mut twice = wanted;
    twice.metadata.name = Some("b".to_owned());
    twice.data["spec"]["volumes"][0]["csi"]["volumeAttributes"] = json!({"csi.storage.k8s.io/size": "6Gi"});
    let refused = pods
        .create(&PostParams::default(), &twice)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("volumeAttributes[csi.storage.k8s.io/size]") && refused.contains("fsSize"),
        "{refused}"
    );
}

pub(crate) async fn limit_ranges_complete_and_refuse(client: Client) {
    let here = namespace(&client).await;
    let post = PostParams::default();
    let ranges: Api<LimitRange> = Api::namespaced(client.clone(), &here);
    let range = object(json!({"metadata": {"name": "usual"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"},
            "maxLimitRequestRatio": {"cpu": "5"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}}]}}));
    ranges.create(&post, &range).await.unwrap();
    for (limits, field) in [
        (
            json!([{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]),
            "spec.limits[0].min[cpu]",
        ),
        (
            json!([{"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}]),
            "spec.limits[0].default[cpu]",
        ),
        (
            json!([{"type": "Pod", "default": {"cpu": "2"}}]),
            "spec.limits[0].default",
        ),
        (
            json!([{"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}]),
            "either minimum or maximum storage",
        ),
        (
            json!([{"type": "Pod", "max": {"cpu": "2"}}, {"type": "Pod", "max": {"cpu": "1"}}]),
            "spec.limits[1].type",
        ),
        (
            json!([{"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}]),
            "is less than 1",
        ),
    ] {
        let broken = object(json!({"metadata": {"name": "broken"}, "spec": {"limits": limits}}));
        let refused = ranges.create(&post, &broken).await.unwrap_err().to_string();
        assert!(refused.contains(field), "{refused}");
    }

    let pods: Api<Pod> = Api::namespaced(client.clone(), &here);
    // Admission of a real server sees a new range only after its own watch does.
    super::eventually("the range is known", || async {
        let name = unique("probe");
        let created = pods.create(&PostParams::default(), &pod(&name)).await.unwrap();
        created.annotations().contains_key("kubernetes.io/limit-ranger")
    })
    .await;
    let created = pods.create(&post, &pod("a")).await.unwrap();
    let note = "LimitRanger plugin set: cpu request for container main; cpu limit for container main";
    assert_eq!(created.annotations()["kubernetes.io/limit-ranger"], note);
    let resources = created.spec.unwrap().containers[0].resources.clone().unwrap();
    assert_eq!(
        json!(resources),
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(created.status.unwrap().qos_class.as_deref(), Some("Burstable"));

    let greedy = |name: &str, resources: serde_json::Value| -> Pod {
        object(json!({"metadata": {"name": name}, "spec": {"containers": [
            {"name": "main", "image": "busybox:1.36", "resources": resources}]}}))
    };
    let limits = json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}});
    let status = refusal(pods.create(&post, &greedy("b", limits)).await);
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    let expected = "pods \"b\" is forbidden: maximum cpu usage per Container is 2, but limit is 3";
    assert_eq!(status.message, expected);
    let limits = json!({"limits": {"cpu": "2"}, "requests": {"cpu": "250m"}});
    let status = refusal(pods.create(&post, &greedy("c", limits)).await);
    let expected =
        "pods \"c\" is forbidden: cpu max limit to request ratio per Container is 5, but provided ratio is 8.000000";
    assert_eq!(status.message, expected);

    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &here);
    let claim = object(
        json!({"metadata": {"name": "small"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}}),
    );
    let status = refusal(claims.create(&post, &claim).await);
    let expected = "persistentvolumeclaims \"small\" is forbidden: minimum storage usage per PersistentVolumeClaim is 2Gi, but \
                    request is 1Gi";
    assert_eq!((status.code, status.message.as_str()), (403, expected));
}

pub(crate) async fn runtime_classes_give_overhead(client: Client) {
    let here = namespace(&client).await;
    let (post, class) = (PostParams::default(), unique("sandbox"));
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    let runtime = object(json!({"metadata": {"name": class}, "handler": "sandbox",
        "overhead": {"podFixed": {"cpu": "0.25"}}, "scheduling": {"nodeSelector": {"sandbox": "yes"}}}));
    classes.create(&post, &runtime).await.unwrap();

    let pods: Api<Pod> = Api::namespaced(client, &here);
    let of = |name: &str, more: serde_json::Value| -> Pod {
        let mut spec = json!({"containers": [{"name": "main", "image": "busybox:1.36"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object(json!({"metadata": {"name": name}, "spec": spec}))
    };
    let created = pods
        .create(&post, &of("a", json!({"runtimeClassName": class})))
        .await
        .unwrap();
    let spec = created.spec.unwrap();
    assert_eq!(json!(spec.overhead), json!({"cpu": "250m"}));
    assert_eq!(json!(spec.node_selector), json!({"sandbox": "yes"}));

    let other = json!({"runtimeClassName": class, "overhead": {"cpu": "1"}});
    let status = refusal(pods.create(&post, &of("b", other)).await);
    let expected =
        "pods \"b\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
    assert_eq!((status.code, status.message.as_str()), (403, expected));
    let unknown = json!({"runtimeClassName": "nobody-has-it"});
    let status = refusal(pods.create(&post, &of("c", unknown)).await);
    let expected = "pods \"c\" is forbidden: pod rejected: RuntimeClass \"nobody-has-it\" not found";
    assert_eq!((status.code, status.message.as_str()), (403, expected));
}
