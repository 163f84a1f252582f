//! What kube-scheduler's wording leaves out: which taint, how much is left.

use super::report::TooSmall;
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_core::symbols::Symbol;
use berth_scheduler::cluster::{Cluster, Column};
use berth_scheduler::pod::{Effect, Pod, Taint};
use berth_scheduler::profile::Profile;
use berth_scheduler::reason::Reason;
use std::fmt;

/// What there is to add to a reason on a node; empty if nothing.
pub(super) fn detail(cluster: &Cluster, pod: &Pod, profile: &Profile, node: NodeId, reason: &Reason) -> String {
    let resources = cluster.resources();
    let wanted = &pod.footprint.requests;
    match reason {
        Reason::UntoleratedTaint => untolerated_taints(cluster, pod, profile, node),
        Reason::InsufficientCpu => left(Milli(wanted.cpu_milli), &resources.cpu, node, Milli),
        Reason::InsufficientMemory => left(Bytes(wanted.memory_bytes), &resources.memory, node, Bytes),
        Reason::InsufficientEphemeralStorage => left(Bytes(wanted.ephemeral_bytes), &resources.ephemeral, node, Bytes),
        Reason::InsufficientResource { resource } => scalar_left(cluster, pod, node, resource),
        Reason::TooManyPods => {
            let pods = &resources.pods;
            format!(
                "runs {} of {}",
                pods.requested[node.index()],
                pods.allocatable[node.index()]
            )
        }
        Reason::PodAntiAffinity => apart_by(cluster, pod),
        _ => String::new(),
    }
}

/// How the detail of anti-affinity begins: the labels by which nodes count as near each other follow.
pub(super) const APART_BY: &str = "apart by ";

fn apart_by(cluster: &Cluster, pod: &Pod) -> String {
    let terms = pod.footprint.terms.iter().flat_map(|terms| terms.required_anti.iter());
    let mut keys: Vec<&str> = terms.map(|term| cluster.symbols().text(term.topology_key)).collect();
    keys.sort_unstable();
    keys.dedup();
    format!("{APART_BY}{}", keys.join(", "))
}

/// What a node has too little of even if nothing runs there; none if there would be enough of it.
pub(super) fn too_small(cluster: &Cluster, pod: &Pod, node: NodeId, reason: &Reason) -> Option<TooSmall> {
    let resources = cluster.resources();
    let wanted = &pod.footprint.requests;
    let all = |column: &Column| column.allocatable[node.index()];
    let (wants, has) = match reason {
        Reason::InsufficientCpu => (wanted.cpu_milli, all(&resources.cpu)),
        Reason::InsufficientMemory => (wanted.memory_bytes, all(&resources.memory)),
        Reason::InsufficientEphemeralStorage => (wanted.ephemeral_bytes, all(&resources.ephemeral)),
        Reason::InsufficientResource { resource } => {
            let name = cluster.symbols().get(resource)?;
            (scalar_wanted(pod, name), resources.scalar(name, node).1)
        }
        _ => return None,
    };
    let text = |amount: i64| match reason {
        Reason::InsufficientCpu => Milli(amount).to_string(),
        Reason::InsufficientResource { .. } => amount.to_string(),
        _ => Bytes(amount).to_string(),
    };
    let words = reason.to_string();
    (wants > has).then(|| TooSmall {
        resource: words.strip_prefix("Insufficient ").unwrap_or(&words).to_owned(),
        wants: text(wants),
        has: text(has),
        amount: has,
    })
}

fn left<T: fmt::Display>(wanted: T, column: &Column, node: NodeId, unit: impl Fn(i64) -> T) -> String {
    let (free, all) = (unit(column.free(node)), unit(column.allocatable[node.index()]));
    format!("wants {wanted}, has {free} of {all} left")
}

fn scalar_wanted(pod: &Pod, name: Symbol) -> i64 {
    let scalars = pod.footprint.requests.scalars.iter();
    scalars
        .filter(|(scalar, _)| *scalar == name)
        .map(|(_, amount)| amount)
        .sum()
}

fn scalar_left(cluster: &Cluster, pod: &Pod, node: NodeId, resource: &str) -> String {
    let Some(name) = cluster.symbols().get(resource) else {
        return String::new();
    };
    let wanted = scalar_wanted(pod, name);
    let (free, all) = cluster.resources().scalar(name, node);
    format!("wants {wanted}, has {free} of {all} left")
}

fn untolerated_taints(cluster: &Cluster, pod: &Pod, profile: &Profile, node: NodeId) -> String {
    let taints = cluster.taints();
    let compare_numbers = profile.gates.taint_toleration_comparison_operators;
    let symbols = cluster.symbols();
    let tolerated = |taint: &Taint| {
        let mut tolerations = pod.tolerations.iter();
        tolerations.any(|toleration| toleration.tolerates(symbols, taint, compare_numbers))
    };
    let own = taints
        .lists()
        .get(taints.list_of(node))
        .into_iter()
        .flat_map(|list| list.taints.iter());
    let untolerated = own.filter(|taint| taint.effect.is_hard() && !tolerated(taint));
    let text = |symbol: Symbol| symbols.text(symbol);
    let listed: Vec<String> = untolerated
        .map(|taint| {
            let effect = match taint.effect {
                Effect::NoSchedule => "NoSchedule",
                Effect::PreferNoSchedule => "PreferNoSchedule",
                Effect::NoExecute => "NoExecute",
            };
            match text(taint.value) {
                "" => format!("{}:{effect}", text(taint.key)),
                value => format!("{}={value}:{effect}", text(taint.key)),
            }
        })
        .collect();
    listed.join(", ")
}

/// Thousandths of processors as Kubernetes users write them: `2`, `1500m`.
struct Milli(i64);

impl fmt::Display for Milli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            _ => write!(f, "{}m", self.0),
        }
    }
}
