//! Answers about a claim, a volume or a node: its state, what it waits for, and which pods are affected.

use super::cause::Cause;
use super::claims;
use super::evidence::ago;
use super::layout::{count, names};
use super::report::{ClaimReport, ClaimState};
use super::volumes::{hosts, is_down};
use super::waiting;
use super::world::World;
use crate::terminal::{one_line, wrapped};
use berth_core::api;
use berth_core::binder::PodVolumes;
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_scheduler::examine::examine;
use berth_scheduler::profile::Profile;
use serde::Serialize;
use std::fmt::Write as _;

/// Maximum number of names listed.
const NAMES_SHOWN: usize = 5;
/// Maximum number of events shown.
const EVENTS_SHOWN: usize = 5;
/// Reasons of events that report why a claim is not bound: over once it is.
const WAITING_EVENTS: [&str; 6] = [
    "WaitForFirstConsumer",
    "WaitForPodScheduled",
    "ExternalProvisioning",
    "Provisioning",
    "ProvisioningFailed",
    "FailedBinding",
];

/// The answer about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectReport {
    /// Its kind and name, as in kubectl: `pvc/shop/data`.
    pub object: String,
    /// Its state, if there is a code for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Cause>,
    /// The text, line by line.
    pub text: Vec<String>,
    /// The affected pods, each with a remark.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// What a claim needs, and what nodes offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimReport>,
}

impl ObjectReport {
    fn new(object: String) -> Self {
        Self {
            object,
            code: None,
            text: Vec::new(),
            pods: Vec::new(),
            claim: None,
        }
    }

    /// Whether it is of no use as it is: no pod can use the claim or the volume, or the node takes no pods.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.is_kept() && !matches!(self.code, None | Some(Cause::ClaimBound | Cause::ClaimDelayed))
    }

    /// Whether it waits for another component.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.code.is_some_and(Cause::keeps_claims)
    }
}

/// A claim. `None` if it does not exist.
pub(super) fn claim(world: &mut World, namespace: &str, name: &str) -> Option<ObjectReport> {
    let full = format!("{namespace}/{name}");
    let metadata = world.objects.claims.get(&full)?.metadata.clone();
    // Queried for a pod with only this claim.
    let mut pod = api::Pod::default();
    namespace.clone_into(&mut pod.metadata.namespace);
    pod.spec.volumes.push(api::PodVolume {
        persistent_volume_claim: Some(api::ClaimSource {
            claim_name: name.to_owned(),
            read_only: false,
        }),
        ..api::PodVolume::default()
    });
    let volumes = PodVolumes::new(world.cluster.symbols_mut(), &pod);
    let nodes: Vec<NodeId> = world.cluster.nodes().ids().collect();
    let found = claims::report(world, &volumes, &nodes).into_iter().next()?;
    let mut report = ObjectReport::new(format!("pvc/{full}"));
    report.text.push(found.summary.clone());
    let mut is_out_of_service = false;
    if let ClaimState::Bound { volume, .. } = &found.state {
        let about;
        (is_out_of_service, about) = about_its_volume(world, volume);
        report.text.extend(about);
    }
    if let Some(node) = found.selected_node() {
        report.text.push(match world.objects.nodes.contains_key(node) {
            true => format!(
                "node {node} is selected for its volume: the provisioner creates it there, or clears the selection"
            ),
            false => {
                format!("node {node} is selected for its volume, and does not exist: the provisioner has to clear that")
            }
        });
    }
    for offer in found.offers() {
        report
            .text
            .push(format!("{}: {}", names(&offer.nodes, NAMES_SHOWN), offer.text));
    }
    let unfit = found.unfit().iter().filter(|unfit| unfit.code != Cause::VolumeTooSmall);
    report
        .text
        .extend(unfit.flat_map(|unfit| &unfit.text).map(|text| format!("volume {text}")));
    let is_bound = found.code == Cause::ClaimBound;
    report
        .text
        .extend(events(world, "PersistentVolumeClaim", &metadata, is_bound));
    report.pods = world.objects.users_of(namespace, name).map(place).collect();
    if report.pods.is_empty() {
        report.text.push("no pod uses it".to_owned());
    }
    report.code = Some(match found.code {
        Cause::ClaimBound if is_out_of_service => Cause::ClaimNodeDown,
        Cause::ClaimDelayed if !found.offers().is_empty() && found.offers().iter().all(|offer| !offer.suffices) => {
            report.text.push("no node has storage for it".to_owned());
            Cause::ClaimNoStorage
        }
        code => code,
    });
    if let Some(waiting) = waiting::of_claim(world, &pod, &found) {
        report.code = match waiting.code {
            Cause::PodProvisioningFailed => Some(Cause::ClaimProvisioningFailed),
            Cause::PodProvisionerSilent => Some(Cause::ClaimProvisionerSilent),
            _ => report.code,
        };
        let first = [waiting.text].into_iter().chain(waiting.evidence);
        report.text.splice(0..0, first);
    }
    report.claim = Some(found);
    Some(report)
}

/// A volume. `None` if it does not exist.
pub(super) fn volume(world: &World, name: &str) -> Option<ObjectReport> {
    let volume = world.objects.volumes.get(name)?;
    let model = world.cluster.binder().volume_named(name)?;
    let mut report = ObjectReport::new(format!("pv/{name}"));
    let class = match volume.class_name() {
        "" => "without a class".to_owned(),
        class => format!("of class {class}"),
    };
    let phase = Some(volume.status.phase.as_str()).filter(|phase| !phase.is_empty());
    report.text.push(format!(
        "{} {class} ({}), {}",
        Bytes(model.capacity),
        model.access_modes.abbreviated(),
        phase.unwrap_or("without a phase")
    ));
    let all = world.cluster.nodes().ids().count();
    let reaching = world.cluster.nodes().matching(model.affinity);
    let named: Vec<String> = reaching
        .iter()
        .map(|node| {
            world
                .cluster
                .symbols()
                .text(world.cluster.nodes().name(NodeId(node)))
                .to_owned()
        })
        .collect();
    if volume.metadata.is_deleting() {
        report.text.push("being deleted".to_owned());
    }
    report.text.push(match (named.len(), hosts(volume).as_slice()) {
        (0, []) => "its node affinity matches no node".to_owned(),
        (0, hosts) => format!("node {} does not exist", names(hosts, NAMES_SHOWN)),
        (some, _) if some == all => "every node can reach it".to_owned(),
        (some, _) => format!(
            "{} can reach it: {}",
            count(some, "node", "nodes"),
            names(&named, NAMES_SHOWN)
        ),
    });
    let is_out_of_service = !named.is_empty() && named.iter().all(|node| is_down(&world.objects, node));
    if is_out_of_service {
        report.text.push(format!("{} not respond", nodes_do(&named)));
    }
    let reference = volume.spec.claim_ref.as_ref();
    let is_known = world.gaps.why("persistentvolumeclaims").is_none();
    let is_reserved_in_vain =
        is_known && reference.is_some_and(|reference| world.objects.claim_of(reference).is_none());
    report.code = match volume.status.phase.as_str() {
        _ if volume.metadata.is_deleting() => Some(Cause::VolumeDeleting),
        "Released" => Some(Cause::VolumeReleased),
        "Failed" => Some(Cause::VolumeFailed),
        _ if named.is_empty() => Some(Cause::VolumeNodeMissing),
        _ if is_out_of_service => Some(Cause::VolumeNodeDown),
        _ if is_reserved_in_vain => Some(Cause::VolumeReserved),
        _ => None,
    };
    if let Some(reference) = &volume.spec.claim_ref {
        let full = format!("{}/{}", reference.namespace, reference.name);
        let exists = world.objects.claim_of(reference).is_some();
        let is_another = !exists && world.objects.claims.contains_key(&full);
        report.text.push(match (volume.status.phase.as_str(), exists) {
            ("Bound", true) => format!("bound to claim {full}"),
            ("Released", _) => format!("released by claim {full}: remove spec.claimRef if the data is not needed"),
            (_, true) => format!("reserved for claim {full}"),
            (_, false) if is_another => {
                format!(
                    "reserved for an earlier claim {full}, which does not exist: the claim of that name has another uid"
                )
            }
            (_, false) => format!("reserved for claim {full}, which does not exist"),
        });
        if exists {
            let users = world.objects.users_of(&reference.namespace, &reference.name);
            report.pods = users.map(place).collect();
        }
    }
    report
        .text
        .extend(Some(volume.status.message.clone()).filter(|message| !message.is_empty()));
    Some(report)
}

/// A node, with the waiting pods and whether it would accept them. `None` if it does not exist.
pub(super) fn node<'p>(
    world: &mut World,
    name: &str,
    profile_of: &dyn Fn(&api::Pod) -> Option<&'p Profile>,
) -> Option<ObjectReport> {
    let node = world.objects.nodes.get(name)?.clone();
    let id = world.cluster.binder().node(name)?;
    let mut report = ObjectReport::new(format!("node/{name}"));
    if node.spec.unschedulable {
        report.code = Some(Cause::NodeCordoned);
    }
    if is_down(&world.objects, name) {
        report.code = Some(Cause::NodeDown);
        report.text.push("does not respond".to_owned());
    }
    if node.spec.unschedulable {
        report.text.push(format!("cordoned (kubectl uncordon {name})"));
    }
    for taint in &node.spec.taints {
        report.text.push(match taint.value.as_str() {
            "" => format!("taint {}:{}", taint.key, taint.effect),
            value => format!("taint {}={value}:{}", taint.key, taint.effect),
        });
    }
    let resources = world.cluster.resources();
    let (cpu, memory, pods) = (&resources.cpu, &resources.memory, &resources.pods);
    report.text.push(format!(
        "free: {}m of {}m cpu, {} of {} memory, {} of {} pods",
        cpu.free(id),
        cpu.allocatable[id.index()],
        Bytes(memory.free(id)),
        Bytes(memory.allocatable[id.index()]),
        pods.free(id),
        pods.allocatable[id.index()]
    ));
    let binder = world.cluster.binder();
    let free: Vec<&str> = binder
        .free_volumes()
        .filter(|volume| {
            binder
                .volume_named(volume)
                .is_some_and(|volume| binder.nodes().matching(volume.affinity).contains(id.0))
        })
        .collect();
    report.text.push(match free.len() {
        0 => "no free volume".to_owned(),
        some => format!(
            "{}: {}",
            count(some, "free volume", "free volumes"),
            names(&free, NAMES_SHOWN)
        ),
    });
    let waits = |pod: &&api::Pod| pod.spec.node_name.is_empty() && !pod.is_finished();
    let waiting: Vec<api::Pod> = world.objects.pods.values().filter(waits).cloned().collect();
    for pod in waiting {
        let Some(profile) = profile_of(&pod) else { continue };
        let compiled = world.cluster.compile(&profile.adapt(&pod));
        let examination = examine(&mut world.cluster, &compiled, profile);
        world.cluster.release(&compiled);
        let Some(found) = examination.nodes.iter().find(|node| node.name == name) else {
            continue;
        };
        let reasons = examination
            .refused
            .iter()
            .chain(&found.refusals)
            .flat_map(|refusal| &refusal.reasons);
        let mut once: Vec<String> = Vec::new();
        // Several plugins refuse a pod for the same reason, some with a lead.
        for reason in reasons.map(ToString::to_string) {
            if !once.iter().any(|known| reason.ends_with(known.as_str())) {
                once.push(reason);
            }
        }
        let reasons = once;
        report.pods.push(match (found.fits, reasons.as_slice()) {
            (true, _) => format!("{} is pending and fits", pod.metadata.full_name()),
            (false, []) => format!("{} is pending and selects other nodes", pod.metadata.full_name()),
            (false, reasons) => format!(
                "{} is pending and does not fit: {}",
                pod.metadata.full_name(),
                reasons.join(", ")
            ),
        });
    }
    Some(report)
}

fn place(pod: &api::Pod) -> String {
    match pod.spec.node_name.as_str() {
        "" => format!("{} uses it and is pending", pod.metadata.full_name()),
        node => format!("{} uses it on {node}", pod.metadata.full_name()),
    }
}

/// Whether nothing can reach the volume of a bound claim because its nodes do not respond, and what else is wrong with it.
fn about_its_volume(world: &World, name: &str) -> (bool, Vec<String>) {
    let object = world.objects.volumes.get(name);
    let Some((object, model)) = object.zip(world.cluster.binder().volume_named(name)) else {
        return (false, Vec::new());
    };
    let nodes = world.cluster.nodes();
    let reaching = nodes.matching(model.affinity).iter();
    let reaching: Vec<String> = reaching
        .map(|node| world.cluster.symbols().text(nodes.name(NodeId(node))).to_owned())
        .collect();
    let is_out_of_service = !reaching.is_empty() && reaching.iter().all(|node| is_down(&world.objects, node));
    let mut told = Vec::new();
    if is_out_of_service {
        told.push(format!(
            "{} not respond: nothing can use its volume",
            nodes_do(&reaching)
        ));
    }
    if object.metadata.is_deleting() {
        told.push(format!("its volume {name} is being deleted"));
    }
    (is_out_of_service, told)
}

/// `node n1 does`, `nodes n1, n2 do`.
fn nodes_do(nodes: &[String]) -> String {
    let named = names(nodes, NAMES_SHOWN);
    match nodes.len() {
        1 => format!("node {named} does"),
        _ => format!("nodes {named} do"),
    }
}

/// The latest events about an object; for a bound claim without those from before it was bound.
fn events(world: &World, kind: &str, object: &api::ObjectMeta, is_bound: bool) -> Vec<String> {
    let events = world.evidence.about(kind, object);
    let is_over = |reason: &str| is_bound && WAITING_EVENTS.contains(&reason);
    let mut events: Vec<_> = events.filter(|event| !is_over(&event.reason)).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.last));
    let told = events.into_iter().take(EVENTS_SHOWN).map(|event| {
        let when = event.last.map_or(String::new(), |last| {
            format!(" ({} ago)", ago(world.now.unwrap_or(last), last))
        });
        format!("{} says {}: {}{when}", event.source, event.reason, event.message)
    });
    told.collect()
}

/// Renders the report.
pub(super) fn render(report: &ObjectReport, width: usize) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", one_line(&report.object.to_string()));
    for text in report.text.iter().chain(&report.pods) {
        for (index, line) in wrapped(text, width.saturating_sub(4).max(20)).into_iter().enumerate() {
            let lead = if index == 0 { "  - " } else { "    " };
            let _ = writeln!(out, "{lead}{line}");
        }
    }
    out
}
