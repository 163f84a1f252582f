//! What each claim and each sized inline volume of a pod needs, and what the nodes have to offer to it.

use super::report::{ClaimReport, ClaimState, InlineReport, Offer};
use crate::input::Gaps;
use berth_core::binder::{ClaimSurvey, PodClaim, PodVolumes, PoolSurvey, VolumeBinder};
use berth_core::model::{Claim, VolumeMode};
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_core::symbols::Symbol;
use std::collections::HashMap;

/// How many volumes may be walked over in all surveys of one claim. A survey walks over the free volumes of
/// the class, so that in a cluster of a million volumes few nodes are surveyed, and in a small one all.
const SURVEYED_VOLUMES_MAX: usize = 20_000_000;
/// As many nodes are surveyed in any case.
const SURVEYED_NODES_MIN: usize = 10;

/// How an offer begins where a node was chosen for the claim before.
pub(super) const MADE_ELSEWHERE: &str = "its volume is already being made for node ";

/// Looks at the claims of a pod, once each, and at what `nodes` have to offer to them.
pub(super) fn report(binder: &VolumeBinder, pod: &PodVolumes, nodes: &[NodeId], gaps: &Gaps) -> Vec<ClaimReport> {
    let mut seen = Vec::new();
    let mut reports = Vec::new();
    for claim in &pod.claims {
        if !seen.contains(&&claim.name) {
            seen.push(&claim.name);
            reports.push(claim_report(binder, pod, claim, nodes, gaps));
        }
    }
    reports
}

/// Looks at what `nodes` have to offer to the inline volumes that say how large they are.
pub(super) fn inline_report(binder: &VolumeBinder, pod: &PodVolumes, nodes: &[NodeId]) -> Vec<InlineReport> {
    let inline = pod.inline.iter();
    inline
        .map(|(driver, size)| InlineReport {
            driver: binder.symbols().text(*driver).to_owned(),
            request_bytes: *size,
            offers: inline_offers(binder, *driver, *size, nodes),
        })
        .collect()
}

fn inline_offers(binder: &VolumeBinder, driver: Symbol, size: i64, nodes: &[NodeId]) -> Vec<Offer> {
    gathered(nodes.iter().map(|node| {
        let name = binder.symbols().text(binder.nodes().name(*node)).to_owned();
        let pools = binder.survey_inline(driver, size, *node);
        let (suffices, text, largest) = match pools.as_deref().map(largest_pool) {
            None => (true, "the driver publishes no free space".to_owned(), None),
            Some(None) => (false, "no pool for such volumes".to_owned(), None),
            Some(Some((pool, largest))) => {
                let text = format!("at most {} free (pool {pool})", Bytes(largest));
                (largest >= size, text, Some(largest))
            }
        };
        (name, suffices, text, largest)
    }))
}

/// The pool that can hold the largest volume, and how large that is.
fn largest_pool(pools: &[PoolSurvey]) -> Option<(&str, i64)> {
    let largest = pools.iter().max_by_key(|pool| pool.largest)?;
    Some((&largest.name, largest.largest?))
}

fn claim_report(
    binder: &VolumeBinder,
    pod: &PodVolumes,
    reference: &PodClaim,
    nodes: &[NodeId],
    gaps: &Gaps,
) -> ClaimReport {
    let Some(claim) = binder.claim_named(pod.namespace, &reference.name) else {
        return missing(reference, gaps);
    };
    let (state, summary) = state_of(binder, pod, reference, claim, gaps);
    let class = claim.class.filter(|class| !class.is_empty());
    let asked = match state {
        ClaimState::Delayed => &nodes[..nodes.len().min(affordable(binder))],
        _ => &[],
    };
    ClaimReport {
        claim: claim.name.to_string(),
        state,
        class: claim.class.map(|class| binder.symbols().text(class).to_owned()),
        class_missing: gaps.why("storageclasses").is_none() && class.is_some_and(|class| binder.class(class).is_none()),
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

fn missing(reference: &PodClaim, gaps: &Gaps) -> ClaimReport {
    let (state, summary) = match gaps.why("persistentvolumeclaims") {
        Some(why) => {
            let summary = format!("cannot be told about: persistentvolumeclaims are not in the input ({why})");
            (ClaimState::Unknown, summary)
        }
        None if reference.ephemeral => {
            let summary = "has not yet been made for the pod's ephemeral volume";
            (ClaimState::Missing, summary.to_owned())
        }
        None => (ClaimState::Missing, "does not exist".to_owned()),
    };
    ClaimReport {
        claim: reference.name.to_string(),
        state,
        class: None,
        class_missing: false,
        request_bytes: 0,
        summary,
        offers: Vec::new(),
        nodes_not_asked: 0,
    }
}

fn state_of(
    binder: &VolumeBinder,
    pod: &PodVolumes,
    reference: &PodClaim,
    claim: &Claim,
    gaps: &Gaps,
) -> (ClaimState, String) {
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
        return (ClaimState::Bound, bound_summary(binder, claim, gaps));
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
            Some(None) => match gaps.why("storageclasses") {
                Some(why) => format!("storageclasses are not in the input ({why}), so its class is not known"),
                None => "waits for its class, which does not exist".to_owned(),
            },
            Some(Some(class)) if class.provisions => {
                let provisioner = binder.symbols().text(class.provisioner);
                format!("waits for {provisioner} to make it a volume at once, not when the pod is placed")
            }
            Some(Some(_)) => "waits for the volume controller to find it a volume".to_owned(),
        }
    };
    (ClaimState::Unbound, format!("{wanted}; {why}"))
}

fn bound_summary(binder: &VolumeBinder, claim: &Claim, gaps: &Gaps) -> String {
    let Some(volume) = binder.volume_named(&claim.volume_name) else {
        let name = &claim.volume_name;
        return match gaps.why("persistentvolumes") {
            Some(why) => format!("is bound to volume {name}; persistentvolumes are not in the input ({why})"),
            None => format!("is bound to volume {name}, which does not exist"),
        };
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
    gathered(nodes.iter().map(|node| {
        let name = binder.nodes().name(*node);
        let (suffices, text, largest) = offer(binder, claim, *node, name);
        (binder.symbols().text(name).to_owned(), suffices, text, largest)
    }))
}

fn gathered(found: impl Iterator<Item = (String, bool, String, Option<i64>)>) -> Vec<Offer> {
    let mut offers: Vec<Offer> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (name, suffices, text, largest_bytes) in found {
        let place = *places.entry(text.clone()).or_insert(offers.len());
        match offers.get_mut(place) {
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
        let text = format!("{MADE_ELSEWHERE}{selected}");
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
    Some(match largest_pool(pools) {
        None => (false, format!("{provisioner} has published no free space there")),
        Some((pool, size)) => {
            let size_text = Bytes(size);
            let text = format!("{provisioner} has at most {size_text} free there (pool {pool})");
            (size >= request, text)
        }
    })
}
