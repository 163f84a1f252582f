//! Pods that came before their claims.
//!
//! Watches of different kinds run side by side, so a pod can be seen a moment before the claim that was created for
//! it. Decided on at once it would be refused, and wait for its whole backoff. Such a pod is held back until its
//! claims are known, for a short time only: if they do not come, the refusal is true.

use crate::watch::ObjectName;
use berth_core::api::{Object, Pod};
use berth_scheduler::cluster::Cluster;
use berth_scheduler::scheduler::DEFAULT_SCHEDULER_NAME;
use rustc_hash::FxHashMap;
use tokio::time::{Duration, Instant};

/// How long a pod is held back. Watches of one server are some milliseconds apart, and the claim of an ephemeral
/// volume is made by a controller that has to see the pod first.
const HOLD: Duration = Duration::from_millis(50);

/// The pods that are held back.
#[derive(Default)]
pub(super) struct Hold {
    pods: FxHashMap<ObjectName, (Instant, Box<Pod>)>,
}

impl Hold {
    /// Takes a pod if it must wait for its claims; gives every other object back. One that was let go is not held again.
    pub(super) fn take(&mut self, object: Object, known: bool, cluster: &Cluster) -> Option<Object> {
        let Object::Pod(pod) = object else {
            return Some(object);
        };
        let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let held = self.pods.remove(&name);
        let pending = pod.spec.node_name.is_empty() && !pod.metadata.is_deleting() && !pod.is_finished();
        if !pending || known && held.is_none() || has_claims(cluster, &pod) {
            return Some(Object::Pod(pod));
        }
        let until = held.map_or_else(|| Instant::now() + HOLD, |(until, _)| until);
        self.pods.insert(name, (until, pod));
        None
    }

    pub(super) fn remove(&mut self, name: &ObjectName) {
        self.pods.remove(name);
    }

    /// When the first pod is let go in any case.
    pub(super) fn until(&self) -> Option<Instant> {
        self.pods.values().map(|(until, _)| *until).min()
    }

    /// Lets those go whose claims have come, or whose time is over.
    pub(super) fn let_go(&mut self, cluster: &Cluster) -> Vec<Object> {
        if self.pods.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let free = self
            .pods
            .extract_if(|_, (until, pod)| *until <= now || has_claims(cluster, pod));
        free.map(|(_, (_, pod))| Object::Pod(pod)).collect()
    }
}

/// The name of the scheduler that a pod wants.
pub(super) fn scheduler_name(pod: &Pod) -> &str {
    let named = pod.spec.scheduler_name.as_deref();
    named.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SCHEDULER_NAME)
}

/// Whether all claims of a pod are known.
fn has_claims(cluster: &Cluster, pod: &Pod) -> bool {
    let namespace = cluster.symbols().get(&pod.metadata.namespace);
    let is_known =
        |name: &str| namespace.is_some_and(|namespace| cluster.binder().claim_named(namespace, name).is_some());
    pod.spec
        .volumes
        .iter()
        .all(|volume| match &volume.persistent_volume_claim {
            Some(source) => is_known(&source.claim_name),
            None if volume.ephemeral.is_some() => is_known(&format!("{}-{}", pod.metadata.name, volume.name)),
            None => true,
        })
}
