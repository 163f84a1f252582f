//! A sketch of the cluster for the pods of a look: what each takes of a node, and what each node has.
//!
//! Trying a pod with all plugins takes microseconds. In the sketch it takes nanoseconds, because it contains only what pods usually compete for: node
//! resources, volumes that only one node reaches, and required anti-affinity among them. Everything else is the plugins' business: whatever the
//! sketch finds is decided by them afterwards.

use super::Candidate;
use super::trial::Trial;
use crate::cluster::{Cluster, Column};
use crate::framework::PluginName;
use crate::plugins::inter_pod_affinity;
use berth_core::binder::VolumeBinder;
use berth_core::model::{ClaimShape, Volume};
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Maximum number of kinds of claims: a volume notes in one word which of them it suits.
const MAX_KINDS: usize = 64;

/// The pods of a look, and the nodes that fit some of them.
#[derive(Debug)]
pub(super) struct Sketch {
    pub(super) pods: Vec<SketchPod>,
    pub(super) nodes: Vec<SketchNode>,
    /// For each topology key of anti-affinity the domain of each node.
    pub(super) domains: Vec<Vec<Option<usize>>>,
    /// For each kind of claim, whether a new volume can be provisioned.
    pub(super) provisioned: Vec<bool>,
    /// Whether it contains all claims.
    pub(super) is_complete: bool,
}

/// What a pod takes.
#[derive(Debug, Default)]
pub(super) struct SketchPod {
    /// Of each resource.
    pub(super) takes: SmallVec<[i64; 4]>,
    /// Its claims that are open: bytes and kind, smallest first.
    pub(super) claims: SmallVec<[(i64, usize); 4]>,
    /// The nodes that fit it without any other pod of the look.
    pub(super) options: Vec<usize>,
    /// The pods that must not share a domain with it, and the topology key.
    pub(super) apart: Vec<(usize, usize)>,
}

/// What a node has for the pods of the look.
#[derive(Debug)]
pub(super) struct SketchNode {
    pub(super) id: NodeId,
    /// Of each resource.
    pub(super) free: SmallVec<[i64; 4]>,
    /// Its own free volumes: bytes, and a bit for each kind of claim that they suit. Smallest first.
    pub(super) volumes: Vec<(i64, u64)>,
}

/// Claims that differ only in size.
#[derive(Debug)]
struct Kind {
    class: Symbol,
    shape: ClaimShape,
    /// Whether some volume for it is reachable from several nodes. Such claims are not part of the sketch.
    is_shared: bool,
}

impl Sketch {
    /// Sketches a cluster with no pod of the look on a node. `None` if there are too many kinds of claims.
    pub(super) fn of(trial: &mut Trial<'_>, options: &[Vec<NodeId>]) -> Option<Self> {
        let mut numbers: FxHashMap<NodeId, usize> = FxHashMap::default();
        let mut ids: Vec<NodeId> = options.iter().flatten().copied().collect();
        ids.sort_unstable();
        ids.dedup();
        numbers.extend(ids.iter().copied().zip(0..));
        let columns = Columns::of(trial.cluster, trial.candidates);
        let mut pods: Vec<SketchPod> = trial
            .candidates
            .iter()
            .zip(options)
            .map(|(candidate, options)| SketchPod {
                takes: columns.taken_by(candidate),
                options: options.iter().filter_map(|node| numbers.get(node).copied()).collect(),
                ..SketchPod::default()
            })
            .collect();
        let mut nodes: Vec<SketchNode> = ids
            .iter()
            .map(|id| SketchNode {
                id: *id,
                free: columns.free(trial.cluster, *id),
                volumes: Vec::new(),
            })
            .collect();
        let kinds = add_claims(trial, &mut pods)?;
        let kinds = add_volumes(trial.cluster, kinds, &numbers, &mut nodes);
        for pod in &mut pods {
            pod.claims.retain(|(_, kind)| !kinds[*kind].is_shared);
        }
        let binder = trial.cluster.binder();
        let provisioned = |kind: &Kind| binder.class(kind.class).is_some_and(|class| class.provisions);
        let provisioned = kinds.iter().map(provisioned).collect();
        let domains = add_conflicts(trial, &ids, &mut pods);
        Some(Self {
            is_complete: kinds.iter().all(|kind| !kind.is_shared),
            pods,
            nodes,
            domains,
            provisioned,
        })
    }

    /// The least capacity beyond their requests that the claims of all pods take, wherever the volumes are. `None` if there are not enough.
    pub(super) fn least_waste(&self) -> Option<i64> {
        let mut claims: Vec<(i64, usize)> = self.pods.iter().flat_map(|pod| pod.claims.iter().copied()).collect();
        let mut volumes: Vec<(i64, u64)> = self
            .nodes
            .iter()
            .flat_map(|node| node.volumes.iter().copied())
            .collect();
        claims.sort_unstable();
        volumes.sort_unstable();
        let stored = store(&claims, &volumes, &self.provisioned, &mut Vec::new())?;
        Some(stored.waste)
    }
}

/// What the claims on a node take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stored {
    /// Claims that need a new volume.
    pub(super) new_volumes: usize,
    /// Capacity beyond what the claims request.
    pub(super) waste: i64,
}

/// Gives each claim the smallest volume that suits it, smallest claim first. If volumes differ only in size, that is the assignment with the
/// least capacity, and fails only if there is none. `None` if a claim remains that cannot be provisioned.
pub(super) fn store(
    claims: &[(i64, usize)],
    volumes: &[(i64, u64)],
    provisioned: &[bool],
    used: &mut Vec<bool>,
) -> Option<Stored> {
    used.clear();
    used.resize(volumes.len(), false);
    let mut stored = Stored::default();
    let mut first = 0;
    for (bytes, kind) in claims {
        while first < volumes.len() && (used[first] || volumes[first].0 < *bytes) {
            first += 1;
        }
        let suits = |place: &usize| !used[*place] && volumes[*place].1 & (1 << kind) != 0;
        match (first..volumes.len()).find(suits) {
            Some(place) => {
                used[place] = true;
                stored.waste = stored.waste.saturating_add(volumes[place].0 - bytes);
            }
            None if provisioned[*kind] => stored.new_volumes += 1,
            None => return None,
        }
    }
    Some(stored)
}

/// The resources that pods of the look request.
struct Columns(Vec<Resource>);

#[derive(Clone, Copy)]
enum Resource {
    Cpu,
    Memory,
    Ephemeral,
    Pods,
    Scalar(Symbol),
}

impl Columns {
    fn of(cluster: &Cluster, candidates: &[Candidate<'_>]) -> Self {
        let mut resources = vec![Resource::Cpu, Resource::Memory, Resource::Ephemeral, Resource::Pods];
        let scalars = candidates
            .iter()
            .flat_map(|candidate| &candidate.pod.footprint.requests.scalars);
        let mut names: Vec<Symbol> = scalars.map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| cluster.resources().scalars.contains_key(name));
        resources.extend(names.into_iter().map(Resource::Scalar));
        Self(resources)
    }

    fn taken_by(&self, candidate: &Candidate<'_>) -> SmallVec<[i64; 4]> {
        let requests = &candidate.pod.footprint.requests;
        let counts = candidate.is_filtered_by(PluginName::NodeResourcesFit);
        let amount = |resource: &Resource| match resource {
            _ if !counts => 0,
            Resource::Cpu => requests.cpu_milli,
            Resource::Memory => requests.memory_bytes,
            Resource::Ephemeral => requests.ephemeral_bytes,
            Resource::Pods => 1,
            Resource::Scalar(name) => requests
                .scalars
                .iter()
                .find(|(scalar, _)| scalar == name)
                .map_or(0, |(_, amount)| *amount),
        };
        self.0.iter().map(amount).collect()
    }

    fn free(&self, cluster: &Cluster, node: NodeId) -> SmallVec<[i64; 4]> {
        let resources = cluster.resources();
        let free = |column: Option<&Column>| column.map_or(0, |column| column.free(node));
        self.0
            .iter()
            .map(|resource| match resource {
                Resource::Cpu => resources.cpu.free(node),
                Resource::Memory => resources.memory.free(node),
                Resource::Ephemeral => resources.ephemeral.free(node),
                Resource::Pods => resources.pods.free(node),
                Resource::Scalar(name) => free(resources.scalars.get(name)),
            })
            .collect()
    }
}

/// The open claims of a candidate that no volume is held for: class and shape.
pub(super) fn open_claims<'c>(
    binder: &'c VolumeBinder,
    candidate: &Candidate<'_>,
) -> impl Iterator<Item = (Symbol, &'c ClaimShape)> + use<'c> {
    let claims = match candidate.is_filtered_by(PluginName::VolumeBinding) {
        true => binder
            .claims(&candidate.pod.volumes)
            .map(|claims| claims.delayed)
            .unwrap_or_default(),
        false => SmallVec::default(),
    };
    let claims = claims.into_iter().filter_map(|id| binder.claim(id));
    claims
        .filter(|claim| binder.volume_held_for(claim).is_none())
        .filter_map(|claim| Some((claim.class?, &claim.shape)))
}

/// Adds the open claims of all pods, and returns their kinds.
fn add_claims(trial: &Trial<'_>, pods: &mut [SketchPod]) -> Option<Vec<Kind>> {
    let mut kinds: Vec<Kind> = Vec::new();
    for (candidate, pod) in trial.candidates.iter().zip(pods) {
        for (class, shape) in open_claims(trial.cluster.binder(), candidate) {
            let any_size = ClaimShape {
                request: 0,
                ..shape.clone()
            };
            let known = kinds
                .iter()
                .position(|kind| kind.class == class && kind.shape == any_size);
            let kind = known.unwrap_or(kinds.len());
            if kind == MAX_KINDS {
                return None;
            }
            if known.is_none() {
                kinds.push(Kind {
                    class,
                    shape: any_size,
                    is_shared: false,
                });
            }
            pod.claims.push((shape.request, kind));
        }
        pod.claims.sort_unstable();
    }
    Some(kinds)
}

/// Adds the volumes that only one node reaches, and notes which claims could use others.
fn add_volumes(
    cluster: &Cluster,
    mut kinds: Vec<Kind>,
    numbers: &FxHashMap<NodeId, usize>,
    nodes: &mut [SketchNode],
) -> Vec<Kind> {
    let mut classes: Vec<Symbol> = kinds.iter().map(|kind| kind.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let binder = cluster.binder();
    for class in classes {
        for volume in binder.free_of_class(class) {
            let suits = |kind: &Kind| kind.class == class && kind.shape.is_met_if_large(volume);
            match only_node(cluster, volume) {
                OnlyNode::Several => kinds
                    .iter_mut()
                    .filter(|kind| suits(kind))
                    .for_each(|kind| kind.is_shared = true),
                OnlyNode::One(node) => {
                    let bits = (0..kinds.len())
                        .filter(|kind| suits(&kinds[*kind]))
                        .map(|kind| 1_u64 << kind);
                    if let Some(number) = numbers.get(&node) {
                        nodes[*number].volumes.push((volume.capacity, bits.sum()));
                    }
                }
                OnlyNode::None => {}
            }
        }
    }
    nodes.iter_mut().for_each(|node| node.volumes.sort_unstable());
    kinds
}

/// The nodes that reach a volume.
enum OnlyNode {
    None,
    One(NodeId),
    Several,
}

fn only_node(cluster: &Cluster, volume: &Volume) -> OnlyNode {
    let nodes = cluster.nodes();
    let zones = nodes.matching(volume.zones);
    let mut reachable = nodes
        .matching(volume.affinity)
        .iter()
        .filter(|node| zones.contains(*node));
    match (reachable.next(), reachable.next()) {
        (None, _) => OnlyNode::None,
        (Some(node), None) => OnlyNode::One(NodeId(node)),
        (Some(_), Some(_)) => OnlyNode::Several,
    }
}

/// Adds which pods must stay apart, and returns the domains of the nodes for each topology key.
fn add_conflicts(trial: &mut Trial<'_>, nodes: &[NodeId], pods: &mut [SketchPod]) -> Vec<Vec<Option<usize>>> {
    let candidates = trial.candidates;
    let mut keys: Vec<Symbol> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let filtered = candidate.is_filtered_by(PluginName::InterPodAffinity);
        let terms = candidate.pod.footprint.terms.iter().filter(|_| filtered);
        for term in terms.flat_map(|terms| &terms.required_anti) {
            let clause = inter_pod_affinity::clause(trial.cluster, term);
            let key = keys.iter().position(|key| *key == term.topology_key);
            let key = key.unwrap_or_else(|| {
                keys.push(term.topology_key);
                keys.len() - 1
            });
            for (other, matched) in candidates.iter().enumerate() {
                if other != index && clause.matches(&matched.pod.footprint) {
                    pods[index].apart.push((other, key));
                    pods[other].apart.push((index, key));
                }
            }
        }
    }
    for pod in pods {
        pod.apart.sort_unstable();
        pod.apart.dedup();
    }
    keys.into_iter()
        .map(|key| {
            trial.cluster.ensure_topology(key);
            let column = trial.cluster.topology().column(key);
            nodes.iter().map(|node| column.domain(*node)).collect()
        })
        .collect()
}
