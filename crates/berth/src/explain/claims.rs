//! What each claim of a pod needs, and what the nodes have to offer to it.

use super::report::{ClaimReport, ClaimState, Offer};
use berth_core::binder::{ClaimSurvey, PodClaim, PodVolumes, VolumeBinder};
use berth_core::model::{Claim, VolumeMode};
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_core::symbols::Symbol;

/// How many volumes may be walked over in all surveys of one claim. A survey walks over the free volumes of
/// the class, so that in a cluster of a million volumes few nodes are surveyed, and in a small one all.
const SURVEYED_VOLUMES_MAX: usize = 20_000_000;
/// As many nodes are surveyed in any case.
const SURVEYED_NODES_MIN: usize = 10;

/// Looks at the claims of a pod, once each, and at what `nodes` have to offer to them.
pub(super) fn report(binder: &VolumeBinder, pod: &PodVolumes, nodes: &[NodeId]) -> Vec<ClaimReport> {
    let mut seen = Vec::new();
    let mut reports = Vec::new();
    for claim in &pod.claims {
        if !seen.contains(&&claim.name) {
            seen.push(&claim.name);
            reports.push(claim_report(binder, pod, claim, nodes));
        }
    }
    reports
}

fn claim_report(binder: &VolumeBinder, pod: &PodVolumes, reference: &PodClaim, nodes: &[NodeId]) -> ClaimReport {
    let Some(claim) = binder.claim_named(pod.namespace, &reference.name) else {
        return missing(reference);
    };
    let (state, summary) = state_of(binder, pod, reference, claim);
    let asked = match state {
        ClaimState::Delayed => &nodes[..nodes.len().min(affordable(binder))],
        _ => &[],
    };
    ClaimReport {
        claim: claim.name.to_string(),
        state,
        class: claim.class.map(|class| binder.symbols().text(class).to_owned()),
        request_bytes: claim.shape.request,
        summary,
        offers: offers(binder, claim, asked),
        nodes_not_asked: match state {
            ClaimState::Delayed => nodes.len() - asked.len(),
            _ => 0,
        },
    }
}

/// How many nodes can be surveyed for a claim in good time.
fn affordable(binder: &VolumeBinder) -> usize {
    (SURVEYED_VOLUMES_MAX / (binder.volume_count() + 1)).max(SURVEYED_NODES_MIN)
}

fn missing(reference: &PodClaim) -> ClaimReport {
    let summary = if reference.ephemeral {
        "has not yet been made for the pod's ephemeral volume"
    } else {
        "does not exist"
    };
    ClaimReport {
        claim: reference.name.to_string(),
        state: ClaimState::Missing,
        class: None,
        request_bytes: 0,
        summary: summary.to_owned(),
        offers: Vec::new(),
        nodes_not_asked: 0,
    }
}

fn state_of(binder: &VolumeBinder, pod: &PodVolumes, reference: &PodClaim, claim: &Claim) -> (ClaimState, String) {
    if claim.lost {
        let summary = format!("has lost its volume {}", claim.volume_name);
        return (ClaimState::Lost, summary);
    }
    if claim.deleting {
        return (ClaimState::Deleting, "is being deleted".to_owned());
    }
    if reference.ephemeral && !claim.is_made_for(pod) {
        let summary = "belongs to something else, though the pod's ephemeral volume needs that name".to_owned();
        return (ClaimState::NotOwned, summary);
    }
    if claim.is_bound() {
        return (ClaimState::Bound, bound_summary(binder, claim));
    }
    let wanted = wanted(binder, claim);
    let class = claim.class.filter(|class| !class.is_empty());
    let delayed = class
        .and_then(|class| binder.class(class))
        .is_some_and(|class| class.delayed);
    if delayed && claim.volume_name.is_empty() {
        return (ClaimState::Delayed, wanted);
    }
    let why = if !claim.volume_name.is_empty() {
        format!("waits to be bound to volume {}", claim.volume_name)
    } else {
        match class.map(|class| binder.class(class)) {
            None => "names no class, and waits for the volume controller to find it a volume".to_owned(),
            Some(None) => "waits for its class, which does not exist".to_owned(),
            Some(Some(class)) if class.provisions => {
                let provisioner = binder.symbols().text(class.provisioner);
                format!("waits for {provisioner} to make it a volume at once, not when the pod is placed")
            }
            Some(Some(_)) => "waits for the volume controller to find it a volume".to_owned(),
        }
    };
    (ClaimState::Unbound, format!("{wanted}; {why}"))
}

fn bound_summary(binder: &VolumeBinder, claim: &Claim) -> String {
    let Some(volume) = binder.volume_named(&claim.volume_name) else {
        return format!("is bound to volume {}, which does not exist", claim.volume_name);
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

/// `wants 100Gi of class local (RWO)`.
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
        demands.push("chosen by labels".to_owned());
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
    format!("wants {} {class}{demands}", Bytes(shape.request))
}

/// What the nodes have to offer, nodes with the same offer together. The closest to what is wanted come first, but those
/// that suffice, which stand against nothing, last.
fn offers(binder: &VolumeBinder, claim: &Claim, nodes: &[NodeId]) -> Vec<Offer> {
    let mut offers: Vec<Offer> = Vec::new();
    for node in nodes.iter().copied() {
        let name = binder.nodes().name(node);
        let (suffices, text, largest_bytes) = offer(binder, claim, node, name);
        let name = binder.symbols().text(name).to_owned();
        match offers.iter_mut().find(|offer| offer.text == text) {
            Some(offer) => offer.nodes.push(name),
            None => offers.push(Offer {
                suffices,
                text,
                nodes: vec![name],
                largest_bytes,
            }),
        }
    }
    offers.sort_by_key(|offer| (offer.suffices, std::cmp::Reverse(offer.largest_bytes)));
    offers
}

fn offer(binder: &VolumeBinder, claim: &Claim, node: NodeId, name: Symbol) -> (bool, String, Option<i64>) {
    let selected = claim.selected_node;
    if !selected.is_empty() && selected != name {
        let selected = binder.symbols().text(selected);
        let text = format!("its volume is already being made for node {selected}");
        return (false, text, None);
    }
    let survey = binder.survey(claim, node);
    let pools = survey.pools.iter().flatten().filter_map(|pool| pool.largest);
    let largest = pools.chain(survey.largest_suitable).max();
    let (found, existing) = existing_volumes(&survey, claim.shape.request);
    if found {
        return (true, existing, largest);
    }
    let provisioner = claim
        .class
        .and_then(|class| binder.class(class))
        .map_or("", |class| binder.symbols().text(class.provisioner));
    let (suffices, text) = match new_volume(&survey, claim.shape.request, provisioner) {
        Some((true, new)) => (true, new),
        // Where volumes are made on demand, that there is no free one is the rule and not worth a word.
        Some((false, new)) if survey.reachable == 0 => (false, new),
        Some((false, new)) => (false, format!("{existing}; {new}")),
        None => (false, existing),
    };
    (suffices, text, largest)
}

fn existing_volumes(survey: &ClaimSurvey, request: i64) -> (bool, String) {
    let volumes = |count: usize| {
        if count == 1 {
            "1 free volume".to_owned()
        } else {
            format!("{count} free volumes")
        }
    };
    let size = |bytes: Option<i64>| Bytes(bytes.unwrap_or(0));
    if survey.reachable == 0 {
        return (false, "no free volume".to_owned());
    }
    if survey.fitting > 0 {
        let all = volumes(survey.reachable);
        let fitting = match (survey.reachable, survey.fitting) {
            (1, _) => "which would do".to_owned(),
            (_, fitting) => format!("of which {fitting} would do"),
        };
        return (true, format!("{all}, {fitting}"));
    }
    let largest = size(survey.largest_reachable);
    let reachable = match survey.reachable {
        1 => format!("1 free volume of {largest}"),
        _ => format!("{}, the largest {largest}", volumes(survey.reachable)),
    };
    let text = match survey.suitable {
        0 if survey.largest_reachable >= Some(request) => {
            let without = if survey.reachable == 1 { "without" } else { "none with" };
            format!("{reachable}, {without} the access modes, volume mode or labels that the claim asks for")
        }
        suitable if suitable == survey.reachable || suitable == 0 => reachable,
        _ => {
            let suitable = size(survey.largest_suitable);
            format!("{reachable}; the largest with the right access modes, volume mode and labels has {suitable}")
        }
    };
    (false, text)
}

fn new_volume(survey: &ClaimSurvey, request: i64, provisioner: &str) -> Option<(bool, String)> {
    if !survey.provisionable {
        return None;
    }
    if !survey.topology_allowed {
        return Some((false, "the class allows no volume to be made there".to_owned()));
    }
    let Some(pools) = &survey.pools else {
        return Some((true, format!("{provisioner} can make a volume")));
    };
    let largest = pools.iter().max_by_key(|pool| pool.largest);
    Some(match largest.and_then(|pool| Some((pool, pool.largest?))) {
        None => (false, format!("{provisioner} has published no free space there")),
        Some((pool, size)) => {
            let size_text = Bytes(size);
            let text = format!("{provisioner} has at most {size_text} free there (pool {})", pool.name);
            (size >= request, text)
        }
    })
}
