//! Follows advice about claims and volumes.

use super::{NEW, Trial};
use crate::explain::advice::needs::VolumeFix;
use crate::explain::cause::Cause;
use berth_core::api::{self, NodeSelector, NodeSelectorTerm, Object, Requirement, VolumeNodeAffinity};
use berth_core::names;
use berth_core::quantity::Quantity;
use std::collections::BTreeMap;

impl Trial<'_> {
    /// Lowers the request of a claim.
    pub(in crate::explain::advice) fn shrink(&mut self, claim: usize, bytes: i64) -> bool {
        self.edit_claim(claim, |claim| {
            let size = Quantity::from_units(bytes);
            claim.spec.resources.requests.insert("storage".to_owned(), size);
        })
    }

    /// Removes the obstacle between a volume and a claim.
    pub(super) fn mend_volume(&mut self, claim: usize, fix: &VolumeFix, node: &str) -> bool {
        let (Some(claim), Some(volume)) = (self.claim(claim), self.objects.volumes.get(&fix.volume)) else {
            return false;
        };
        let mut volume = volume.clone();
        match fix.cause {
            Cause::VolumeReleased | Cause::VolumeFailed | Cause::VolumeReserved => {
                volume.spec.claim_ref = None;
                "Available".clone_into(&mut volume.status.phase);
            }
            Cause::VolumeNodeMissing => volume.spec.node_affinity = Some(affinity_to(node)),
            Cause::VolumeMode => volume.spec.volume_mode.clone_from(&claim.spec.volume_mode),
            Cause::VolumeLabels => volume.metadata.labels.extend(selected_labels(&claim)),
            Cause::VolumeAccessModes => {
                let mut claim = claim;
                claim.spec.access_modes.clone_from(&volume.spec.access_modes);
                self.put(Object::PersistentVolumeClaim(Box::new(claim)));
                return true;
            }
            _ => return false,
        }
        self.put(Object::PersistentVolume(Box::new(volume)));
        true
    }

    /// Lowers the size of an inline volume, by its index in the report.
    pub(in crate::explain::advice) fn shrink_inline(&mut self, index: usize, bytes: i64) -> bool {
        let volumes = self
            .pod
            .spec
            .volumes
            .iter_mut()
            .filter_map(|volume| volume.csi.as_mut());
        let mut sizes = volumes.filter_map(|source| source.volume_attributes.get_mut(names::INLINE_SIZE));
        sizes.nth(index).is_some_and(|size| {
            *size = bytes.to_string();
            true
        })
    }

    /// Deletes a claim and creates it again, with another class if specified.
    pub(in crate::explain::advice) fn recreate(&mut self, index: usize, class: Option<&str>) -> bool {
        self.edit_claim(index, |claim| {
            let own = claim.class_name().map(str::to_owned);
            claim.metadata.annotations.clear();
            claim.metadata.uid.push_str(NEW);
            claim.spec.volume_name.clear();
            claim.spec.storage_class_name = class.map(str::to_owned).or(own);
            claim.status = api::PersistentVolumeClaimStatus::default();
        })
    }

    /// Replaces a claim in the pod by another one.
    pub(in crate::explain::advice) fn use_claim(&mut self, claim: &str, other: &str) -> bool {
        let volumes = self.pod.spec.volumes.iter_mut();
        let sources = volumes.filter_map(|volume| volume.persistent_volume_claim.as_mut());
        let mut used = false;
        for source in sources.filter(|source| source.claim_name == claim) {
            other.clone_into(&mut source.claim_name);
            used = true;
        }
        used
    }

    pub(super) fn drop_inline_sizes(&mut self) {
        for source in self
            .pod
            .spec
            .volumes
            .iter_mut()
            .filter_map(|volume| volume.csi.as_mut())
        {
            source.volume_attributes.clear();
        }
    }

    /// A claim of the report, in its state here.
    fn claim(&self, index: usize) -> Option<api::PersistentVolumeClaim> {
        let name = format!(
            "{}/{}",
            self.pod.metadata.namespace,
            self.report.claims.get(index)?.claim
        );
        let found = self
            .changed
            .claims
            .get(&name)
            .or_else(|| self.objects.claims.get(&name));
        found.cloned()
    }

    pub(super) fn edit_claim(&mut self, index: usize, change: impl FnOnce(&mut api::PersistentVolumeClaim)) -> bool {
        let Some(mut claim) = self.claim(index) else {
            return false;
        };
        change(&mut claim);
        self.put(Object::PersistentVolumeClaim(Box::new(claim)));
        true
    }

    /// Binds a claim to a volume that every node can reach; creates it if it does not exist.
    pub(super) fn bind(&mut self, index: usize) -> bool {
        let Some(report) = self.report.claims.get(index) else {
            return false;
        };
        let mut claim = self.claim(index).unwrap_or_default();
        report.claim.clone_into(&mut claim.metadata.name);
        self.pod.metadata.namespace.clone_into(&mut claim.metadata.namespace);
        claim.metadata.deletion_timestamp = None;
        if claim.metadata.uid.is_empty() {
            claim.metadata.uid = format!("{NEW}-claim-{index}");
        }
        let volumes = self.pod.spec.volumes.iter().filter(|volume| volume.ephemeral.is_some());
        let mut ephemeral = volumes.filter_map(|volume| volume.claim_name(&self.pod.metadata.name));
        if ephemeral.any(|name| name == report.claim) {
            claim.metadata.owner_references = vec![api::OwnerReference {
                kind: "Pod".to_owned(),
                name: self.pod.metadata.name.clone(),
                uid: self.pod.metadata.uid.clone(),
                controller: Some(true),
                ..api::OwnerReference::default()
            }];
        }
        let mut volume = self.new_volume(&claim);
        volume.spec.claim_ref = Some(api::ObjectReference {
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            ..api::ObjectReference::default()
        });
        "Bound".clone_into(&mut volume.status.phase);
        claim.spec.volume_name.clone_from(&volume.metadata.name);
        "Bound".clone_into(&mut claim.status.phase);
        let yes = (names::BIND_COMPLETED.to_owned(), "yes".to_owned());
        claim.metadata.annotations.extend([yes]);
        self.put(Object::PersistentVolume(Box::new(volume)));
        self.put(Object::PersistentVolumeClaim(Box::new(claim)));
        true
    }

    /// Adds a free volume for an unbound claim on a node.
    pub(super) fn provide(&mut self, index: usize, node: &str) -> bool {
        let Some(claim) = self.claim(index) else {
            return false;
        };
        if !claim.spec.volume_name.is_empty() {
            return true;
        }
        self.put_volume(&claim, node);
        true
    }

    fn put_volume(&mut self, claim: &api::PersistentVolumeClaim, node: &str) {
        let mut volume = self.new_volume(claim);
        "Available".clone_into(&mut volume.status.phase);
        volume.spec.node_affinity = Some(affinity_to(node));
        self.put(Object::PersistentVolume(Box::new(volume)));
    }

    /// A volume that suits a claim.
    fn new_volume(&mut self, claim: &api::PersistentVolumeClaim) -> api::PersistentVolume {
        self.volumes += 1;
        let mut volume = api::PersistentVolume::default();
        volume.metadata.name = format!("{NEW}-volume-{}", self.volumes);
        let size = claim.spec.resources.requests.get("storage").copied();
        let size = size.unwrap_or_else(|| Quantity::from_units(1));
        volume.spec.capacity.insert("storage".to_owned(), size);
        volume.spec.access_modes.clone_from(&claim.spec.access_modes);
        volume.spec.volume_mode.clone_from(&claim.spec.volume_mode);
        volume
            .spec
            .volume_attributes_class_name
            .clone_from(&claim.spec.volume_attributes_class_name);
        claim
            .class_name()
            .unwrap_or_default()
            .clone_into(&mut volume.spec.storage_class_name);
        volume.metadata.labels.extend(selected_labels(claim));
        volume
    }

    /// Makes the bound volumes of the pod's claims reachable from every node.
    pub(super) fn reach_volumes(&mut self) -> bool {
        let mut reached = false;
        for index in 0..self.report.claims.len() {
            reached |= self.reach_volume(index);
        }
        reached
    }

    /// Makes the bound volume of a claim reachable from every node.
    pub(super) fn reach_volume(&mut self, index: usize) -> bool {
        let name = self.claim(index).map(|claim| claim.spec.volume_name);
        let found = name.and_then(|name| self.objects.volumes.get(&name));
        let Some(mut volume) = found.cloned() else {
            return false;
        };
        volume.spec.node_affinity = None;
        let zoned = [names::ZONE, names::REGION, names::ZONE_BETA, names::REGION_BETA];
        volume.metadata.labels.retain(|key, _| !zoned.contains(&key.as_str()));
        self.put(Object::PersistentVolume(Box::new(volume)));
        true
    }

    /// Gives the pod its own claim instead of a shared one.
    pub(super) fn own_volume(&mut self, index: usize) -> bool {
        let Some(mut claim) = self.claim(index) else {
            return false;
        };
        let (shared, own) = (claim.metadata.name.clone(), format!("{}-{NEW}", claim.metadata.name));
        claim.metadata.name.clone_from(&own);
        claim.metadata.uid = format!("{NEW}-claim-{index}");
        claim.metadata.annotations.clear();
        claim.spec.volume_name.clear();
        claim.status = api::PersistentVolumeClaimStatus::default();
        self.use_claim(&shared, &own);
        self.put(Object::PersistentVolumeClaim(Box::new(claim)));
        true
    }

    /// Adds a free volume for the claim that replaced a shared one.
    pub(in crate::explain::advice) fn provide_own(&mut self, index: usize, node: &str) -> bool {
        let Some(report) = self.report.claims.get(index) else {
            return false;
        };
        let name = format!("{}/{}-{NEW}", self.pod.metadata.namespace, report.claim);
        let Some(claim) = self.changed.claims.get(&name).cloned() else {
            return false;
        };
        self.put_volume(&claim, node);
        true
    }
}

/// The affinity of a volume that only one node can reach.
fn affinity_to(node: &str) -> VolumeNodeAffinity {
    let by_name = Requirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: vec![node.to_owned()],
    };
    VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Vec::new(),
                match_fields: vec![by_name],
            }],
        }),
    }
}

/// Labels that a claim's selector requires.
pub(in crate::explain::advice) fn selected_labels(claim: &api::PersistentVolumeClaim) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    if let Some(selector) = &claim.spec.selector {
        labels.extend(selector.match_labels.clone());
        let asks = |one: &&Requirement| matches!(one.operator.as_str(), "In" | "Exists");
        for requirement in selector.match_expressions.iter().filter(asks) {
            let value = requirement.values.first().cloned().unwrap_or_else(|| NEW.to_owned());
            labels.insert(requirement.key.clone(), value);
        }
    }
    labels
}
