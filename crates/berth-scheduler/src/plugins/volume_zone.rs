//! VolumeZone: a volume whose labels name zones or regions is used there.
//!
//! Volumes with node affinity have no need of it; it is for those from before there was any.

use crate::cluster::{Cluster, TopologyColumn};
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::model::{Claim, Volume};
use berth_core::names;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use smallvec::SmallVec;

/// The labels that say where a volume is, each older one with the newer one that stands in for it on a node.
const LABELS: [(&str, Option<&str>); 4] = [
    (names::ZONE_BETA, Some(names::ZONE)),
    (names::REGION_BETA, Some(names::REGION)),
    (names::ZONE, None),
    (names::REGION, None),
];

/// Where the pod's volumes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// All labels that say where something is.
    keys: [Symbol; LABELS.len()],
    demands: Vec<Demand>,
}

/// One label of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Demand {
    key: Symbol,
    /// The newer label that a node may have instead.
    instead: Option<Symbol>,
    values: SmallVec<[Symbol; 1]>,
}

/// Refuses pods with claims of which nobody can say where they are; skips pods whose volumes have no such labels.
pub fn pre_filter(cluster: &mut Cluster, pod: &Pod) -> PreFilter<State> {
    let namespace = pod.footprint.namespace;
    let symbols = cluster.binder_mut().symbols_mut();
    let labels = LABELS.map(|(key, instead)| (symbols.intern(key), instead.map(|key| symbols.intern(key))));
    let mut state = State {
        keys: labels.map(|(key, _)| key),
        demands: Vec::new(),
    };
    for named in pod.volumes.claims.iter().filter(|claim| !claim.ephemeral) {
        let volume = match volume_of(cluster, namespace, &named.name) {
            Ok(volume) => volume,
            Err(reason) => return PreFilter::Refused(Refusal::unresolvable(PluginName::VolumeZone, reason)),
        };
        let of_volume = |key: Symbol| volume.and_then(|volume| volume.labels.get(key));
        let found = labels.map(|(key, instead)| of_volume(key).map(|value| (key, instead, value)));
        for (key, instead, value) in found.into_iter().flatten() {
            let value = cluster.symbols().text(value).to_owned();
            let parts: SmallVec<[&str; 1]> = value.split(names::ZONE_DELIMITER).map(str::trim).collect();
            if parts.contains(&"") {
                continue;
            }
            let symbols = cluster.binder_mut().symbols_mut();
            let values = parts.iter().map(|part| symbols.intern(part)).collect();
            state.demands.push(Demand { key, instead, values });
        }
    }
    if state.demands.is_empty() {
        return PreFilter::Skip;
    }
    for key in state.keys {
        cluster.ensure_topology(key);
    }
    PreFilter::ready(state)
}

/// The volume of a claim; none if it is to be bound later.
fn volume_of<'a>(cluster: &'a Cluster, namespace: Symbol, name: &str) -> Result<Option<&'a Volume>, Reason> {
    if name.is_empty() {
        return Err(Reason::ClaimNotNamed);
    }
    let binder = cluster.binder();
    let Some(claim) = binder.claim_named(namespace, name) else {
        return Err(Reason::ZonedClaimNotFound { claim: name.into() });
    };
    if claim.volume_name.is_empty() {
        return unbound(cluster, claim).map(|()| None);
    }
    let volume = binder.volume_named(&claim.volume_name);
    volume.map(Some).ok_or_else(|| Reason::ZonedVolumeNotFound {
        volume: claim.volume_name.as_ref().into(),
    })
}

/// Whether an unbound claim may still be unbound.
fn unbound(cluster: &Cluster, claim: &Claim) -> Result<(), Reason> {
    let Some(class) = claim.class.filter(|class| !class.is_empty()) else {
        return Err(Reason::NeitherVolumeNorClass);
    };
    match cluster.binder().class(class) {
        None => Err(Reason::ZonedClassNotFound {
            class: cluster.symbols().text(class).into(),
        }),
        Some(class) if class.delayed => Ok(()),
        Some(_) => Err(Reason::VolumeNotNamed),
    }
}

/// The same on columns of domains, looked up once.
struct Resolved<'a> {
    columns: [&'a TopologyColumn; LABELS.len()],
    demands: SmallVec<[ResolvedDemand<'a>; 2]>,
}

struct ResolvedDemand<'a> {
    own: (&'a TopologyColumn, Domains),
    instead: Option<(&'a TopologyColumn, Domains)>,
}

type Domains = SmallVec<[usize; 2]>;

impl Resolved<'_> {
    fn allows(&self, node: NodeId) -> bool {
        // A node that does not say where it is may be anywhere.
        let mut columns = self.columns.iter();
        if columns.all(|column| column.domain(node).is_none()) {
            return true;
        }
        self.demands.iter().all(|demand| {
            let (column, domains) = match &demand.instead {
                Some(instead) if demand.own.0.domain(node).is_none() => instead,
                _ => &demand.own,
            };
            column.domain(node).is_some_and(|domain| domains.contains(&domain))
        })
    }
}

impl State {
    fn resolve<'a>(&self, cluster: &'a Cluster) -> Resolved<'a> {
        let column = |key| cluster.topology().column(key);
        let resolve = |key: Symbol, values: &[Symbol]| {
            let domains = values.iter().filter_map(|value| column(key).domain_of_value(*value));
            (column(key), domains.collect::<Domains>())
        };
        let demands = self.demands.iter().map(|demand| ResolvedDemand {
            own: resolve(demand.key, &demand.values),
            instead: demand.instead.map(|key| resolve(key, &demand.values)),
        });
        Resolved {
            columns: self.keys.map(column),
            demands: demands.collect(),
        }
    }

    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let refused = !self.resolve(cluster).allows(node);
        refused.then(|| Refusal::unresolvable(PluginName::VolumeZone, Reason::ZoneConflict))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        let resolved = self.resolve(cluster);
        mask.retain(|node| resolved.allows(node));
    }
}
