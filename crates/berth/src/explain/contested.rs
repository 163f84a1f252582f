//! Claims of one pod that need the same storage: each alone would find some on a node, but not all of them.

use super::cause::Cause;
use super::claims;
use super::layout::names;
use super::volumes::fitting;
use super::world::World;
use berth_core::binder::PodVolumes;
use berth_core::model::{Claim, Volume};
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of claims compared: all sets of them are tried, smallest first.
const CLAIMS_MAX: usize = 8;
/// Maximum number of names listed.
const NAMES_SHOWN: usize = 3;

/// What a claim has to share with others of its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rivalry {
    /// The other claims.
    pub(super) claims: Vec<String>,
    what: Contested,
}

/// Storage that does not suffice for all claims.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Contested {
    /// These volumes are fewer than the claims.
    Volumes(Vec<String>),
    /// A new volume for each claim takes more than there is.
    Space(i64),
}

impl Rivalry {
    /// `but claim logs needs volume pv1, too`.
    pub(super) fn words(&self) -> String {
        let (claims, need) = match self.claims.as_slice() {
            [one] => (format!("claim {one}"), "needs"),
            claims => (format!("claims {}", names(claims, NAMES_SHOWN)), "need"),
        };
        match &self.what {
            Contested::Volumes(volumes) => {
                let one = if volumes.len() == 1 { "volume" } else { "volumes" };
                format!("but {claims} {need} {one} {}, too", names(volumes, NAMES_SHOWN))
            }
            Contested::Space(sum) => format!("but {claims} {need} space, too: {} in total", Bytes(*sum)),
        }
    }
}

/// The rivalries of a pod's claims, by node and claim.
#[derive(Default)]
pub(super) struct Contest {
    rivalries: BTreeMap<NodeId, BTreeMap<Box<str>, Rivalry>>,
}

impl Contest {
    /// Compares the claims of a pod that get their volumes when it is scheduled, on each of the nodes.
    pub(super) fn new(world: &World, pod: &PodVolumes, nodes: &[NodeId]) -> Self {
        let binder = world.cluster.binder();
        let mut open: Vec<&Claim> = Vec::new();
        for reference in &pod.claims {
            let found = binder.claim_named(pod.namespace, &reference.name);
            let delayed = found.filter(|claim| claims::cause(world, pod, reference, claim) == Cause::ClaimDelayed);
            if let Some(claim) = delayed.filter(|claim| !open.iter().any(|known| known.name == claim.name)) {
                open.push(claim);
            }
        }
        let mut contest = Self::default();
        if !(2..=CLAIMS_MAX).contains(&open.len()) {
            return contest;
        }
        let volumes: Vec<Vec<&Volume>> = open
            .iter()
            .map(|claim| fitting(binder, &world.objects, claim).collect())
            .collect();
        for node in nodes {
            let claims = open.iter().zip(&volumes);
            let wishes: Vec<Wish<'_>> = claims
                .map(|(claim, volumes)| {
                    let reaches = |volume: &&&Volume| binder.nodes().matching(volume.affinity).contains(node.0);
                    let here = volumes.iter().filter(reaches).map(|volume| &*volume.name);
                    Wish::of(world, claim, *node, here.collect())
                })
                .collect();
            for (claim, rivalry) in rivalries(&wishes) {
                let on_node = contest.rivalries.entry(*node).or_default();
                on_node.entry(claim.into()).or_insert(rivalry);
            }
        }
        contest
    }

    /// What a claim has to share on a node.
    pub(super) fn of(&self, node: NodeId, claim: &str) -> Option<&Rivalry> {
        self.rivalries.get(&node)?.get(claim)
    }
}

/// What a claim could use on a node.
struct Wish<'w> {
    claim: &'w str,
    request: i64,
    /// Free volumes.
    volumes: BTreeSet<&'w str>,
    /// The pool with the most space for a new volume, and that space. `None` if no new volume is possible.
    pool: Option<(String, i64)>,
    /// A new volume is possible, and nobody says that space is limited.
    is_free: bool,
}

impl<'w> Wish<'w> {
    fn of(world: &World, claim: &'w Claim, node: NodeId, volumes: BTreeSet<&'w str>) -> Self {
        let binder = world.cluster.binder();
        let survey = binder.survey(claim, node);
        let can_be_new = survey.provisionable && survey.topology_allowed;
        let pools = survey.pools.as_deref().filter(|_| can_be_new);
        let largest = pools.and_then(|pools| pools.iter().max_by_key(|pool| pool.largest));
        let space = largest.and_then(|pool| Some((pool.name.clone(), pool.largest?)));
        Self {
            claim: &claim.name,
            request: claim.shape.request,
            volumes,
            pool: space.filter(|(_, largest)| *largest >= claim.shape.request),
            is_free: can_be_new && survey.pools.is_none(),
        }
    }
}

/// The smallest sets of claims that need more than there is, each claim with the others of its set.
fn rivalries<'w>(wishes: &[Wish<'w>]) -> Vec<(&'w str, Rivalry)> {
    let mut sets: Vec<u32> = (1..1_u32 << wishes.len()).filter(|set| set.count_ones() > 1).collect();
    sets.sort_by_key(|set| set.count_ones());
    let mut found = Vec::new();
    let mut known = 0;
    for set in sets {
        if set & known != 0 {
            continue;
        }
        let members: Vec<&Wish<'w>> = wishes
            .iter()
            .enumerate()
            .filter(|(index, _)| set & (1 << index) != 0)
            .map(|(_, wish)| wish)
            .collect();
        let Some(what) = contested(&members) else { continue };
        known |= set;
        found.extend(members.iter().map(|wish| {
            let others = members.iter().filter(|other| other.claim != wish.claim);
            let claims = others.map(|other| other.claim.to_owned()).collect();
            (
                wish.claim,
                Rivalry {
                    claims,
                    what: what.clone(),
                },
            )
        }));
    }
    found
}

/// What some claims need more of than there is, if each of them alone would find it.
fn contested(claims: &[&Wish<'_>]) -> Option<Contested> {
    if claims.iter().any(|claim| claim.is_free) {
        return None;
    }
    let volumes: BTreeSet<&str> = claims.iter().flat_map(|claim| claim.volumes.iter().copied()).collect();
    if claims
        .iter()
        .all(|claim| claim.pool.is_none() && !claim.volumes.is_empty())
    {
        let few = volumes.len() < claims.len();
        return few.then(|| Contested::Volumes(volumes.into_iter().map(str::to_owned).collect()));
    }
    let pool = claims.first()?.pool.as_ref()?;
    let sum = claims.iter().map(|claim| claim.request).sum::<i64>();
    let share = |claim: &&Wish<'_>| claim.volumes.is_empty() && claim.pool.as_ref() == Some(pool);
    (claims.iter().all(share) && sum > pool.1).then_some(Contested::Space(sum))
}
