//! Finds the smallest volume that fits a claim without walking all volumes.
//!
//! Free volumes are grouped by family (class, volume mode, attributes class) and set of access modes, ordered by size.
//! A lookup costs one ordered search for each set of access modes in use, at most sixteen. A claim with a selector
//! needs one for each distinct set of labels.

use berth_core::api::{LabelSelector, PersistentVolume, PersistentVolumeClaim, StringMap};
use berth_core::effect::ObjectKey;
use berth_core::model::AccessModes;
use berth_core::quantity::Quantity;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// What a claim and its volume must agree on exactly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Family {
    class: String,
    block: bool,
    attributes_class: String,
}

type BySize = BTreeSet<(Quantity, String)>;

#[derive(Clone, Debug, Default)]
struct Group {
    by_size: BySize,
    by_labels: BTreeMap<StringMap, BySize>,
}

/// The number of access modes that volumes offer, then the modes: the fewest come first.
type Offer = (u32, AccessModes);

fn offer(modes: AccessModes) -> Offer {
    (modes.count(), modes)
}

/// Where a volume is in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Any claim may take it.
    Free {
        family: Family,
        modes: AccessModes,
        labels: StringMap,
        size: Quantity,
    },
    /// It refers to a claim.
    Claimed(ObjectKey),
}

/// The volumes, by what claims request.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeIndex {
    free: FxHashMap<Family, BTreeMap<Offer, Group>>,
    claimed: FxHashMap<ObjectKey, BTreeSet<String>>,
    places: FxHashMap<String, Place>,
}

impl VolumeIndex {
    /// Adds or replaces a volume.
    pub(crate) fn insert(&mut self, volume: &PersistentVolume) {
        let place = place_of(volume);
        let name = &volume.metadata.name;
        if self.places.get(name) == place.as_ref() {
            return;
        }
        self.remove(name);
        let Some(place) = place else { return };
        match &place {
            Place::Claimed(claim) => {
                self.claimed.entry(claim.clone()).or_default().insert(name.clone());
            }
            Place::Free {
                family,
                modes,
                labels,
                size,
            } => {
                let group = self
                    .free
                    .entry(family.clone())
                    .or_default()
                    .entry(offer(*modes))
                    .or_default();
                group.by_size.insert((*size, name.clone()));
                let same_labels = group.by_labels.entry(labels.clone()).or_default();
                same_labels.insert((*size, name.clone()));
            }
        }
        self.places.insert(name.clone(), place);
    }

    /// Removes a volume.
    pub(crate) fn remove(&mut self, name: &str) {
        match self.places.remove(name) {
            None => {}
            Some(Place::Claimed(claim)) => {
                if let Some(volumes) = self.claimed.get_mut(&claim) {
                    volumes.remove(name);
                    if volumes.is_empty() {
                        self.claimed.remove(&claim);
                    }
                }
            }
            Some(Place::Free {
                family,
                modes,
                labels,
                size,
            }) => self.remove_free(&family, modes, &labels, (size, name.to_owned())),
        }
    }

    fn remove_free(&mut self, family: &Family, modes: AccessModes, labels: &StringMap, entry: (Quantity, String)) {
        let Some(groups) = self.free.get_mut(family) else {
            return;
        };
        let Some(group) = groups.get_mut(&offer(modes)) else {
            return;
        };
        group.by_size.remove(&entry);
        if let Some(same_labels) = group.by_labels.get_mut(labels) {
            same_labels.remove(&entry);
            if same_labels.is_empty() {
                group.by_labels.remove(labels);
            }
        }
        if group.by_size.is_empty() {
            groups.remove(&offer(modes));
        }
        if groups.is_empty() {
            self.free.remove(family);
        }
    }

    /// The volumes that refer to a claim with this name.
    pub(crate) fn claimed_by(&self, claim: &ObjectKey) -> impl Iterator<Item = &str> {
        self.claimed.get(claim).into_iter().flatten().map(String::as_str)
    }

    /// The smallest free volume that fits the claim and that `accept` accepts; volumes with the fewest access modes
    /// come first. Also returns the volume's access modes.
    pub(crate) fn smallest_free(
        &self,
        claim: &PersistentVolumeClaim,
        accept: impl Fn(&str) -> bool,
    ) -> Option<(AccessModes, &str)> {
        let groups = self.free.get(&family_of_claim(claim))?;
        let modes = AccessModes::new(&claim.spec.access_modes);
        let size = requested(claim);
        let mut best: Option<(Quantity, &str, Offer)> = None;
        for (offered, group) in groups.iter().filter(|((_, offered), _)| offered.contains(modes)) {
            if best.is_some_and(|(_, _, found)| found.0 < offered.0) {
                break;
            }
            let found = match &claim.spec.selector {
                None => first_at_least(&group.by_size, size, &accept),
                Some(selector) => group.smallest_selected(selector, size, &accept),
            };
            let found = found.map(|(size, name)| (size, name, *offered));
            best = best.into_iter().chain(found).min();
        }
        best.map(|(_, name, (_, offered))| (offered, name))
    }
}

impl Group {
    fn smallest_selected(
        &self,
        selector: &LabelSelector,
        size: Quantity,
        accept: &impl Fn(&str) -> bool,
    ) -> Option<(Quantity, &str)> {
        self.by_labels
            .iter()
            .filter(|(labels, _)| selector.matches(labels))
            .filter_map(|(_, volumes)| first_at_least(volumes, size, accept))
            .min()
    }
}

fn first_at_least<'a>(
    volumes: &'a BySize,
    size: Quantity,
    accept: &impl Fn(&str) -> bool,
) -> Option<(Quantity, &'a str)> {
    volumes
        .range((size, String::new())..)
        .find(|(_, name)| accept(name))
        .map(|(size, name)| (*size, name.as_str()))
}

/// The exact size that a claim requests.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    claim
        .spec
        .resources
        .requests
        .get("storage")
        .copied()
        .unwrap_or_default()
}

/// The exact size of a volume.
pub(crate) fn size_of(volume: &PersistentVolume) -> Quantity {
    volume.spec.capacity.get("storage").copied().unwrap_or_default()
}

/// Whether claim and volume differ in volume mode.
pub(crate) fn modes_differ(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    is_block(claim.spec.volume_mode.as_deref()) != is_block(volume.spec.volume_mode.as_deref())
}

/// The attributes class; empty if not set.
pub(crate) fn attributes_class(name: Option<&String>) -> &str {
    name.map_or("", String::as_str)
}

fn is_block(mode: Option<&str>) -> bool {
    mode == Some("Block")
}

fn family_of_claim(claim: &PersistentVolumeClaim) -> Family {
    Family {
        class: claim.class_name().unwrap_or_default().to_owned(),
        block: is_block(claim.spec.volume_mode.as_deref()),
        attributes_class: attributes_class(claim.spec.volume_attributes_class_name.as_ref()).to_owned(),
    }
}

fn place_of(volume: &PersistentVolume) -> Option<Place> {
    if let Some(reference) = &volume.spec.claim_ref {
        return Some(Place::Claimed(ObjectKey::referred(reference)));
    }
    let free = volume.status.phase == "Available" && !volume.metadata.is_deleting();
    free.then(|| Place::Free {
        family: Family {
            class: volume.class_name().to_owned(),
            block: is_block(volume.spec.volume_mode.as_deref()),
            attributes_class: attributes_class(volume.spec.volume_attributes_class_name.as_ref()).to_owned(),
        },
        modes: AccessModes::new(&volume.spec.access_modes),
        labels: volume.metadata.labels.clone(),
        size: size_of(volume),
    })
}
