//! Completes objects the way an API server does when they are created, as far as decisions read what it adds.
//!
//! Objects of files have not been through an API server: a limit without a request, a node that tells its capacity only, a
//! pod that names its priority class. `explain` and `simulate` complete them here and nowhere else, so that both take
//! them for the same. What is there already is never changed: an object of a running cluster comes out as it went in.

use berth_core::api;
use serde_json::{Map, Value};

/// Resources that a pod as a whole can ask for; huge pages, of which there are many, begin alike.
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];
const HUGE_PAGES: &str = "hugepages-";

/// Completes an object from itself.
pub fn complete(object: &mut Value) {
    match object.get("kind").and_then(Value::as_str) {
        Some("Pod") => {
            if let Some(spec) = object.get_mut("spec") {
                complete_pod(spec);
            }
        }
        Some("Node") => complete_node(object),
        Some("PersistentVolume") => complete_volume(object),
        _ => {}
    }
}

fn complete_pod(spec: &mut Value) {
    let uses_host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(resources) = container.get_mut("resources") {
                request_limits(resources, |_| true);
            }
            if uses_host_network {
                open_ports(container);
            }
        }
    }
    if spec.pointer("/resources/limits").is_some() {
        request_pod_limits(spec);
    }
}

/// A limit without a request is the request, too.
fn request_limits(resources: &mut Value, applies: impl Fn(&str) -> bool) {
    let Some(Value::Object(limits)) = resources.get("limits") else {
        return;
    };
    let missing: Vec<(String, Value)> = limits
        .iter()
        .filter(|(name, _)| applies(name) && resources["requests"][name.as_str()].is_null())
        .map(|(name, limit)| (name.clone(), limit.clone()))
        .collect();
    if missing.is_empty() {
        return;
    }
    let Value::Object(resources) = resources else {
        return;
    };
    let requests = resources.entry("requests").or_insert(Value::Null);
    if requests.is_null() {
        *requests = Value::Object(Map::new());
    }
    if let Value::Object(requests) = requests {
        requests.extend(missing);
    }
}

/// The same for the pod as a whole, unless its containers say what they request.
fn request_pod_limits(spec: &mut Value) {
    let requested: Vec<String> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec.get(list)?.as_array())
        .flatten()
        .filter_map(|container| container.pointer("/resources/requests")?.as_object())
        .flat_map(Map::keys)
        .cloned()
        .collect();
    let applies = |name: &str| {
        (POD_LEVEL.contains(&name) || name.starts_with(HUGE_PAGES)) && !requested.iter().any(|one| one == name)
    };
    if let Some(resources) = spec.get_mut("resources") {
        request_limits(resources, applies);
    }
}

/// On the network of its node, a container's port is the node's.
fn open_ports(container: &mut Value) {
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        let is_open = port
            .get("hostPort")
            .and_then(Value::as_i64)
            .is_some_and(|port| port != 0);
        if let Some(own) = port.get("containerPort").cloned().filter(|_| !is_open) {
            port.insert("hostPort".to_owned(), own);
        }
    }
}

/// What a node has can be used, unless it says otherwise.
fn complete_node(node: &mut Value) {
    let Some(Value::Object(status)) = node.get_mut("status") else {
        return;
    };
    if status.get("allocatable").is_none_or(Value::is_null)
        && let Some(capacity) = status.get("capacity").filter(|capacity| capacity.is_object())
    {
        status.insert("allocatable".to_owned(), capacity.clone());
    }
}

/// A volume that nobody has told of a claim is free. One that is reserved for a claim which has not got it yet is as
/// good as free for that claim.
fn complete_volume(volume: &mut Value) {
    let phase = volume.pointer("/status/phase").and_then(Value::as_str);
    let claimed = volume.pointer("/spec/claimRef/uid").and_then(Value::as_str);
    if phase.is_some_and(|phase| !phase.is_empty()) || claimed.is_some_and(|uid| !uid.is_empty()) {
        return;
    }
    let Value::Object(volume) = volume else {
        return;
    };
    let status = volume.entry("status").or_insert(Value::Null);
    if status.is_null() {
        *status = Value::Object(Map::new());
    }
    if let Value::Object(status) = status {
        status.insert("phase".to_owned(), "Available".into());
    }
}

/// What pods take from a priority class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The class.
    pub class: String,
    /// Its number.
    pub value: i32,
    /// `Never` for pods that evict nobody.
    pub preemption_policy: Option<String>,
}

impl Priority {
    /// What a class of a file or cluster gives.
    #[must_use]
    pub fn of_class(class: &api::PriorityClass) -> Self {
        Self {
            class: class.metadata.name.clone(),
            value: class.value,
            preemption_policy: class.preemption_policy.clone(),
        }
    }

    /// The same from an object that is plain JSON; `None` if it is no class.
    #[must_use]
    pub fn of_object(class: &Value) -> Option<Self> {
        Some(Self {
            class: class.pointer("/metadata/name")?.as_str()?.to_owned(),
            value: i32::try_from(class["value"].as_i64()?).ok()?,
            preemption_policy: class["preemptionPolicy"].as_str().map(str::to_owned),
        })
    }

    /// The classes that exist without anybody creating them.
    fn of_system(name: &str) -> Option<Self> {
        let value = match name {
            "system-cluster-critical" => 2_000_000_000,
            "system-node-critical" => 2_000_001_000,
            _ => return None,
        };
        Some(Self {
            class: name.to_owned(),
            value,
            preemption_policy: None,
        })
    }
}

/// A pod names a class that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "spec.priorityClassName: no PriorityClass with name {class} was found; add it to the input, as `kubectl get \
     priorityclasses -o yaml` prints it, or take the field away"
)]
pub struct UnknownClass {
    /// The class.
    pub class: String,
}

/// Where priority classes are looked up.
pub trait PriorityClasses {
    /// The class of this name.
    fn find(&self, name: &str) -> Option<Priority>;
    /// The class of pods that name none. Of several, the lowest.
    fn default_class(&self) -> Option<Priority>;
}

/// The priority of a pod that names this class, or none if it is empty.
///
/// # Errors
/// If there is no such class.
pub fn priority(name: &str, classes: &dyn PriorityClasses) -> Result<Option<Priority>, UnknownClass> {
    if name.is_empty() {
        return Ok(classes.default_class());
    }
    let found = classes.find(name).or_else(|| Priority::of_system(name));
    found.map(Some).ok_or_else(|| UnknownClass { class: name.to_owned() })
}

/// Gives a pod's spec the priority of its class, unless it has one.
///
/// # Errors
/// If it names a class that is not there.
pub fn give_priority(spec: &mut Value, classes: &dyn PriorityClasses) -> Result<(), UnknownClass> {
    if !spec["priority"].is_null() {
        return Ok(());
    }
    let name = spec["priorityClassName"].as_str().unwrap_or_default();
    let found = priority(name, classes)?;
    if let (Some(found), Value::Object(spec)) = (found, spec) {
        spec.insert("priority".to_owned(), found.value.into());
        spec.insert("priorityClassName".to_owned(), found.class.into());
        if let Some(policy) = found.preemption_policy
            && spec.get("preemptionPolicy").is_none_or(Value::is_null)
        {
            spec.insert("preemptionPolicy".to_owned(), policy.into());
        }
    }
    Ok(())
}

/// The same for a pod that was read already.
///
/// # Errors
/// As [`give_priority`].
pub fn give_pod_priority(pod: &mut api::Pod, classes: &dyn PriorityClasses) -> Result<(), UnknownClass> {
    let spec = &mut pod.spec;
    if spec.priority.is_some() {
        return Ok(());
    }
    if let Some(found) = priority(&spec.priority_class_name, classes)? {
        spec.priority = Some(found.value);
        spec.priority_class_name = found.class;
        spec.preemption_policy = spec.preemption_policy.take().or(found.preemption_policy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn completed(mut object: Value) -> Value {
        complete(&mut object);
        object
    }

    #[test]
    fn a_limit_is_a_request() {
        let pod = completed(json!({"kind": "Pod", "spec": {
            "containers": [{"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}, "requests": {"cpu": "1"}}}],
            "initContainers": [{"resources": {"limits": {"memory": "1Gi"}}}],
            "resources": {"limits": {"cpu": "5", "memory": "2Gi", "hugepages-2Mi": "4Mi"}}}}));
        let spec = &pod["spec"];
        assert_eq!(
            spec["containers"][0]["resources"]["requests"],
            json!({"cpu": "1", "nvidia.com/gpu": 1})
        );
        assert_eq!(
            spec["initContainers"][0]["resources"]["requests"],
            json!({"memory": "1Gi"})
        );
        assert_eq!(
            spec["resources"]["requests"],
            json!({"hugepages-2Mi": "4Mi"}),
            "for the rest, the containers say what they request"
        );
    }

    #[test]
    fn ports_on_the_network_of_the_node_are_the_nodes() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 9}, {"name": "none"}]);
        let pod = |host| json!({"kind": "Pod", "spec": {"hostNetwork": host, "containers": [{"ports": ports}]}});
        assert_eq!(completed(pod(false)), pod(false));
        assert_eq!(
            completed(pod(true))["spec"]["containers"][0]["ports"],
            json!([{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 9}, {"name": "none"}])
        );
    }

    #[test]
    fn nodes_and_volumes_say_what_they_have() {
        let node = |status| json!({"kind": "Node", "status": status});
        assert_eq!(
            completed(node(json!({"capacity": {"cpu": "4"}})))["status"]["allocatable"],
            json!({"cpu": "4"})
        );
        let told = node(json!({"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}));
        assert_eq!(completed(told.clone()), told);
        let volume = |spec: Value| json!({"kind": "PersistentVolume", "spec": spec});
        for free in [json!({}), json!({"claimRef": {"name": "c"}})] {
            assert_eq!(completed(volume(free))["status"]["phase"], "Available");
        }
        let taken = volume(json!({"claimRef": {"name": "c", "uid": "1"}}));
        assert_eq!(completed(taken.clone()), taken);
    }

    #[test]
    fn what_is_no_object_at_all_is_left_alone() {
        for odd in [
            json!(null),
            json!([1]),
            json!({"kind": "Pod", "spec": [1]}),
            json!({"kind": "Pod", "spec": {"containers": {"a": 1}, "resources": {"limits": 3}}}),
            json!({"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"cpu": 1}, "requests": 3}}]}}),
            json!({"kind": "Node", "status": 4}),
        ] {
            assert_eq!(completed(odd.clone()), odd);
        }
    }

    struct Known(Vec<Priority>);

    impl PriorityClasses for Known {
        fn find(&self, name: &str) -> Option<Priority> {
            self.0.iter().find(|known| known.class == name).cloned()
        }

        fn default_class(&self) -> Option<Priority> {
            self.find("usual")
        }
    }

    #[test]
    fn a_pod_takes_number_and_policy_from_its_class() {
        let class = |class: &str, value, policy: Option<&str>| Priority {
            class: class.to_owned(),
            value,
            preemption_policy: policy.map(str::to_owned),
        };
        let known = Known(vec![class("usual", 5, None), class("meek", 9, Some("Never"))]);
        let given = |spec: Value| {
            let mut spec = spec;
            give_priority(&mut spec, &known).map(|()| spec)
        };
        assert_eq!(
            given(json!({"priorityClassName": "meek"})),
            Ok(json!({"priorityClassName": "meek", "priority": 9, "preemptionPolicy": "Never"}))
        );
        assert_eq!(given(json!({})).unwrap()["priority"], 5);
        assert_eq!(
            given(json!({"priorityClassName": "system-node-critical"})).unwrap()["priority"],
            2_000_001_000
        );
        assert_eq!(
            given(json!({"priority": 3, "priorityClassName": "gone"})).unwrap()["priority"],
            3
        );
        assert!(given(json!({"priorityClassName": "gone"})).is_err());
        let mut pod = api::Pod::default();
        pod.spec.priority_class_name = "meek".to_owned();
        give_pod_priority(&mut pod, &known).unwrap();
        assert_eq!(
            (pod.spec.priority, pod.spec.preemption_policy.as_deref()),
            (Some(9), Some("Never"))
        );
    }
}
