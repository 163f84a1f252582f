//! What the controller knows: the objects as last observed, indexed for the lookups of steps.
//!
//! One owner applies what watches and writes return; steps only read. The state never goes back to an older version of
//! an object, so a lagging watch does not undo the response to a write.

use crate::bind::is_reserved_for;
use crate::ephemeral::{self, EphemeralVolume};
use crate::held::{Begun, is_orphan};
use crate::index::{VolumeIndex, attributes_class, modes_differ, requested, size_of};
use crate::settings::Settings;
use crate::zone::NodeKeys;
use berth_core::api::{
    Kind, Node, Object, ObjectMeta, OwnerReference, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass,
    StringMap,
};
use berth_core::effect::ObjectKey;
use berth_core::hold::Verdicts;
use berth_core::model::AccessModes;
use berth_core::names;
use berth_core::zone;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// How many waiting claims are tried for a volume that became free. The next resync finds further ones; without a
/// bound, many claims that do not fit would be walked for every new volume.
const WAKE_LIMIT: usize = 64;

/// The relevant parts of a pod: the claims it uses and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUse {
    /// The pod, as an effect's target.
    pub metadata: ObjectMeta,
    /// The node; empty until it has one.
    pub node_name: String,
    /// It has finished.
    pub terminated: bool,
    /// Its node has admitted it, and may mount its volumes.
    pub admitted: bool,
    /// Names of the claims it uses, including those of ephemeral volumes.
    pub claims: Vec<String>,
    /// Its ephemeral volumes.
    pub ephemeral: Vec<EphemeralVolume>,
    /// The results of the attempts to get its volumes.
    pub verdicts: Verdicts,
}

impl PodUse {
    fn of(pod: &Pod) -> Self {
        let ephemeral = ephemeral::volumes_of(pod);
        let named = pod.spec.volumes.iter().filter_map(|volume| {
            let source = volume.persistent_volume_claim.as_ref()?;
            Some(source.claim_name.clone())
        });
        Self {
            // Few labels and annotations of pods are read, and there are many pods.
            metadata: ObjectMeta {
                labels: StringMap::new(),
                annotations: StringMap::new(),
                ..pod.metadata.clone()
            },
            node_name: pod.spec.node_name.clone(),
            terminated: pod.is_finished(),
            admitted: pod.was_admitted(),
            claims: named
                .chain(ephemeral.iter().map(|volume| volume.claim.clone()))
                .collect(),
            ephemeral,
            verdicts: Verdicts::of(&pod.metadata),
        }
    }

    /// Whether it blocks deletion of the claim: it has a node, and has not stopped there.
    #[must_use]
    pub fn holds(&self, claim: &PersistentVolumeClaim) -> bool {
        !self.node_name.is_empty() && !self.metadata.is_shut_down() && self.may_use(claim)
    }

    /// Whether it uses the claim or is going to: it has not finished, wherever it is.
    #[must_use]
    pub fn refers_to(&self, claim: &PersistentVolumeClaim) -> bool {
        !self.terminated && !self.metadata.is_shut_down() && self.may_use(claim)
    }

    /// Whether this pod may use the claim: for an ephemeral volume, only its own.
    #[must_use]
    pub fn may_use(&self, claim: &PersistentVolumeClaim) -> bool {
        let ephemeral = self.ephemeral.iter().any(|volume| volume.claim == claim.metadata.name);
        !ephemeral || is_owned_by(&claim.metadata.owner_references, &self.metadata.uid)
    }
}

/// Whether the controlling owner has this UID.
pub(crate) fn is_owned_by(owners: &[OwnerReference], uid: &str) -> bool {
    owners
        .iter()
        .any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// The objects as last observed.
#[derive(Clone, Debug, Default)]
pub struct State {
    volumes: FxHashMap<String, Arc<PersistentVolume>>,
    claims: FxHashMap<ObjectKey, Arc<PersistentVolumeClaim>>,
    classes: BTreeMap<String, StorageClass>,
    nodes: FxHashMap<String, StringMap>,
    node_keys: NodeKeys,
    pods: FxHashMap<ObjectKey, PodUse>,
    pods_of_claim: FxHashMap<ObjectKey, BTreeSet<ObjectKey>>,
    index: VolumeIndex,
    /// Volumes with effects in flight: no other claim may choose them.
    held: FxHashSet<String>,
    /// Claims with effects in flight: their volumes may already be chosen.
    held_claims: FxHashSet<ObjectKey>,
    /// Claims that refer to a volume, by its name, whether or not it exists.
    naming: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Claims that wait for a volume, by class.
    waiting: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// The claim that was last triggered, by class.
    woken: FxHashMap<String, ObjectKey>,
    /// Attempts that are or were being bound.
    begun: Begun,
    /// A scheduler announces that it can bind delayed claims.
    delay_announced: bool,
}

impl State {
    /// A volume by name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name)
    }

    /// A claim by name.
    #[must_use]
    pub fn claim(&self, name: &ObjectKey) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(name)
    }

    /// A class by name.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name)
    }

    /// A pod by name.
    #[must_use]
    pub fn pod(&self, name: &ObjectKey) -> Option<&PodUse> {
        self.pods.get(name)
    }

    /// The labels of a node.
    #[must_use]
    pub fn node_labels(&self, name: &str) -> Option<&StringMap> {
        self.nodes.get(name)
    }

    /// Every volume, in no order.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.volumes.values()
    }

    /// Every claim, in no order.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<PersistentVolumeClaim>> {
        self.claims.values()
    }

    /// The pods that use a claim of this name, in order of name.
    pub fn pods_using(&self, claim: &ObjectKey) -> impl Iterator<Item = &PodUse> {
        let pods = self.pods_of_claim.get(claim).into_iter().flatten();
        pods.filter_map(|name| self.pods.get(name))
    }

    /// All keys for a resync.
    #[must_use]
    pub fn all_keys(&self) -> Vec<ObjectKey> {
        let mut claims: Vec<_> = self.claims.keys().cloned().collect();
        let mut volumes: Vec<_> = self.volumes.keys().cloned().map(ObjectKey::volume).collect();
        let with_ephemeral = self.pods.iter().filter(|(_, pod)| !pod.ephemeral.is_empty());
        let mut pods: Vec<_> = with_ephemeral.map(|(name, _)| name.clone()).collect();
        claims.sort_unstable();
        volumes.sort_unstable();
        pods.sort_unstable();
        claims.append(&mut volumes);
        claims.append(&mut pods);
        claims
    }

    /// The class for claims without one: the newest default, then the first by name.
    #[must_use]
    pub fn default_class(&self) -> Option<&StorageClass> {
        let is_default = |class: &&StorageClass| {
            [names::IS_DEFAULT_CLASS, names::IS_DEFAULT_CLASS_BETA]
                .iter()
                .any(|key| class.metadata.annotation(key) == Some("true"))
        };
        self.classes.values().filter(is_default).reduce(|best, class| {
            if class.metadata.creation_timestamp > best.metadata.creation_timestamp {
                class
            } else {
                best
            }
        })
    }

    /// Whether a claim is bound only when a scheduler asks for it.
    #[must_use]
    pub fn is_delayed(&self, claim: &PersistentVolumeClaim, settings: &Settings) -> bool {
        settings.volume_scheduling && self.wants_delay(claim) && !self.lacks_scheduler(claim, settings)
    }

    /// Whether a claim would be delayed if there were a scheduler that can bind it.
    pub(crate) fn is_undelayed(&self, claim: &PersistentVolumeClaim, settings: &Settings) -> bool {
        settings.volume_scheduling && self.wants_delay(claim) && self.lacks_scheduler(claim, settings)
    }

    pub(crate) fn wants_delay(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = claim.class_name().and_then(|name| self.class(name));
        class.is_some_and(StorageClass::is_delayed)
    }

    /// A claim with a selected node has a scheduler, whether or not that one announces itself.
    fn lacks_scheduler(&self, claim: &PersistentVolumeClaim, settings: &Settings) -> bool {
        settings.require_delayed_binding_scheduler && !self.delay_announced && claim.selected_node().is_none()
    }

    /// Sets whether a scheduler announces that it can bind delayed claims. Returns the claims to sync again.
    pub fn set_delay_announced(&mut self, announced: bool) -> Vec<ObjectKey> {
        if std::mem::replace(&mut self.delay_announced, announced) == announced {
            return Vec::new();
        }
        let waiting = self.waiting.values().flatten();
        waiting.cloned().collect()
    }

    /// The best volume for an unbound claim that specifies none: among the volumes with the fewest access modes, one
    /// that is reserved for it, else the smallest that fits. A delayed claim gets only a reserved one.
    #[must_use]
    pub fn best_volume(&self, claim: &PersistentVolumeClaim, delayed: bool) -> Option<&Arc<PersistentVolume>> {
        let reserved = self.reserved_volume(claim);
        let free = if delayed {
            None
        } else {
            self.index.smallest_free(claim, |name| !self.held.contains(name))
        };
        match (reserved, free) {
            (Some((modes, _)), Some((fewer, free))) if fewer.count() < modes.count() => self.volumes.get(free),
            (Some((_, reserved)), _) => Some(reserved),
            (None, Some((_, free))) => self.volumes.get(free),
            (None, None) => None,
        }
    }

    fn reserved_volume(&self, claim: &PersistentVolumeClaim) -> Option<(AccessModes, &Arc<PersistentVolume>)> {
        let wanted = AccessModes::new(&claim.spec.access_modes);
        self.index
            .claimed_by(&ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata))
            .filter_map(|name| self.volumes.get(name))
            .filter(|volume| is_reserved_for(volume, claim) && fits_reserved(volume, claim))
            .filter(|volume| !is_orphan(volume, claim))
            .map(|volume| (AccessModes::new(&volume.spec.access_modes), volume))
            // A reservation with the claim's UID was decided by a scheduler, and schedulers do not compare access
            // modes.
            .map(|(modes, volume)| (!is_reserved_by_uid(volume), modes, volume))
            .filter(|(by_name, modes, _)| !by_name || modes.contains(wanted))
            .min_by_key(|(by_name, modes, volume)| (*by_name, modes.count(), *modes, size_of(volume)))
            .map(|(_, modes, volume)| (modes, volume))
    }

    /// Attempts that are or were being bound.
    pub(crate) fn begun(&self) -> &Begun {
        &self.begun
    }

    /// The volumes that refer to a claim, at least by name.
    pub(crate) fn volumes_referring_to(&self, claim: &ObjectKey) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.index.claimed_by(claim).filter_map(|name| self.volumes.get(name))
    }

    /// The smallest free volumes that fit the claim and that the node can reach, at most this many.
    pub(crate) fn smallest_on_node(
        &self,
        claim: &PersistentVolumeClaim,
        node: &str,
        count: usize,
    ) -> Vec<&Arc<PersistentVolume>> {
        let mut found: Vec<&Arc<PersistentVolume>> = Vec::new();
        let Some(labels) = self.nodes.get(node) else {
            return found;
        };
        while found.len() < count {
            let next = self.index.smallest_free(claim, |name| {
                let is_found = found.iter().any(|volume| volume.metadata.name == name);
                let volume = self
                    .volumes
                    .get(name)
                    .filter(|_| !is_found && !self.held.contains(name));
                volume.is_some_and(|volume| reaches(volume, node, labels))
            });
            match next.and_then(|(_, name)| self.volumes.get(name)) {
                Some(volume) => found.push(volume),
                None => break,
            }
        }
        found
    }

    /// Whether effects on a claim are in flight.
    pub(crate) fn is_held(&self, claim: &ObjectKey) -> bool {
        self.held_claims.contains(claim)
    }

    /// Prevents a volume from being chosen, or a claim from counting as waiting, while effects on it are in flight.
    pub fn hold(&mut self, key: &ObjectKey) {
        match key.known_kind() {
            Some(Kind::PersistentVolume) => drop(self.held.insert(key.name.clone())),
            Some(Kind::PersistentVolumeClaim) => drop(self.held_claims.insert(key.clone())),
            _ => {}
        }
    }

    /// Ends [`State::hold`]. Returns a claim that could not choose the volume in the meantime, if it is free.
    pub fn unhold(&mut self, key: &ObjectKey) -> Option<ObjectKey> {
        self.held_claims.remove(key);
        if key.known_kind() != Some(Kind::PersistentVolume) {
            return None;
        }
        self.held.remove(&key.name);
        let volume = self.volumes.get(&key.name)?;
        let volume = Arc::clone(volume);
        volume.spec.claim_ref.is_none().then(|| self.wake(&volume))?
    }

    /// Applies an object of any kind. Returns the keys to sync; none if the object was already known or does not
    /// matter.
    pub fn apply(&mut self, object: Object) -> Vec<ObjectKey> {
        match object {
            Object::PersistentVolumeClaim(claim) => self.apply_claim(*claim),
            Object::PersistentVolume(volume) => self.apply_volume(*volume),
            Object::StorageClass(class) => self.apply_class(*class),
            Object::Pod(pod) => self.apply_pod(&pod),
            Object::Node(node) => self.apply_node(*node),
            // No step reads others.
            _ => Vec::new(),
        }
    }

    /// Removes an object of any kind. Returns the keys to sync.
    pub fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        match key.known_kind() {
            Some(Kind::PersistentVolumeClaim) => self.remove_claim(key),
            Some(Kind::PersistentVolume) => self.remove_volume(&key.name),
            Some(Kind::StorageClass) => self.remove_class(&key.name),
            Some(Kind::Pod) => self.remove_pod(key),
            Some(Kind::Node) => {
                if let Some(labels) = self.nodes.remove(&key.name) {
                    self.node_keys.remove(&labels);
                }
                Vec::new()
            }
            // No step reads others.
            _ => Vec::new(),
        }
    }

    /// The metadata of an object with a step.
    #[must_use]
    pub fn metadata(&self, key: &ObjectKey) -> Option<&ObjectMeta> {
        match key.known_kind()? {
            Kind::PersistentVolumeClaim => self.claims.get(key).map(|claim| &claim.metadata),
            Kind::PersistentVolume => self.volumes.get(&key.name).map(|volume| &volume.metadata),
            Kind::Pod => self.pods.get(key).map(|pod| &pod.metadata),
            _ => None,
        }
    }

    /// Applies a claim. Returns the keys to sync; none if the state is already newer.
    pub fn apply_claim(&mut self, claim: PersistentVolumeClaim) -> Vec<ObjectKey> {
        let name = ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata);
        let mut keys = Vec::new();
        if !self.claims.contains_key(&name) {
            keys.extend(self.beside(&name));
        }
        if let Some(known) = self.claims.get(&name) {
            if known.metadata.uid != claim.metadata.uid {
                keys = self.remove_claim(&name);
            } else if is_known(&claim.metadata, &known.metadata) {
                return Vec::new();
            } else {
                self.unindex_claim(&name);
            }
        }
        if is_waiting(&claim) {
            let class = claim.class_name().unwrap_or_default().to_owned();
            self.waiting.entry(class).or_default().insert(name.clone());
        }
        if !claim.spec.volume_name.is_empty() {
            let volume = claim.spec.volume_name.clone();
            self.naming.entry(volume.clone()).or_default().insert(name.clone());
            // A volume that was reserved for the claim, possibly by a write without a response, is free again.
            let reserved = self.index.claimed_by(&name).filter(|other| *other != volume);
            keys.extend(reserved.map(ObjectKey::volume));
            keys.push(ObjectKey::volume(volume));
        }
        self.claims.insert(name.clone(), Arc::new(claim));
        keys.push(name);
        keys
    }

    /// The other claims of pods that use this one and were placed on nodes: their volumes are chosen together.
    fn beside(&self, claim: &ObjectKey) -> Vec<ObjectKey> {
        let placed = self.pods_using(claim).filter(|pod| !pod.node_name.is_empty());
        let claims = placed.flat_map(|pod| pod.claims.iter());
        let claims = claims.map(|name| ObjectKey::claim(&claim.namespace, name));
        claims.filter(|other| other != claim).collect()
    }

    /// Removes a claim. Returns the volumes that it leaves behind.
    pub fn remove_claim(&mut self, name: &ObjectKey) -> Vec<ObjectKey> {
        self.unindex_claim(name);
        let Some(claim) = self.claims.remove(name) else {
            return Vec::new();
        };
        let mut volumes: BTreeSet<String> = self.index.claimed_by(name).map(str::to_owned).collect();
        if !claim.spec.volume_name.is_empty() {
            volumes.insert(claim.spec.volume_name.clone());
        }
        let mut keys: Vec<_> = volumes.into_iter().map(ObjectKey::volume).collect();
        // An ephemeral volume's claim must be created again while its pod exists.
        let pods = self.pods_using(name).filter(|pod| !pod.ephemeral.is_empty());
        keys.extend(pods.map(|pod| ObjectKey::of(Kind::Pod, &pod.metadata)));
        keys
    }

    fn unindex_claim(&mut self, name: &ObjectKey) {
        let Some(claim) = self.claims.get(name) else { return };
        remove_from(&mut self.waiting, claim.class_name().unwrap_or_default(), name);
        remove_from(&mut self.naming, &claim.spec.volume_name, name);
    }

    /// The claims that refer to a volume.
    fn claims_naming(&self, volume: &str) -> impl Iterator<Item = ObjectKey> {
        self.naming.get(volume).into_iter().flatten().cloned()
    }

    /// Applies a volume. Returns the keys to sync; none if the state is already newer.
    pub fn apply_volume(&mut self, volume: PersistentVolume) -> Vec<ObjectKey> {
        let name = volume.metadata.name.clone();
        let mut keys = Vec::new();
        if let Some(known) = self.volumes.get(&name) {
            if known.metadata.uid != volume.metadata.uid {
                keys = self.remove_volume(&name);
            } else if is_known(&volume.metadata, &known.metadata) {
                return Vec::new();
            }
        }
        self.index.insert(&volume);
        match &volume.spec.claim_ref {
            Some(reference) => keys.push(ObjectKey::referred(reference)),
            None => keys.extend(self.wake(&volume)),
        }
        keys.extend(self.claims_naming(&name));
        self.begun.insert(&volume);
        if let Some(before) = self.volumes.insert(name.clone(), Arc::new(volume)) {
            self.begun.remove(&before);
        }
        keys.push(ObjectKey::volume(name));
        keys
    }

    /// Removes a volume. Returns the claims that lose it.
    pub fn remove_volume(&mut self, name: &str) -> Vec<ObjectKey> {
        self.index.remove(name);
        let Some(volume) = self.volumes.remove(name) else {
            return Vec::new();
        };
        self.begun.remove(&volume);
        let reference = volume.spec.claim_ref.as_ref();
        let referred = reference.map(ObjectKey::referred);
        referred.into_iter().chain(self.claims_naming(name)).collect()
    }

    /// A waiting claim that could use a free volume, each in turn.
    fn wake(&mut self, volume: &PersistentVolume) -> Option<ObjectKey> {
        if volume.status.phase != "Available" || volume.metadata.is_deleting() {
            return None;
        }
        let class = volume.class_name();
        let waiting = self.waiting.get(class)?;
        let after = self.woken.get(class).map_or(Bound::Unbounded, Bound::Excluded);
        let rest = waiting.range::<ObjectKey, _>((after, Bound::Unbounded));
        let found = rest
            .chain(waiting.iter())
            .take(WAKE_LIMIT)
            .find(|name| self.claims.get(*name).is_some_and(|claim| fits_free(volume, claim)))?
            .clone();
        self.woken.insert(class.to_owned(), found.clone());
        Some(found)
    }

    /// Applies a class. Returns the claims that waited for it.
    pub fn apply_class(&mut self, class: StorageClass) -> Vec<ObjectKey> {
        let name = class.metadata.name.clone();
        if self.classes.get(&name) == Some(&class) {
            return Vec::new();
        }
        self.classes.insert(name.clone(), class);
        // Claims without a class wait under the empty name for a default one.
        let waiting = [name.as_str(), ""]
            .into_iter()
            .filter_map(|name| self.waiting.get(name));
        waiting.flatten().cloned().collect()
    }

    /// Removes a class.
    pub fn remove_class(&mut self, name: &str) -> Vec<ObjectKey> {
        self.classes.remove(name);
        let waiting = self.waiting.get(name).into_iter().flatten();
        waiting.cloned().collect()
    }

    /// Applies a pod. Returns the claims whose waiting it affects, and the pod if it needs claims.
    pub fn apply_pod(&mut self, pod: &Pod) -> Vec<ObjectKey> {
        let name = ObjectKey::of(Kind::Pod, &pod.metadata);
        let pod = PodUse::of(pod);
        if self.pods.get(&name) == Some(&pod) {
            return Vec::new();
        }
        let mut keys = self.remove_pod(&name);
        for claim in &pod.claims {
            let claim = ObjectKey::claim(&name.namespace, claim);
            keys.push(claim.clone());
            self.pods_of_claim.entry(claim).or_default().insert(name.clone());
        }
        if !pod.ephemeral.is_empty() {
            keys.push(name.clone());
        }
        if !pod.claims.is_empty() {
            self.pods.insert(name, pod);
        }
        keys
    }

    /// Removes a pod. Returns the claims it used.
    pub fn remove_pod(&mut self, name: &ObjectKey) -> Vec<ObjectKey> {
        let Some(pod) = self.pods.remove(name) else {
            return Vec::new();
        };
        let mut keys = Vec::new();
        for claim in &pod.claims {
            let claim = ObjectKey::claim(&name.namespace, claim);
            if let Some(pods) = self.pods_of_claim.get_mut(&claim) {
                pods.remove(name);
                if pods.is_empty() {
                    self.pods_of_claim.remove(&claim);
                }
            }
            let volume = self.claims.get(&claim).map(|claim| claim.spec.volume_name.clone());
            keys.extend(volume.filter(|name| !name.is_empty()).map(ObjectKey::volume));
            keys.push(claim);
        }
        keys
    }

    /// Applies a node. Returns the claims of pods that were placed on it, if it is new or its labels changed.
    pub fn apply_node(&mut self, node: Node) -> Vec<ObjectKey> {
        let (name, labels) = (node.metadata.name, node.metadata.labels);
        // Nodes report every few seconds; their labels rarely change.
        if self.nodes.get(&name) == Some(&labels) {
            return Vec::new();
        }
        let placed = self.pods.values().filter(|pod| pod.node_name == name);
        let claims = placed.flat_map(|pod| {
            let namespace = &pod.metadata.namespace;
            pod.claims.iter().map(move |claim| ObjectKey::claim(namespace, claim))
        });
        let keys = claims.collect();
        self.node_keys.add(&labels);
        if let Some(before) = self.nodes.insert(name, labels) {
            self.node_keys.remove(&before);
        }
        keys
    }

    /// Which labels nodes use for their location.
    #[must_use]
    pub fn node_keys(&self) -> NodeKeys {
        self.node_keys
    }
}

/// Whether `new` is the known version, or an older one. Versions that are not numbers cannot be compared; then the
/// order of arrival decides.
fn is_known(new: &ObjectMeta, known: &ObjectMeta) -> bool {
    match (
        new.resource_version.parse::<u64>(),
        known.resource_version.parse::<u64>(),
    ) {
        (Ok(new), Ok(known)) => new <= known,
        _ => new.resource_version == known.resource_version && !new.resource_version.is_empty(),
    }
}

fn remove_from(index: &mut BTreeMap<String, BTreeSet<ObjectKey>>, key: &str, name: &ObjectKey) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

fn is_waiting(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.volume_name.is_empty() && !claim.metadata.annotations.contains_key(names::BIND_COMPLETED)
}

/// Whether a volume can be reached from a node, by its affinity and by its zone labels.
fn reaches(volume: &PersistentVolume, node: &str, labels: &StringMap) -> bool {
    let affinity = volume.spec.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| required.matches(node, labels)) && zone::allows(&volume.metadata.labels, labels)
}

/// Whether a reservation refers to the claim by UID, not only by name.
fn is_reserved_by_uid(volume: &PersistentVolume) -> bool {
    let reference = volume.spec.claim_ref.as_ref();
    reference.is_some_and(|reference| !reference.uid.is_empty())
}

/// A reservation takes precedence over class and labels, but not over size and mode.
fn fits_reserved(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    size_of(volume) >= requested(claim)
        && !modes_differ(claim, volume)
        && attributes_class(claim.spec.volume_attributes_class_name.as_ref())
            == attributes_class(volume.spec.volume_attributes_class_name.as_ref())
        // A binding that was started is finished: the volume is kept as long as its claim exists.
        && (!volume.metadata.is_deleting() || volume.status.phase == "Bound")
}

fn fits_free(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let selector = claim.spec.selector.as_ref();
    fits_reserved(volume, claim)
        && AccessModes::new(&volume.spec.access_modes).contains(AccessModes::new(&claim.spec.access_modes))
        && selector.is_none_or(|selector| selector.matches(&volume.metadata.labels))
}
