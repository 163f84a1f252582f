//! What each claim and each sized inline volume of a pod needs, and what the nodes offer.

use super::cause::Cause;
use super::report::{ClaimReport, ClaimState, InlineReport, Offer};
use super::volumes;
use super::world::{Objects, World};
use berth_core::api::StorageClass;
use berth_core::binder::{ClaimSurvey, PodClaim, PodVolumes, PoolSurvey, VolumeBinder};
use berth_core::migration;
use berth_core::model::{Claim, Volume, VolumeMode};
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_core::symbols::Symbol;
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of volumes walked in all surveys of one claim. A survey walks the free volumes that a node can reach:
/// few if they are local, so that all nodes are surveyed, and many if a zone shares them.
const SURVEYED_VOLUMES_MAX: usize = 20_000_000;
/// Minimum similarity of a suggested name, from 0 to 1.
const NEAR_ENOUGH: f64 = 0.85;
/// Minimum number of nodes to survey.
const SURVEYED_NODES_MIN: usize = 10;

/// Examines the claims of a pod, each once, and what `nodes` offer them.
pub(super) fn report(world: &World, pod: &PodVolumes, nodes: &[NodeId]) -> Vec<ClaimReport> {
    let mut seen = Vec::new();
    let mut reports = Vec::new();
    for claim in &pod.claims {
        if !seen.contains(&&claim.name) {
            seen.push(&claim.name);
            reports.push(claim_report(world, pod, claim, nodes));
        }
    }
    reports
}

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

fn claim_report(world: &World, pod: &PodVolumes, reference: &PodClaim, nodes: &[NodeId]) -> ClaimReport {
    let binder = world.cluster.binder();
    let Some(claim) = binder.claim_named(pod.namespace, &reference.name) else {
        return missing(world, binder.symbols().text(pod.namespace), reference);
    };
    let code = cause(world, pod, reference, claim);
    ClaimReport {
        claim: claim.name.to_string(),
        state: state(world, claim, code, nodes),
        code,
        class: claim.class.map(|class| binder.symbols().text(class).to_owned()),
        request_bytes: claim.shape.request,
        summary: summary(world, claim, code),
        wants: wanted(binder, claim),
    }
}

/// The state of an existing claim for a cause. Causes of other objects do not occur.
fn state(world: &World, claim: &Claim, code: Cause, nodes: &[NodeId]) -> ClaimState {
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
            let (offers, surveyed) = offers(world, claim, nodes);
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
        summary,
        wants: String::new(),
    }
}

/// Why an existing claim has no volume, or that it has one.
fn cause(world: &World, pod: &PodVolumes, reference: &PodClaim, claim: &Claim) -> Cause {
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

/// What a claim needs, or what is wrong with it, as text that follows "claim NAME".
fn summary(world: &World, claim: &Claim, cause: Cause) -> String {
    let (binder, gaps) = (world.cluster.binder(), &world.gaps);
    let volume = &claim.volume_name;
    let not_read = |plural: &str| gaps.why(plural).unwrap_or_default().to_owned();
    let why = match cause {
        Cause::ClaimLost => return format!("has lost its volume {volume}").trim_end().to_owned(),
        Cause::ClaimDeleting => return "is being deleted".to_owned(),
        Cause::ClaimNotOwned => {
            return "belongs to something else, though the pod's ephemeral volume needs that name".to_owned();
        }
        Cause::ClaimVolumeUnknown => {
            let why = not_read("persistentvolumes");
            return format!("is bound to volume {volume}; persistentvolumes are not in the input ({why})");
        }
        Cause::ClaimVolumeMissing => return format!("is bound to volume {volume}, which does not exist"),
        Cause::ClaimNodeMissing => {
            let node = missing_node(&world.objects, volume).unwrap_or_default();
            return format!("is bound to volume {volume} on node {node}, which does not exist");
        }
        Cause::ClaimBound | Cause::ClaimOutOfReach => return bound_summary(binder, claim),
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
        _ => return format!("wants {}", wanted(binder, claim)),
    };
    format!("wants {}; {why}", wanted(binder, claim))
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

/// What the nodes offer, grouped by offer, and how many nodes were surveyed. The closest to the request come first;
/// sufficient ones, which are not an obstacle, last.
fn offers(world: &World, claim: &Claim, nodes: &[NodeId]) -> (Vec<Offer>, usize) {
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
        Some((binder.symbols().text(name).to_owned(), found))
    });
    let offers = gathered(in_time);
    (offers, surveyed)
}

/// The volume that a user has reserved for an unbound claim.
fn reserved_for<'w>(world: &'w World, claim: &Claim) -> Option<(&'w str, &'w Volume)> {
    let binder = world.cluster.binder();
    let mut names = world.objects.volumes.keys();
    names.find_map(|name| {
        let volume = binder.volume_named(name).filter(|volume| volume.is_for(claim))?;
        Some((name.as_str(), volume))
    })
}

/// What a node offers.
struct Offered {
    code: Cause,
    text: String,
    largest_bytes: Option<i64>,
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
            let without = if survey.reachable == 1 { "without" } else { "none with" };
            let text =
                format!("{reachable}, {without} the access modes, volume mode or labels that the claim asks for");
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

/// The location of a claim that the pod may mean.
fn like_claim(world: &World, namespace: &str, name: &str) -> String {
    let claims = || world.objects.claims.values().map(|claim| &claim.metadata);
    let mut elsewhere = claims().filter(|claim| claim.name == name);
    if let Some(claim) = elsewhere.next() {
        return format!("; there is one of that name in namespace {}", claim.namespace);
    }
    let near = nearest(
        name,
        claims()
            .filter(|claim| claim.namespace == namespace)
            .map(|claim| &claim.name),
    );
    near.map_or(String::new(), |near| format!("; did you mean {near}?"))
}

/// The most similar name, if there is one.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n String>) -> Option<&'n str> {
    let alike = names.map(|other| (strsim::jaro_winkler(name, other), other.as_str()));
    let near = alike.filter(|(alike, _)| *alike >= NEAR_ENOUGH);
    near.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, name)| name)
}
