//! Equivalent pods share their verdicts: which nodes fit, and their scores.
//!
//! ```text
//!   pod ──traits──▶ class ──▶ verdicts by node ◀─updated── nodes with changed pods or node objects
//!                               │      ▲                   nodes on which claims of the class find other volumes
//!                               │      └────────rebuilt─── drivers, resources and images of the cluster
//!                               ▼
//!              narrowed and scored further by the plugins that consider other nodes
//! ```
//!
//! Verdicts of plugins that depend only on the pod's traits and on one node are cached. The other plugins depend on
//! pods of other nodes, on the volumes that a claim is bound to, or on which nodes fit; they are run for every pod and
//! skip most of them. Every decision uses this path, so nothing has to decide whether to leave it.
//!
//! When a claim is added, changed or deleted, its pods move to another class; the verdicts of a class do not change.
//! When a volume is added, changed or deleted, the verdicts of the classes with such claims change on the nodes that
//! can reach it. When a storage class changes or is deleted, no pod remains in the classes of its claims. Nothing else
//! is dropped.

mod loads;
mod traits;
mod verdicts;

pub(crate) use verdicts::Verdicts;

use crate::cluster::Cluster;
use crate::framework::PluginName;
use crate::plugins::FilterState;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::stopwatch::Stopwatch;
use berth_core::binder::AlikeClaims;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use berth_core::trace::{Marks, Trace};
use loads::Loads;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use traits::{Traits, held_images};
use verdicts::Asked;

/// Maximum total size of the verdicts. A class takes 8 bytes per node: this is room for 80 classes on 100,000 nodes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of classes on small clusters, where memory is no limit but searching for the oldest would be.
const MAX_CLASSES: usize = 1024;
/// Maximum number of distinct profiles. A scheduler has a handful.
const MAX_PROFILES: usize = 16;
/// Verdicts are rebuilt if more than one in this many nodes is stale: then scanning columns is faster.
const STALE_SHARE: usize = 4;

/// Whether the verdicts of a plugin on nodes are cached. `claims` is whether the pod's claims are equivalent to others.
pub(crate) fn keeps_verdicts(plugin: PluginName, claims: bool) -> bool {
    match plugin {
        PluginName::NodeUnschedulable
        | PluginName::NodeName
        | PluginName::TaintToleration
        | PluginName::NodeAffinity
        | PluginName::NodePorts
        | PluginName::NodeResourcesFit => true,
        PluginName::VolumeBinding => claims,
        PluginName::VolumeRestrictions
        | PluginName::NodeVolumeLimits
        | PluginName::VolumeZone
        | PluginName::PodTopologySpread
        | PluginName::InterPodAffinity
        | PluginName::DynamicResources
        | PluginName::GangScheduling
        | PluginName::NodeResourcesBalancedAllocation
        | PluginName::ImageLocality
        | PluginName::Extender => false,
    }
}

/// Whether the scores of a plugin are cached. Those that depend on which nodes fit are not.
pub(crate) fn keeps_scores(plugin: PluginName, claims: bool) -> bool {
    match plugin {
        PluginName::NodeResourcesFit | PluginName::NodeResourcesBalancedAllocation | PluginName::ImageLocality => true,
        PluginName::VolumeBinding => claims,
        _ => false,
    }
}

/// What verdicts depend on in addition to single nodes. If it changes, they are rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stand {
    /// Resources beyond the fixed ones that are offered or requested anywhere.
    scalars: usize,
    /// If the pod's images matter: the number of nodes, and how many of them hold each image.
    images: Option<(usize, SmallVec<[usize; 1]>)>,
}

/// How often verdicts were used, and the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharingCounts {
    /// Decisions that found verdicts of their class.
    pub found: u64,
    /// Number of times that the verdicts of a class were rebuilt.
    pub built: u64,
    /// Number of updated verdicts on single nodes.
    pub mended: u64,
    /// Number of dropped classes: to make room, or because no pod was in them for long.
    pub dropped: u64,
}

/// The verdicts of recently used classes, on the nodes of one cluster. They hold node selectors there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Equivalence {
    profiles: Vec<Profile>,
    classes: Vec<Verdicts>,
    by_hash: FxHashMap<u64, SmallVec<[u32; 1]>>,
    uses: u64,
    /// The use count at the last tidying.
    tidied: u64,
    /// Total size of the traits of all classes.
    traits_bytes: usize,
    loads: Loads,
    counts: SharingCounts,
}

impl Trace for Equivalence {
    fn trace(&self, marks: &mut Marks) {
        self.classes.iter().for_each(|class| class.traits.trace(marks));
    }
}

impl Equivalence {
    pub(crate) fn counts(&self) -> SharingCounts {
        self.counts
    }

    /// Returns verdicts that were taken out.
    pub(crate) fn put_back(&mut self, place: usize, verdicts: Verdicts) {
        if let Some(slot) = self.classes.get_mut(place) {
            *slot = verdicts;
        }
    }

    fn find(&self, traits: &Traits<'_>, hash: u64) -> Option<usize> {
        let places = self.by_hash.get(&hash)?.iter().map(|place| *place as usize);
        let mut places = places.filter(|place| self.classes[*place].traits.as_ref() == *traits);
        places.next()
    }

    fn insert(&mut self, verdicts: Verdicts) -> usize {
        let place = self.classes.len();
        self.by_hash.entry(verdicts.hash).or_default().push(place as u32);
        self.classes.push(verdicts);
        place
    }

    /// Drops the classes without a pod since the last call.
    pub(crate) fn tidy(&mut self, cluster: &mut Cluster) {
        while self.classes.iter().any(|class| class.used <= self.tidied) {
            self.drop_oldest(cluster);
        }
        self.tidied = self.uses;
    }

    /// Drops the least recently used class.
    fn drop_oldest(&mut self, cluster: &mut Cluster) {
        let oldest = self.classes.iter().enumerate().min_by_key(|(_, class)| class.used);
        let Some((oldest, _)) = oldest else {
            return;
        };
        let dropped = self.classes.swap_remove(oldest);
        let moved = self.classes.len() as u32;
        if let Some(places) = self.by_hash.get_mut(&dropped.hash) {
            places.retain(|place| *place as usize != oldest);
            if places.is_empty() {
                self.by_hash.remove(&dropped.hash);
            }
        }
        if let Some(class) = self.classes.get(oldest)
            && let Some(places) = self.by_hash.get_mut(&class.hash)
            && let Some(place) = places.iter_mut().find(|place| **place == moved)
        {
            *place = oldest as u32;
        }
        self.counts.dropped += 1;
        self.traits_bytes -= dropped.traits_bytes;
        for selector in dropped.traits.selectors() {
            cluster.binder_mut().release_selector(selector);
        }
    }

    /// Takes out the verdicts of a pod's class, up to date, with the index for [returning them](Self::put_back).
    pub(crate) fn verdicts_for(
        &mut self,
        cluster: &mut Cluster,
        pod: &Pod,
        profile: &Profile,
        states: &[FilterState],
        only_nodes: &[(PluginName, Box<[Symbol]>)],
        watch: &mut impl Stopwatch,
    ) -> (usize, Verdicts) {
        let claims = alike_claims(cluster, states);
        let asked = Asked {
            pod,
            profile,
            states,
            only_nodes,
            claims_kept: claims.is_some(),
        };
        let images = held_images(cluster, pod);
        let number = self.profile_number(cluster, profile);
        let traits = Traits::of(number, pod, &images, claims.as_ref());
        let (place, mut verdicts) = self.take_out(cluster, &traits);
        watch.begin();
        self.refresh(cluster, &mut verdicts, &asked, &images, watch);
        (place, verdicts)
    }

    /// The number of a profile. Everything is dropped if there are too many.
    fn profile_number(&mut self, cluster: &mut Cluster, profile: &Profile) -> usize {
        if let Some(number) = self.profiles.iter().position(|known| known == profile) {
            return number;
        }
        if self.profiles.len() == MAX_PROFILES {
            self.forget_all(cluster);
        }
        self.profiles.push(profile.clone());
        self.profiles.len() - 1
    }

    /// Drops all verdicts, and releases what they hold in the cluster.
    pub(crate) fn forget_all(&mut self, cluster: &mut Cluster) {
        let counts = self.counts;
        let forgotten = std::mem::take(self);
        self.counts = counts;
        for selector in forgotten.classes.iter().flat_map(|class| class.traits.selectors()) {
            cluster.binder_mut().release_selector(selector);
        }
    }

    fn take_out(&mut self, cluster: &mut Cluster, traits: &Traits<'_>) -> (usize, Verdicts) {
        let length = cluster.nodes().column_length();
        let hash = traits.hash();
        self.uses += 1;
        if let Some(place) = self.find(traits, hash) {
            self.counts.found += 1;
            let mut verdicts = std::mem::take(&mut self.classes[place]);
            verdicts.used = self.uses;
            return (place, verdicts);
        }
        let kept = traits.keep();
        let traits_bytes = kept.bytes(cluster.nodes());
        let is_full = |own: &Self| {
            let verdicts = (own.classes.len() + 1) * Verdicts::bytes(length);
            own.classes.len() >= MAX_CLASSES || verdicts + own.traits_bytes + traits_bytes > MAX_BYTES
        };
        while !self.classes.is_empty() && is_full(self) {
            self.drop_oldest(cluster);
        }
        let new = Verdicts::new(kept, traits_bytes, hash, self.uses);
        self.traits_bytes += traits_bytes;
        for selector in new.traits.selectors() {
            cluster.binder_mut().hold_selector(selector);
        }
        let place = self.insert(new);
        (place, std::mem::take(&mut self.classes[place]))
    }

    /// Updates verdicts: on the nodes that changed, or on all.
    fn refresh(
        &mut self,
        cluster: &mut Cluster,
        verdicts: &mut Verdicts,
        asked: &Asked<'_>,
        images: &[Symbol],
        watch: &mut impl Stopwatch,
    ) {
        let stand = stand(cluster, images);
        let stale = (verdicts.stand.as_ref() == Some(&stand))
            .then(|| stale_nodes(cluster, verdicts, asked))
            .flatten();
        match stale {
            Some(stale) => {
                verdicts.mend(cluster, asked, &stale, watch);
                self.counts.mended += stale.len() as u64;
            }
            None => {
                self.loads.refresh(cluster);
                verdicts.build(cluster, asked, &self.loads, watch);
                verdicts.stand = Some(stand);
                self.counts.built += 1;
            }
        }
        verdicts.nodes_read = cluster.touched().next();
        if let Some(state) = asked.open_claims() {
            verdicts.volumes_read = cluster.binder().read_up_to(state.prepared());
        }
    }
}

/// The open claims that determine the pod's class. Pods without volumes have none, and are equivalent too.
fn alike_claims(cluster: &Cluster, states: &[FilterState]) -> Option<AlikeClaims> {
    match FilterState::volume_binding(states) {
        Some(state) => cluster.binder().alike(state.prepared()),
        None => Some(AlikeClaims::default()),
    }
}

fn stand(cluster: &Cluster, images: &[Symbol]) -> Stand {
    let holders = |image: &Symbol| cluster.images().holders(*image).map_or(0, |holders| holders.count());
    Stand {
        scalars: cluster.resources().scalars.len(),
        images: (!images.is_empty()).then(|| (cluster.all_nodes().len(), images.iter().map(holders).collect())),
    }
}

/// The nodes on which verdicts may have changed, sorted, without duplicates. `None` if they are too many, or unknown.
fn stale_nodes(cluster: &Cluster, verdicts: &Verdicts, asked: &Asked<'_>) -> Option<Vec<NodeId>> {
    let touched = cluster.touched().since(verdicts.nodes_read)?;
    let mut stale = touched.to_vec();
    stale.dedup();
    if let Some(state) = asked.open_claims()
        && !cluster
            .binder()
            .stale_nodes(state.prepared(), &verdicts.volumes_read, &mut stale)
    {
        return None;
    }
    let length = cluster.nodes().column_length();
    if stale.len() > FEW {
        // A mask sorts faster.
        let mut mask = NodeMask::none(cluster.nodes());
        stale.iter().for_each(|node| mask.insert(*node));
        stale.clear();
        stale.extend(mask.iter());
    } else {
        stale.sort_unstable();
        stale.dedup();
    }
    stale.retain(|node| node.index() < length);
    (stale.len() * STALE_SHARE <= length + BLOCKS_WORTH).then_some(stale)
}

/// Up to this many are sorted as a list.
const FEW: usize = 32;
/// On small clusters, this many nodes are always updated one by one.
const BLOCKS_WORTH: usize = 64;
