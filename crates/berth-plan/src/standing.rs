//! Which pods run at the end of a simulation, and how many do not.
//!
//! A workload that creates its pods one after the other has not created those after a waiting one. They are counted too,
//! so that two clusters can be compared by the number of pods that do not run.

use berth_cluster::field;
use berth_cluster::simulation::{KEEPS_PODS, Simulation, wanted_pods};
use berth_cluster::workloads::is_over;
use std::collections::BTreeMap;

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Number of pods that do not run, including those that do not exist yet.
    pub unrun: usize,
    /// Number of running pods.
    pub running: usize,
    /// The existing pods that do not run, by name.
    pub waiting: Vec<Waiting>,
    /// Running pods by node.
    pub per_node: BTreeMap<String, usize>,
}

/// A pod that does not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Waiting {
    /// `namespace/name`.
    pub pod: String,
    /// Why it does not run.
    pub message: String,
}

/// The pods of one owner.
#[derive(Default)]
struct Tally {
    running: usize,
    waiting: usize,
}

impl Standing {
    /// Computes it from a simulation.
    #[must_use]
    pub fn of(simulation: &Simulation) -> Self {
        let view = simulation.objects();
        let mut standing = Self::default();
        let mut by_owner: BTreeMap<&str, Tally> = BTreeMap::new();
        for outcome in simulation.pod_outcomes() {
            let pod = outcome
                .pod
                .split_once('/')
                .and_then(|(namespace, name)| view.get("Pod", namespace, name));
            let owner = pod.and_then(field::controller_of);
            let owner = owner.and_then(|owner| owner["uid"].as_str()).unwrap_or_default();
            let tally = by_owner.entry(owner).or_default();
            let has_failed = pod.is_some_and(|pod| is_over(pod) && outcome.phase == "Failed");
            if outcome.is_waiting() || !outcome.is_placed {
                tally.waiting += 1;
                standing.waiting.push(Waiting {
                    pod: outcome.pod,
                    message: outcome.message,
                });
            } else if !has_failed && !outcome.is_replaced {
                tally.running += 1;
                standing.running += 1;
                *standing.per_node.entry(outcome.node).or_default() += 1;
            }
        }
        for workload in KEEPS_PODS.iter().flat_map(|kind| view.of_kind(kind)) {
            if !field::is_deleting(workload) {
                let tally = by_owner.remove(field::uid(workload)).unwrap_or_default();
                standing.unrun += wanted_pods(workload).saturating_sub(tally.running).max(tally.waiting);
            }
        }
        standing.unrun += by_owner.values().map(|tally| tally.waiting).sum::<usize>();
        standing
    }
}
