//! Why a pod waits for claims that are held for an attempt to get all volumes of a pod, or that are being given back.

use super::cause::Cause;
use super::layout::names;
use super::report::Report;
use super::waiting::Waiting;
use super::world::World;
use berth_core::api;
use berth_core::clean::{Rollback, is_clean};
use berth_core::hold::{Hold, Verdict, Verdicts};

/// Maximum number of claims listed in a sentence.
const NAMES_SHOWN: usize = 3;

/// A claim of the pod, with what holds it.
struct Held<'a> {
    claim: &'a str,
    hold: &'a Hold,
    /// The volume that is reserved or was made.
    volume: Option<&'a str>,
}

/// Finds out whether a pod waits for claims that are held or given back.
pub(super) fn of_pod(world: &World, pod: &api::Pod, report: &Report) -> Option<Waiting> {
    given_back(world, pod, report).or_else(|| {
        let held = held(world, pod, report);
        for_another(world, pod, &held).or_else(|| for_itself(pod, &held))
    })
}

/// What a pod that fits nowhere can expect of claims that no pod has used.
pub(super) fn of_unused(world: &World, pod: &api::Pod, report: &Report) -> Option<String> {
    let unused = claims_of(world, pod, report).filter(|claim| is_clean(claim));
    let unused: Vec<&str> = unused.map(|claim| claim.metadata.name.as_str()).collect();
    let (claims, them) = match unused.as_slice() {
        [] => return None,
        [_] => ("claim", "it"),
        [..] => ("claims", "them"),
    };
    Some(format!(
        "fits on no node with {claims} {}, which no pod has used: the scheduler gives {them} back if the pod fits elsewhere without {them}",
        names(&unused, NAMES_SHOWN)
    ))
}

fn claims_of<'a>(
    world: &'a World,
    pod: &'a api::Pod,
    report: &'a Report,
) -> impl Iterator<Item = &'a api::PersistentVolumeClaim> {
    let namespace = &pod.metadata.namespace;
    let claims = report.claims.iter();
    claims.filter_map(move |claim| world.objects.claims.get(&format!("{namespace}/{}", claim.claim)))
}

fn given_back(world: &World, pod: &api::Pod, report: &Report) -> Option<Waiting> {
    let mut claims = claims_of(world, pod, report);
    let (claim, rollback) = claims.find_map(|claim| Some((claim, Rollback::of_claim(claim)?)))?;
    let whose = match *rollback.pod_uid == *pod.metadata.uid {
        true => "its volume keeps the pod from every node".to_owned(),
        false => format!("its volume keeps pod {} from every node", rollback.pod),
    };
    let name = &claim.metadata.name;
    let text = format!("waits until claim {name}, which no pod has used, is deleted and recreated: {whose}");
    Some(Waiting::new(Cause::PodClaimGivenBack, text))
}

/// The claims that are not bound and held, by themselves or by the volumes that are reserved for them.
fn held<'a>(world: &'a World, pod: &api::Pod, report: &Report) -> Vec<Held<'a>> {
    let binder = world.cluster.binder();
    let Some(namespace) = binder.symbols().get(&pod.metadata.namespace) else {
        return Vec::new();
    };
    let claims = report.claims.iter();
    let claims = claims.filter_map(|claim| binder.claim_named(namespace, &claim.claim));
    let held = claims.filter(|claim| !claim.is_bound()).filter_map(|claim| {
        Some(Held {
            claim: &claim.name,
            hold: binder.holds_on(claim).next()?,
            volume: binder.volumes_for(claim).next().map(|volume| &*volume.name),
        })
    });
    held.collect()
}

fn for_another(world: &World, pod: &api::Pod, held: &[Held<'_>]) -> Option<Waiting> {
    let of_other = held.iter().find(|held| *held.hold.pod_uid != *pod.metadata.uid)?;
    let (claim, hold) = (of_other.claim, of_other.hold);
    let other = world
        .objects
        .pods
        .get(&format!("{}/{}", pod.metadata.namespace, hold.pod));
    let other = other.filter(|other| *other.metadata.uid == *hold.pod_uid);
    let text = format!("waits for claim {claim}, which is held for pod {}", hold.pod);
    let told = match other {
        None => format!(
            "pod {} does not exist: the volume controller releases the claim",
            hold.pod
        ),
        Some(other) => match Verdicts::of(&other.metadata).on(hold.attempt) {
            Verdict::Open => format!("not all volumes of pod {} exist yet", hold.pod),
            Verdict::Committed => format!(
                "the volumes of pod {} exist: the volume controller binds the claim",
                hold.pod
            ),
            Verdict::Aborted => format!(
                "pod {} could not get all of its volumes: the volume controller releases the claim",
                hold.pod
            ),
        },
    };
    Some(Waiting::new(Cause::PodVolumesHeld, text).with([told]))
}

fn for_itself(pod: &api::Pod, held: &[Held<'_>]) -> Option<Waiting> {
    let attempt = held.iter().map(|held| held.hold.attempt).max()?;
    let claims: Vec<&str> = held.iter().map(|held| held.claim).collect();
    let claims = names(&claims, NAMES_SHOWN);
    let text = match Verdicts::of(&pod.metadata).on(attempt) {
        Verdict::Committed => {
            format!("waits for the volume controller to bind claims {claims}: all of their volumes exist")
        }
        Verdict::Aborted => {
            format!(
                "waits for the volume controller to release claims {claims}: not all of their volumes could be had on one node"
            )
        }
        // Its provisioner comes first.
        Verdict::Open if held.iter().any(|held| held.volume.is_none()) => return None,
        Verdict::Open => format!("waits for the scheduler to commit the volumes of claims {claims}: all of them exist"),
    };
    let told = held.iter().filter_map(|held| {
        let (claim, volume) = (held.claim, held.volume?);
        Some(format!("claim {claim} holds volume {volume}"))
    });
    Some(Waiting::new(Cause::PodVolumesHeld, text).with(told))
}
