//! The message for a pod that fits nowhere, and whether preemption would make room for it.
//!
//! Both come from the scheduler itself: a decision, and the preemption dry run that follows it. Nothing is evicted.

use super::report::{PreemptionReport, Victim};
use berth_core::nodes::NodeId;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::decide::{Decision, Scratch, decide};
use berth_scheduler::nominated::{Nominated, Question};
use berth_scheduler::pod::Pod;
use berth_scheduler::preemption::{Candidate, Preemption, best, preempt};
use berth_scheduler::profile::Profile;

/// The message in kube-scheduler's format, and the preemption that the scheduler would do. `own` is the node that is
/// already nominated for the pod.
pub(super) fn refusal(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    own: Option<NodeId>,
) -> (String, Option<PreemptionReport>) {
    let all = cluster.all_nodes().len();
    // The seed does not affect a refusal.
    let mut scratch = Scratch::new(0);
    let Decision::Refuse(diagnosis) = decide(cluster, pod, profile, &mut scratch) else {
        return (format!("0/{all} nodes are available."), None);
    };
    let message = diagnosis.message();
    let nominated = Nominated {
        own,
        ..Nominated::default()
    };
    let question = Question {
        pod,
        profile,
        states: &scratch.states,
        nominated: &nominated,
    };
    match preempt(cluster, &question, &diagnosis) {
        Preemption::Evict(candidates) => {
            let candidate = best(cluster, candidates);
            (message, candidate.map(|candidate| report(cluster, &candidate)))
        }
        Preemption::NotTried(Some(words)) | Preemption::Helpless(words, _) if all > 0 => {
            (format!("{message} {words}"), None)
        }
        Preemption::NotTried(_) | Preemption::Helpless(..) => (message, None),
    }
}

fn report(cluster: &Cluster, candidate: &Candidate) -> PreemptionReport {
    let symbols = cluster.symbols();
    let victims = candidate
        .victims
        .iter()
        .filter_map(|victim| cluster.pods().get(*victim));
    PreemptionReport {
        node: symbols.text(cluster.nodes().name(candidate.node)).to_owned(),
        victims: victims
            .map(|victim| Victim {
                pod: format!("{}/{}", symbols.text(victim.footprint.namespace), victim.footprint.name),
                priority: victim.footprint.priority,
            })
            .collect(),
        budget_violations: candidate.violations,
    }
}
