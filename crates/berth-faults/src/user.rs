//! Actions of users and nodes: writes that no component makes.

use crate::objects::{self, NAMESPACE};
use crate::story::{self, Action};
use crate::world::{World, wall};
use berth_cluster::agent::{self, Mode};
use berth_cluster::names::{AGENT_MODE, NODE_LEASES};
use berth_cluster::{field, lifecycle, step};
use berth_core::effect::{Delete, Effect, Guard, Merge, ObjectKey, Patch, Target};
use berth_core::names::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use berth_core::time::micros;
use serde_json::{Value, json};

/// The effects of a user action. Empty if its target does not exist.
pub(crate) fn effects(action: Action, world: &World) -> Vec<Effect> {
    let pod = |index| ObjectKey::new("Pod", NAMESPACE, story::pod(index));
    let claim = |index| ObjectKey::claim(NAMESPACE, story::claim(index));
    let node = |index| ObjectKey::new("Node", "", story::node(index));
    match action {
        Action::CreatePod { pod } => create(objects::pod(pod)),
        Action::DeletePod { pod: index } => delete(world, &pod(index)),
        Action::DeletePodInForeground { pod: index } => in_foreground(world, &pod(index)),
        Action::ReplacePod { pod: index } => match world.find(&pod(index)) {
            Some(doc) => {
                let (mut effects, target) = (Vec::new(), Target::of_value(&doc.value));
                effects.push(Effect::Delete(Delete {
                    target,
                    guard: Guard::Uid,
                    grace_seconds: Some(0),
                }));
                effects.extend(create(objects::pod(index)));
                effects
            }
            None => Vec::new(),
        },
        Action::NameNode { pod: index, node: at } => name_node(world, &pod(index), story::node(at)),
        Action::LabelPod { pod: index } => patch(world, &pod(index), json!({"metadata": {"labels": {"late": "yes"}}})),
        Action::CreateClaim { claim } => create(objects::claim(claim)),
        Action::DeleteClaim { claim: index } => delete(world, &claim(index)),
        Action::SelectNode { claim: index, node: at } => select(world, &claim(index), story::node(at)),
        Action::CreateVolume { volume } => create(objects::volume(volume)),
        Action::DeleteVolume { volume } => any_volume(world, volume).map_or_else(Vec::new, |key| delete(world, &key)),
        Action::Prebind { volume, claim: index } => {
            let name = story::VOLUMES.get(volume).copied().unwrap_or_default();
            prebind(world, &ObjectKey::volume(name), &claim(index))
        }
        Action::ReleaseVolume { volume } => any_volume(world, volume).map_or_else(Vec::new, |key| release(world, &key)),
        Action::Retain { volume } => policy(world, volume, "Retain"),
        Action::DeleteOnRelease { volume } => policy(world, volume, "Delete"),
        Action::CreateClass { class } => create(objects::class(class_name(class))),
        Action::DeleteClass { class } => delete(world, &ObjectKey::new("StorageClass", "", class_name(class))),
        Action::LimitCapacity { node, gi } => report(world, node, &json!({"capacity": format!("{gi}Gi")})),
        Action::LimitSize { node, gi } => report(world, node, &json!({"maximumVolumeSize": format!("{gi}Gi")})),
        Action::FreeCapacity { node } => {
            let all = format!("{}Gi", objects::PLENTY_GI);
            report(world, node, &json!({"capacity": all, "maximumVolumeSize": null}))
        }
        Action::RemoveDriver { node: at } => delete(world, &ObjectKey::new("CSINode", "", story::node(at))),
        Action::AddDriver { node: at } => match world.find(&node(at)) {
            Some(_) => create(objects::csi_node(story::node(at))),
            None => Vec::new(),
        },
        Action::Cordon { node: at } => patch(world, &node(at), json!({"spec": {"unschedulable": true}})),
        Action::Uncordon { node: at } => patch(world, &node(at), json!({"spec": {"unschedulable": null}})),
        Action::Drain { node: at } => {
            let mut effects = patch(world, &node(at), json!({"spec": {"unschedulable": true}}));
            let pods = world
                .of_kind("Pod")
                .filter(|pod| pod.text("/spec/nodeName") == story::node(at));
            effects.extend(pods.map(|pod| step::delete(&pod.value)));
            effects
        }
        Action::LoseNode { node: at } => lose(world, &node(at)),
        Action::NodeBack { node: at } => back(world, &node(at)),
        Action::Refuse { node: at } => match world.find(&node(at)) {
            Some(doc) if field::annotation(&doc.value, AGENT_MODE).is_none() => patch(
                world,
                &node(at),
                json!({"metadata": {"annotations": {AGENT_MODE: "refuse"}}}),
            ),
            _ => Vec::new(),
        },
        Action::Admit { node: at } => match world.find(&node(at)) {
            Some(doc) if field::annotation(&doc.value, AGENT_MODE) == Some("refuse") => patch(
                world,
                &node(at),
                json!({"metadata": {"annotations": {AGENT_MODE: null}}}),
            ),
            _ => Vec::new(),
        },
        Action::PlaceReplica { replica, node: at } => {
            let key = ObjectKey::new("Pod", NAMESPACE, format!("{}-{replica}", set().name));
            let waits = |doc: &&std::rc::Rc<crate::world::Doc>| doc.text("/spec/nodeName").is_empty();
            let bind = |doc: &std::rc::Rc<crate::world::Doc>| Effect::Bind {
                pod: Target::of_value(&doc.value),
                node: story::node(at).to_owned(),
            };
            world.find(&key).filter(waits).map(bind).into_iter().collect()
        }
        Action::DeleteNode { node: at } => {
            let mut effects = delete(world, &node(at));
            effects.extend(delete(world, &ObjectKey::new("CSINode", "", story::node(at))));
            effects.extend(delete(world, &ObjectKey::new("Lease", NODE_LEASES, story::node(at))));
            effects
        }
        Action::AddNode { node: at } => {
            let mut effects = create(objects::node(story::node(at)));
            effects.extend(create(objects::csi_node(story::node(at))));
            effects
        }
        Action::CreateSet => create(objects::stateful_set()),
        Action::DeleteSet => delete(world, &set()),
        Action::DeleteReplica { replica } => {
            let name = format!("{}-{replica}", set().name);
            delete(world, &ObjectKey::new("Pod", NAMESPACE, name))
        }
        Action::ScaleSet { replicas } => patch(world, &set(), json!({"spec": {"replicas": replicas}})),
        Action::RollOut => {
            let image = format!("app-{}", world.now);
            let body = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
            patch(world, &set(), body)
        }
        Action::ScaleDeployment { replicas } => {
            let key = ObjectKey::new("Deployment", NAMESPACE, "web");
            match world.find(&key) {
                Some(_) => patch(world, &key, json!({"spec": {"replicas": replicas}})),
                None => create(objects::deployment(replicas)),
            }
        }
        Action::Hold { .. }
        | Action::Relist { .. }
        | Action::Cut { .. }
        | Action::Double { .. }
        | Action::Kill { .. }
        | Action::Pause { .. }
        | Action::Net { .. }
        | Action::Jump { .. }
        | Action::Driver { .. } => Vec::new(),
    }
}

fn set() -> ObjectKey {
    ObjectKey::new("StatefulSet", NAMESPACE, "db")
}

fn class_name(index: usize) -> &'static str {
    story::CLASSES.get(index).copied().unwrap_or_default()
}

fn create(object: Value) -> Vec<Effect> {
    vec![Effect::Create(Box::new(object))]
}

fn delete(world: &World, key: &ObjectKey) -> Vec<Effect> {
    let found = world.find(key);
    found.map(|doc| step::delete(&doc.value)).into_iter().collect()
}

fn patch(world: &World, key: &ObjectKey, body: Value) -> Vec<Effect> {
    let effect = |target| {
        Effect::Patch(Patch {
            target,
            guard: Guard::Uid,
            subresource: None,
            merge: Merge::Strategic,
            body,
            name: "user",
        })
    };
    let found = world.find(key);
    let target = found.map(|doc| Target::of_value(&doc.value));
    target.map(effect).into_iter().collect()
}

/// Foreground deletion: dependents are deleted first. The API server's garbage collector does the rest.
fn in_foreground(world: &World, key: &ObjectKey) -> Vec<Effect> {
    let Some(doc) = world.find(key).filter(|doc| !field::is_deleting(&doc.value)) else {
        return Vec::new();
    };
    let finalizers = field::items(&doc.value, "/metadata/finalizers").iter().cloned();
    let finalizers: Vec<Value> = finalizers.chain([json!("foregroundDeletion")]).collect();
    let mut effects = patch(world, key, json!({"metadata": {"finalizers": finalizers}}));
    effects.extend(delete(world, key));
    effects
}

fn select(world: &World, key: &ObjectKey, node: &str) -> Vec<Effect> {
    let is_free = |doc: &&std::rc::Rc<crate::world::Doc>| {
        doc.text("/spec/volumeName").is_empty() && field::annotation(&doc.value, SELECTED_NODE).is_none()
    };
    match world.find(key).filter(is_free) {
        Some(_) => patch(world, key, json!({"metadata": {"annotations": {SELECTED_NODE: node}}})),
        None => Vec::new(),
    }
}

/// Nominates a node for a pod that has none.
fn name_node(world: &World, pod: &ObjectKey, node: &str) -> Vec<Effect> {
    let waits = |doc: &&std::rc::Rc<crate::world::Doc>| doc.text("/spec/nodeName").is_empty();
    let target = world.find(pod).filter(waits).map(|doc| Target::of_value(&doc.value));
    let effect = |target| {
        Effect::Patch(Patch {
            target,
            guard: Guard::Uid,
            subresource: Some("status"),
            merge: Merge::Strategic,
            body: json!({"status": {"nominatedNodeName": node}}),
            name: "user",
        })
    };
    target.map(effect).into_iter().collect()
}

fn any_volume(world: &World, index: usize) -> Option<ObjectKey> {
    let volumes: Vec<_> = world.of_kind("PersistentVolume").collect();
    let found = volumes.get(index.checked_rem(volumes.len())?)?;
    Some(found.key.clone())
}

fn prebind(world: &World, volume: &ObjectKey, claim: &ObjectKey) -> Vec<Effect> {
    let is_free = world
        .find(volume)
        .is_some_and(|doc| doc.value["spec"]["claimRef"].is_null());
    if !is_free {
        return Vec::new();
    }
    let reference = json!({"namespace": claim.namespace, "name": claim.name});
    patch(world, volume, json!({"spec": {"claimRef": reference}}))
}

/// What administrators do with a released volume that should be used again.
fn release(world: &World, volume: &ObjectKey) -> Vec<Effect> {
    let is_released = world
        .find(volume)
        .is_some_and(|doc| doc.text("/status/phase") == "Released" && !field::is_deleting(&doc.value));
    if !is_released {
        return Vec::new();
    }
    let body = json!({"spec": {"claimRef": null}, "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}});
    patch(world, volume, body)
}

fn policy(world: &World, volume: usize, policy: &str) -> Vec<Effect> {
    let body = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    any_volume(world, volume).map_or_else(Vec::new, |key| patch(world, &key, body))
}

/// The driver's report for a node, or for all nodes.
fn report(world: &World, node: usize, body: &Value) -> Vec<Effect> {
    let nodes = match story::NODES.get(node) {
        Some(node) => std::slice::from_ref(node),
        None => &story::NODES[..],
    };
    let reports = nodes.iter().map(|node| objects::capacity(node, objects::PLENTY_GI));
    let patches = reports.flat_map(|object| patch(world, &berth_cluster::key_of(&object), body.clone()));
    patches.collect()
}

/// The agent of a node becomes silent: its last heartbeat is now.
fn lose(world: &World, node: &ObjectKey) -> Vec<Effect> {
    let stop = json!({"metadata": {"annotations": {AGENT_MODE: "stop"}}});
    let mut effects = patch(world, node, stop);
    let lease = ObjectKey::new("Lease", NODE_LEASES, &node.name);
    if !effects.is_empty() && world.find(&lease).is_none() {
        effects.extend(create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node.name, "namespace": NODE_LEASES},
            "spec": {"holderIdentity": node.name, "renewTime": micros(wall(world.now, 0))}})));
    }
    effects
}

/// The agent of a node is back, and reports that the node is ready.
fn back(world: &World, node: &ObjectKey) -> Vec<Effect> {
    let lease = ObjectKey::new("Lease", NODE_LEASES, &node.name);
    if world.find(&lease).is_none() {
        return Vec::new();
    }
    let now = wall(world.now, 0);
    let mut trial = world.cluster.clone();
    let mut effects = patch(world, node, json!({"metadata": {"annotations": {AGENT_MODE: null}}}));
    effects.extend(patch(world, &lease, json!({"spec": {"renewTime": micros(now)}})));
    // What is refused here is also refused by the cluster.
    let _ = trial.carry_out(&effects, now);
    let settings = agent::Settings {
        heartbeats: true,
        ..agent::Settings::default()
    };
    let is_about_node = |effect: &Effect| {
        let key = effect.writes_to();
        key.is_some_and(|key| key.kind == "Node" || key.kind == "Lease")
    };
    let beat = agent::step(trial.objects(), &node.name, Mode::Run, &settings, now);
    let beat: Vec<Effect> = beat.effects.into_iter().filter(is_about_node).collect();
    let _ = trial.carry_out(&beat, now);
    effects.extend(beat);
    let seen = lifecycle::step(trial.objects(), &node.name, now).effects;
    effects.extend(seen.into_iter().filter(is_about_node));
    effects.extend(delete(world, &lease));
    effects
}
