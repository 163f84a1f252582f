//! What the nodes offer to a claim or a sized inline volume of a pod.

use super::cause::Cause;
use super::contested::Contest;
use super::report::{InlineReport, Offer};
use super::world::World;
use berth_core::api::StorageClass;
use berth_core::binder::{ClaimSurvey, PodVolumes, PoolSurvey, VolumeBinder};
use berth_core::migration;
use berth_core::model::{Claim, Volume};
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_core::symbols::Symbol;
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of volumes walked in all surveys of one claim. A survey walks the free volumes that a node can reach:
/// few if they are local, so that all nodes are surveyed, and many if a zone shares them.
const SURVEYED_VOLUMES_MAX: usize = 20_000_000;
/// Minimum number of nodes to survey.
const SURVEYED_NODES_MIN: usize = 10;

/// Examines what `nodes` offer to the inline volumes that specify a size.
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
        let (code, text, largest_bytes) = match pools.as_deref().map(largest_pool) {
            None => (
                Cause::OfferSuffices,
                "the driver publishes no free space".to_owned(),
                None,
            ),
            Some(None) => (Cause::OfferNoCapacity, "no pool for inline volumes".to_owned(), None),
            Some(Some((pool, largest))) => {
                let text = format!("at most {} free (pool {pool})", Bytes(largest));
                (space(largest >= size), text, Some(largest))
            }
        };
        let found = Offered {
            code,
            text,
            largest_bytes,
            rivals: Vec::new(),
        };
        (name, found)
    }))
}

/// Whether a pool has enough space.
fn space(enough: bool) -> Cause {
    match enough {
        true => Cause::OfferSuffices,
        false => Cause::OfferNoCapacity,
    }
}

/// The pool with the largest possible volume, and its size.
fn largest_pool(pools: &[PoolSurvey]) -> Option<(&str, i64)> {
    let largest = pools.iter().max_by_key(|pool| pool.largest)?;
    Some((&largest.name, largest.largest?))
}

/// What the nodes offer, grouped by offer, and how many nodes were surveyed. The closest to the request come first;
/// sufficient ones, which are not an obstacle, last.
pub(super) fn offers(world: &World, claim: &Claim, nodes: &[NodeId], contest: &Contest) -> (Vec<Offer>, usize) {
    let binder = world.cluster.binder();
    let (mut surveyed, mut walked) = (0, 0);
    let reserved = (!nodes.is_empty()).then(|| reserved_for(world, claim)).flatten();
    let in_time = nodes.iter().map_while(|node| {
        if surveyed >= SURVEYED_NODES_MIN && walked >= SURVEYED_VOLUMES_MAX {
            return None;
        }
        surveyed += 1;
        let name = binder.nodes().name(*node);
        let mut found = offer(world, claim, *node, name, &mut walked);
        // A claim gets the volume that is reserved for it, and no other one.
        if let Some((reserved, volume)) = reserved.filter(|_| found.code == Cause::OfferSuffices)
            && !binder.nodes().matching(volume.affinity).contains(node.0)
        {
            found.text = format!(
                "{}, but volume {reserved} is reserved for the claim, and the node cannot reach that",
                found.text
            );
        }
        if let Some(rivalry) = contest
            .of(*node, &claim.name)
            .filter(|_| found.code == Cause::OfferSuffices)
        {
            found.text = format!("{}, {}", found.text, rivalry.words());
            found.rivals.clone_from(&rivalry.claims);
        }
        Some((binder.symbols().text(name).to_owned(), found))
    });
    let offers = gathered(in_time);
    (offers, surveyed)
}

/// The volume that a user has reserved for an unbound claim.
fn reserved_for<'w>(world: &'w World, claim: &Claim) -> Option<(&'w str, &'w Volume)> {
    let reserved = world.cluster.binder().volumes_reserved_for(claim);
    let first = reserved.min_by_key(|volume| &volume.name)?;
    Some((&first.name, first))
}

/// What a node offers.
struct Offered {
    code: Cause,
    text: String,
    largest_bytes: Option<i64>,
    rivals: Vec<String>,
}

fn gathered(found: impl Iterator<Item = (String, Offered)>) -> Vec<Offer> {
    let mut offers: Vec<Offer> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (name, found) in found {
        let place = *places.entry(found.text.clone()).or_insert(offers.len());
        match offers.get_mut(place) {
            Some(offer) => offer.nodes.push(name),
            None => offers.push(Offer {
                suffices: found.code == Cause::OfferSuffices,
                code: found.code,
                text: found.text,
                nodes: vec![name],
                largest_bytes: found.largest_bytes,
                rivals: found.rivals,
            }),
        }
    }
    offers.sort_by_key(|offer| (offer.suffices, std::cmp::Reverse(offer.largest_bytes)));
    offers
}

fn offer(world: &World, claim: &Claim, node: NodeId, name: Symbol, walked: &mut usize) -> Offered {
    let binder = world.cluster.binder();
    let selected = claim.selected_node;
    if !selected.is_empty() && selected != name {
        return Offered {
            code: Cause::OfferSelectedElsewhere,
            text: match binder.symbols().text(selected) {
                node if world.objects.nodes.contains_key(node) => format!("node {node} is selected for its volume"),
                node => format!("node {node} is selected for its volume, and does not exist"),
            },
            largest_bytes: None,
            rivals: Vec::new(),
        };
    }
    let survey = binder.survey(claim, node);
    *walked += survey.reachable;
    let pools = survey.pools.iter().flatten().filter_map(|pool| pool.largest);
    let largest_bytes = pools.chain(survey.largest_suitable).max();
    let (code, existing) = existing_volumes(&survey, claim.shape.request);
    let class = claim.class.map_or("", |class| binder.symbols().text(class));
    let class = world.objects.classes.get(class);
    let (code, text) = match new_volume(&survey, claim.shape.request, class) {
        _ if code == Cause::OfferSuffices => (code, existing),
        Some((Cause::OfferSuffices, new)) => (Cause::OfferSuffices, new),
        // If volumes are provisioned on demand, the lack of a free one is normal and not worth mentioning.
        Some((code, new)) if survey.reachable == 0 => (code, new),
        Some((code, new)) => (code, format!("{existing}; {new}")),
        None => (code, existing),
    };
    Offered {
        code,
        text,
        largest_bytes,
        rivals: Vec::new(),
    }
}

fn existing_volumes(survey: &ClaimSurvey, request: i64) -> (Cause, String) {
    let volumes = |count: usize| {
        if count == 1 {
            "1 free volume".to_owned()
        } else {
            format!("{count} free volumes")
        }
    };
    let size = |bytes: Option<i64>| Bytes(bytes.unwrap_or(0));
    if survey.reachable == 0 {
        let text = match (survey.full, survey.elsewhere) {
            (0, 0) => "no free volume".to_owned(),
            (0, elsewhere) => format!("{}, but labelled for other zones", volumes(elsewhere)),
            (full, _) => format!("{}, but the node has reached the driver's attach limit", volumes(full)),
        };
        return (Cause::OfferNoVolume, text);
    }
    if survey.fitting > 0 {
        let all = volumes(survey.reachable);
        let fitting = match (survey.reachable, survey.fitting) {
            (1, _) => "which fits".to_owned(),
            (_, fitting) => format!("of which {fitting} fit"),
        };
        return (Cause::OfferSuffices, format!("{all}, {fitting}"));
    }
    let largest = size(survey.largest_reachable);
    let reachable = match survey.reachable {
        1 => format!("1 free volume of {largest}"),
        _ => format!("{}, the largest {largest}", volumes(survey.reachable)),
    };
    match survey.suitable {
        0 if survey.largest_reachable >= Some(request) => {
            let which = if survey.reachable == 1 {
                "which does"
            } else {
                "which do"
            };
            let text = format!("{reachable}, {which} not suit the claim");
            (Cause::OfferUnsuitable, text)
        }
        suitable if suitable == survey.reachable || suitable == 0 => (Cause::OfferTooSmall, reachable),
        _ => {
            let suitable = size(survey.largest_suitable);
            let text =
                format!("{reachable}; the largest with the right access modes, volume mode and labels has {suitable}");
            (Cause::OfferTooSmall, text)
        }
    }
}

fn new_volume(survey: &ClaimSurvey, request: i64, class: Option<&StorageClass>) -> Option<(Cause, String)> {
    if !survey.provisionable {
        return None;
    }
    let provisioner = class.map_or("", |class| class.provisioner.as_str());
    if !survey.topology_allowed {
        let text = class.map_or_else(|| "the class allows no volumes there".to_owned(), allowed_topologies);
        return Some((Cause::OfferTopology, text));
    }
    let Some(pools) = &survey.pools else {
        return Some((Cause::OfferSuffices, format!("{provisioner} can provision a volume")));
    };
    Some(match largest_pool(pools) {
        None => {
            let text = format!("{provisioner} has published no capacity there");
            (Cause::OfferNoCapacity, text)
        }
        Some((pool, size)) => {
            let size_text = Bytes(size);
            let text = format!("{provisioner} has at most {size_text} free there (pool {pool})");
            (space(size >= request), text)
        }
    })
}

/// Where a class allows volumes: `the class allows volumes only where topology.kubernetes.io/zone is a or b`.
fn allowed_topologies(class: &StorageClass) -> String {
    let terms = match migration::allowed_topologies(class) {
        // The zones of the class's parameters, once for each label that nodes use for zones.
        Ok(Cow::Owned(terms)) => {
            let zones = terms.first().and_then(|term| term.match_label_expressions.first());
            let zones = zones.map_or_else(String::new, |one| one.values.join(" or "));
            return format!("the class's parameters allow volumes only in zone {zones}");
        }
        Ok(Cow::Borrowed(terms)) => terms,
        Err(error) => return format!("the class allows volumes nowhere: {error}"),
    };
    // An empty term allows nothing.
    let terms = terms.iter().filter(|term| !term.match_label_expressions.is_empty());
    let terms = terms.map(|term| {
        let labels = term.match_label_expressions.iter();
        let labels: Vec<String> = labels
            .map(|one| format!("{} is {}", one.key, one.values.join(" or ")))
            .collect();
        labels.join(" and ")
    });
    match terms.collect::<Vec<_>>().as_slice() {
        [] => "the class allows volumes nowhere: all terms of its allowedTopologies are empty".to_owned(),
        terms => format!("the class allows volumes only where {}", terms.join(", or ")),
    }
}
