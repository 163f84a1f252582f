//! What each claim of a pod needs, and what is wrong with it.

use super::cause::Cause;
use super::contested::Contest;
use super::offers::offers;
use super::report::{ClaimReport, ClaimState};
use super::volumes;
use super::world::{Objects, World};
use berth_core::binder::{PodClaim, PodVolumes, VolumeBinder};
use berth_core::model::{Claim, VolumeMode};
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_core::symbols::Symbol;

/// Minimum similarity of a suggested name, from 0 to 1.
const NEAR_ENOUGH: f64 = 0.85;
/// Examines the claims of a pod, each once, and what `nodes` offer them.
pub(super) fn report(world: &World, pod: &PodVolumes, nodes: &[NodeId]) -> Vec<ClaimReport> {
    let mut seen = Vec::new();
    let mut reports = Vec::new();
    let contest = Contest::new(world, pod, nodes);
    for claim in &pod.claims {
        if !seen.contains(&&claim.name) {
            seen.push(&claim.name);
            reports.push(claim_report(world, pod, claim, nodes, &contest));
        }
    }
    reports
}

fn claim_report(
    world: &World,
    pod: &PodVolumes,
    reference: &PodClaim,
    nodes: &[NodeId],
    contest: &Contest,
) -> ClaimReport {
    let binder = world.cluster.binder();
    let Some(claim) = binder.claim_named(pod.namespace, &reference.name) else {
        return missing(world, binder.symbols().text(pod.namespace), reference);
    };
    let code = cause(world, pod, reference, claim);
    let (problem, wants) = (problem(world, claim, code), wanted(binder, claim));
    ClaimReport {
        claim: claim.name.to_string(),
        state: state(world, claim, code, nodes, contest),
        code,
        class: claim.class.map(|class| binder.symbols().text(class).to_owned()),
        request_bytes: claim.shape.request,
        summary: match problem.as_str() {
            "" => format!("wants {wants}"),
            problem if names_request(code) => format!("wants {wants}; {problem}"),
            problem => problem.to_owned(),
        },
        problem,
        wants,
    }
}

/// Whether the request of a claim matters for a cause: the claim has no volume yet.
fn names_request(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ClaimWaitsForVolume
            | Cause::ClaimNoDefaultClass
            | Cause::ClaimWithoutClass
            | Cause::ClaimClassUnknown
            | Cause::ClaimClassMissing
            | Cause::ClaimWaitsForProvisioner
            | Cause::ClaimWaitsForController
    )
}

/// The state of an existing claim for a cause. Causes of other objects do not occur.
fn state(world: &World, claim: &Claim, code: Cause, nodes: &[NodeId], contest: &Contest) -> ClaimState {
    let binder = world.cluster.binder();
    let text = |symbol: Symbol| binder.symbols().text(symbol).to_owned();
    let selected_node = Some(text(claim.selected_node)).filter(|node| !node.is_empty());
    let unfit = || {
        let object = format!("{}/{}", text(claim.namespace), claim.name);
        let object = world.objects.claims.get(&object);
        object.map_or_else(Vec::new, |object| volumes::unfit(binder, &world.objects, claim, object))
    };
    match code {
        Cause::ClaimBound
        | Cause::ClaimOutOfReach
        | Cause::ClaimVolumeMissing
        | Cause::ClaimVolumeUnknown
        | Cause::ClaimNodeMissing => {
            let volume = binder.volume_named(&claim.volume_name);
            let reaching = volume.map(|volume| binder.nodes().matching(volume.affinity).len());
            ClaimState::Bound {
                volume: claim.volume_name.to_string(),
                reaching_nodes: reaching.and_then(|count| usize::try_from(count).ok()),
                missing_node: missing_node(&world.objects, &claim.volume_name)
                    .filter(|_| code == Cause::ClaimNodeMissing),
            }
        }
        Cause::ClaimDelayed => {
            let (offers, surveyed) = offers(world, claim, nodes, contest);
            let is_short = offers.iter().any(|offer| !offer.suffices);
            ClaimState::Delayed {
                selected_node,
                offers,
                volumes: if is_short { unfit() } else { Vec::new() },
                nodes_not_asked: nodes.len() - surveyed,
            }
        }
        Cause::ClaimLost => ClaimState::Lost {
            volume: claim.volume_name.to_string(),
        },
        Cause::ClaimDeleting => ClaimState::Deleting,
        Cause::ClaimNotOwned => ClaimState::NotOwned,
        _ => ClaimState::Unbound {
            volume: Some(claim.volume_name.to_string()).filter(|name| !name.is_empty()),
            selected_node,
            volumes: match code {
                Cause::ClaimWaitsForController => unfit(),
                _ => Vec::new(),
            },
        },
    }
}

fn missing(world: &World, namespace: &str, reference: &PodClaim) -> ClaimReport {
    let gaps = &world.gaps;
    let (state, code, summary) = match gaps.why("persistentvolumeclaims") {
        Some(why) => {
            let summary = format!("is unknown: persistentvolumeclaims are not in the input ({why})");
            (ClaimState::Unknown, Cause::ClaimUnknown, summary)
        }
        None if reference.ephemeral => {
            let summary = "has not been created for the pod's ephemeral volume yet";
            (ClaimState::Missing, Cause::ClaimEphemeralMissing, summary.to_owned())
        }
        None => (
            ClaimState::Missing,
            Cause::ClaimMissing,
            format!("does not exist{}", like_claim(world, namespace, &reference.name)),
        ),
    };
    ClaimReport {
        claim: reference.name.to_string(),
        state,
        code,
        class: None,
        request_bytes: 0,
        problem: summary.clone(),
        summary,
        wants: String::new(),
    }
}

/// Why an existing claim has no volume, or that it has one.
pub(super) fn cause(world: &World, pod: &PodVolumes, reference: &PodClaim, claim: &Claim) -> Cause {
    let (binder, gaps) = (world.cluster.binder(), &world.gaps);
    if claim.lost {
        return Cause::ClaimLost;
    }
    if claim.deleting {
        return Cause::ClaimDeleting;
    }
    if reference.ephemeral && !claim.is_made_for(pod) {
        return Cause::ClaimNotOwned;
    }
    if claim.is_bound() {
        return match binder.volume_named(&claim.volume_name) {
            Some(volume) if binder.nodes().matching(volume.affinity).is_empty() => {
                match missing_node(&world.objects, &claim.volume_name) {
                    Some(_) => Cause::ClaimNodeMissing,
                    None => Cause::ClaimOutOfReach,
                }
            }
            Some(_) => Cause::ClaimBound,
            None if gaps.why("persistentvolumes").is_some() => Cause::ClaimVolumeUnknown,
            None => Cause::ClaimVolumeMissing,
        };
    }
    let class = claim.class.filter(|class| !class.is_empty());
    let class = class.map(|class| binder.class(class));
    match class {
        Some(Some(class)) if binder.delays(class) && claim.volume_name.is_empty() => Cause::ClaimDelayed,
        _ if !claim.volume_name.is_empty() => Cause::ClaimWaitsForVolume,
        None if claim.class.is_none() && !world.objects.has_default_class() && gaps.why("storageclasses").is_none() => {
            Cause::ClaimNoDefaultClass
        }
        None => Cause::ClaimWithoutClass,
        Some(None) if gaps.why("storageclasses").is_some() => Cause::ClaimClassUnknown,
        Some(None) => Cause::ClaimClassMissing,
        Some(Some(class)) if class.provisions => Cause::ClaimWaitsForProvisioner,
        Some(Some(_)) => Cause::ClaimWaitsForController,
    }
}

/// The state of a claim, or what is wrong with it, as text that follows "claim NAME"; empty if it only needs a volume.
fn problem(world: &World, claim: &Claim, cause: Cause) -> String {
    let (binder, gaps) = (world.cluster.binder(), &world.gaps);
    let volume = &claim.volume_name;
    let not_read = |plural: &str| gaps.why(plural).unwrap_or_default().to_owned();
    match cause {
        Cause::ClaimLost => format!("has lost its volume {volume}").trim_end().to_owned(),
        Cause::ClaimDeleting => "is being deleted".to_owned(),
        Cause::ClaimNotOwned => {
            "belongs to something else, though the pod's ephemeral volume needs that name".to_owned()
        }
        Cause::ClaimVolumeUnknown => {
            let why = not_read("persistentvolumes");
            format!("is bound to volume {volume}; persistentvolumes are not in the input ({why})")
        }
        Cause::ClaimVolumeMissing => format!("is bound to volume {volume}, which does not exist"),
        Cause::ClaimNodeMissing => {
            let node = missing_node(&world.objects, volume).unwrap_or_default();
            format!("is bound to volume {volume} on node {node}, which does not exist")
        }
        Cause::ClaimBound | Cause::ClaimOutOfReach => bound_summary(binder, claim),
        Cause::ClaimWaitsForVolume => format!("waits to be bound to volume {volume}"),
        Cause::ClaimNoDefaultClass => "sets no class, and there is no default StorageClass".to_owned(),
        Cause::ClaimWithoutClass => "sets no class, and waits for the volume controller to find it a volume".to_owned(),
        Cause::ClaimClassUnknown => {
            let why = not_read("storageclasses");
            format!("storageclasses are not in the input ({why}), so its class is not known")
        }
        Cause::ClaimClassMissing => {
            let class = claim.class.map_or("", |class| binder.symbols().text(class));
            let near = nearest(class, world.objects.classes.keys());
            let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
            format!("its class does not exist{near}")
        }
        Cause::ClaimWaitsForProvisioner => {
            let class = claim.class.and_then(|class| binder.class(class));
            let provisioner = class.map_or("", |class| binder.symbols().text(class.provisioner));
            format!(
                "waits for {provisioner} to provision it: its class binds immediately, not when the pod is scheduled"
            )
        }
        Cause::ClaimWaitsForController => "waits for the volume controller to find it a volume".to_owned(),
        _ => String::new(),
    }
}

/// The nodes in a volume's affinity, if none of them exists.
fn missing_node(objects: &Objects, volume: &str) -> Option<String> {
    let hosts = volumes::hosts(objects.volumes.get(volume)?);
    let gone = !hosts.is_empty() && !hosts.iter().any(|host| objects.nodes.contains_key(host));
    gone.then(|| hosts.join(", "))
}

fn bound_summary(binder: &VolumeBinder, claim: &Claim) -> String {
    let Some(volume) = binder.volume_named(&claim.volume_name) else {
        return format!("is bound to volume {}", claim.volume_name);
    };
    let all = binder.nodes().ids().count();
    let reached_from = match binder.nodes().matching(volume.affinity).len() {
        0 => "which no node can reach".to_owned(),
        reaching if reaching == all as u64 => "which every node can reach".to_owned(),
        1 => {
            let node = binder.nodes().matching(volume.affinity).min().map(NodeId);
            let name = node.map_or(Symbol::EMPTY, |node| binder.nodes().name(node));
            format!("which only {} can reach", binder.symbols().text(name))
        }
        reaching => format!("which {reaching} of {all} nodes can reach"),
    };
    let size = Bytes(volume.capacity);
    format!("is bound to volume {} ({size}), {reached_from}", claim.volume_name)
}

/// `100Gi of class local (RWO)`.
fn wanted(binder: &VolumeBinder, claim: &Claim) -> String {
    let shape = &claim.shape;
    let class = match claim.class.map(|class| binder.symbols().text(class)) {
        None | Some("") => "without a class".to_owned(),
        Some(class) => format!("of class {class}"),
    };
    let mut demands = Vec::new();
    let modes = shape.access_modes.abbreviated();
    if !modes.is_empty() {
        demands.push(modes);
    }
    if shape.volume_mode == VolumeMode::Block {
        demands.push("Block".to_owned());
    }
    if shape.selector.is_some() {
        demands.push("selected by labels".to_owned());
    }
    if !shape.attributes_class.is_empty() {
        let attributes = binder.symbols().text(shape.attributes_class);
        demands.push(format!("attributes class {attributes}"));
    }
    let demands = if demands.is_empty() {
        String::new()
    } else {
        format!(" ({})", demands.join(", "))
    };
    format!("{} {class}{demands}", Bytes(shape.request))
}

/// The location of a claim that the pod may mean.
fn like_claim(world: &World, namespace: &str, name: &str) -> String {
    let claims = world.objects.claims.values().map(|claim| &claim.metadata);
    let mut elsewhere = claims.filter(|claim| claim.name == name);
    if let Some(claim) = elsewhere.next() {
        return format!("; there is one of that name in namespace {}", claim.namespace);
    }
    let near = near_claim(world, namespace, name);
    near.map_or(String::new(), |near| format!("; did you mean {near}?"))
}

/// The claim of a namespace with the most similar name.
pub(super) fn near_claim<'w>(world: &'w World, namespace: &str, name: &str) -> Option<&'w str> {
    let claims = world.objects.claims.values().map(|claim| &claim.metadata);
    let here = claims.filter(|claim| claim.namespace == namespace);
    nearest(name, here.map(|claim| &claim.name))
}

/// The most similar name, if there is one.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n String>) -> Option<&'n str> {
    let alike = names.map(|other| (strsim::jaro_winkler(name, other), other.as_str()));
    let near = alike.filter(|(alike, _)| *alike >= NEAR_ENOUGH);
    near.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, name)| name)
}
