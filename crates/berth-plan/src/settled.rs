//! A cluster at rest, and what happens to it when nodes are lost or drained.

use crate::oracle::{Halt, Oracle, Played};
use crate::standing::Standing;
use berth_cluster::simulation::scenario::Action;
use berth_cluster::{Objects, View, field};
use berth_core::effect::ObjectKey;
use serde_json::Value;
use std::collections::BTreeSet;

/// A cluster in which nothing changes any more.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// Its objects.
    pub(crate) objects: Vec<Value>,
    /// The names of its nodes.
    nodes: BTreeSet<String>,
    /// Which pods run.
    pub(crate) standing: Standing,
}

impl Settled {
    /// The end of a simulation.
    pub(crate) fn of(played: &Played) -> Self {
        let nodes = played.simulation.objects().of_kind("Node");
        Self {
            nodes: nodes.map(|node| field::name(node).to_owned()).collect(),
            objects: played.simulation.all_objects(),
            standing: played.standing.clone(),
        }
    }

    /// Whether it has a node.
    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.nodes.contains(name)
    }

    /// Performs actions on the cluster, and runs until nothing changes.
    ///
    /// # Errors
    /// If time ran out, or an action cannot be performed.
    pub(crate) fn after(&self, oracle: &mut Oracle<'_>, objects: Vec<Value>, action: Action) -> Result<After, Halt> {
        let played = oracle.act(objects, action)?;
        let view = played.simulation.objects();
        let before: Objects = self.objects.iter().cloned().collect();
        let gone = before.of_kind("Pod").filter(|pod| {
            let runs = !field::text(pod, "/spec/nodeName").is_empty() && field::text(pod, "/status/phase") == "Running";
            runs && is_alone(&before, pod) && view.get("Pod", field::namespace(pod), field::name(pod)).is_none()
        });
        Ok(After {
            gone: gone
                .map(|pod| format!("{}/{}", field::namespace(pod), field::name(pod)))
                .collect(),
            lacking: played.standing.unrun.saturating_sub(self.standing.unrun),
            played,
        })
    }
}

/// A cluster after actions.
pub(crate) struct After {
    /// How many more pods do not run.
    pub(crate) lacking: usize,
    /// Pods that ran, are gone, and are not recreated.
    pub(crate) gone: Vec<String>,
    /// The cluster.
    pub(crate) played: Played,
}

/// Whether nothing in the cluster would recreate a pod.
fn is_alone(view: &Objects, pod: &Value) -> bool {
    field::controller_of(pod).is_none_or(|owner| {
        let text = |part: &str| owner[part].as_str().unwrap_or_default();
        view.get(text("kind"), field::namespace(pod), text("name")).is_none()
    })
}

/// A cluster without drained nodes: they are removed with everything that only they have.
pub(crate) fn without_node(objects: Vec<Value>, node: &str) -> Vec<Value> {
    let own: BTreeSet<ObjectKey> = {
        let view: Objects = objects.iter().cloned().collect();
        let found = view.get("Node", "", node);
        found.map(|found| own_objects(&view, found)).unwrap_or_default()
    };
    let is_own = |object: &Value| match field::kind(object) {
        "Pod" => field::text(object, "/spec/nodeName") == node,
        "Node" | "CSINode" => field::name(object) == node,
        _ => own.contains(&berth_cluster::key_of(object)),
    };
    objects.into_iter().filter(|object| !is_own(object)).collect()
}

/// Disks and pools that only this node reaches.
fn own_objects(view: &Objects, node: &Value) -> BTreeSet<ObjectKey> {
    use berth_cluster::simulation::scenario::copy::Storage;
    Storage::of(view, node).keys().collect()
}
