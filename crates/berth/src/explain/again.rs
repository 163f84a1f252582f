//! A pod that has a node, explained as if it were placed now for the first time.
//!
//! Bound claims leave a pod with local volumes one node: nothing is left to compare that node with. So the claims whose volumes were chosen for the
//! pod are unbound while it is explained, and their volumes are free.

use super::World;
use berth_core::api::{self, Object};
use berth_core::names;

/// Claims and volumes as they are, while the cluster has them unbound.
#[derive(Default)]
pub(super) struct Unbound {
    claims: Vec<api::PersistentVolumeClaim>,
    volumes: Vec<api::PersistentVolume>,
}

impl Unbound {
    /// Unbinds the claims that only this pod uses and whose volumes were chosen for it. Others are bound whatever node it gets: they are used by
    /// another pod, name their volume themselves, or belong to a class that binds at once.
    pub(super) fn of(world: &mut World, pod: &api::Pod) -> Self {
        let mut unbound = Self::default();
        for name in pod
            .spec
            .volumes
            .iter()
            .filter_map(|volume| volume.claim_name(&pod.metadata.name))
        {
            if let Some((claim, volume)) = chosen(world, &pod.metadata.namespace, &name) {
                unbound.take(world, claim, volume);
            }
        }
        unbound
    }

    fn take(&mut self, world: &mut World, claim: api::PersistentVolumeClaim, volume: api::PersistentVolume) {
        let mut open = claim.clone();
        open.spec.volume_name.clear();
        "Pending".clone_into(&mut open.status.phase);
        for annotation in [
            names::BIND_COMPLETED,
            names::BOUND_BY_CONTROLLER,
            names::SELECTED_NODE,
            names::SELECTED_NODE_ALPHA,
        ] {
            open.metadata.annotations.remove(annotation);
        }
        let mut free = volume.clone();
        free.spec.claim_ref = None;
        "Available".clone_into(&mut free.status.phase);
        world.upsert(Object::PersistentVolume(Box::new(free)));
        world.upsert(Object::PersistentVolumeClaim(Box::new(open)));
        self.claims.push(claim);
        self.volumes.push(volume);
    }

    /// What a reader of the explanation must know.
    pub(super) fn remark(&self) -> Option<String> {
        let names: Vec<&str> = self.claims.iter().map(|claim| claim.metadata.name.as_str()).collect();
        match names.as_slice() {
            [] => None,
            [name] => Some(format!(
                "explained as if its claim {name} were not bound and its volume were free"
            )),
            names => Some(format!(
                "explained as if its claims {} were not bound and their volumes were free",
                names.join(", ")
            )),
        }
    }

    /// Binds them again.
    pub(super) fn undo(self, world: &mut World) {
        for volume in self.volumes {
            world.upsert(Object::PersistentVolume(Box::new(volume)));
        }
        for claim in self.claims {
            world.upsert(Object::PersistentVolumeClaim(Box::new(claim)));
        }
    }
}

/// A claim with its volume, if a scheduler chose it for the only pod that uses the claim. The pod itself is not among the pods of the cluster.
fn chosen(world: &World, namespace: &str, name: &str) -> Option<(api::PersistentVolumeClaim, api::PersistentVolume)> {
    let objects = &world.objects;
    let claim = objects.claims.get(&format!("{namespace}/{name}"))?;
    let is_chosen = claim.metadata.annotations.contains_key(names::BOUND_BY_CONTROLLER);
    let is_delayed = claim
        .class_name()
        .and_then(|class| objects.classes.get(class))
        .is_some_and(api::StorageClass::is_delayed);
    let is_shared = objects.users_of(namespace, name).next().is_some();
    if claim.status.phase != "Bound" || !is_chosen || !is_delayed || is_shared {
        return None;
    }
    let volume = objects.volumes.get(&claim.spec.volume_name)?;
    Some((claim.clone(), volume.clone()))
}
