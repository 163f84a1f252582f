//! Which pods are obstacles: those that hold a claim, and those whose volumes are attached to a node.

use super::details::Detail;
use super::world::Objects;
use berth_core::api::{PersistentVolumeClaim, Pod};
use std::collections::{BTreeMap, BTreeSet};

/// The pods that hold those claims of a pod that only one pod may use.
pub(super) fn holders(objects: &Objects, pod: &Pod) -> Detail {
    let namespace = &pod.metadata.namespace;
    let mut holders = BTreeSet::new();
    for (name, claim) in claims_of(objects, pod) {
        if !claim.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod") {
            continue;
        }
        let users = objects
            .users_of(namespace, &name)
            .filter(|user| user.metadata.name != pod.metadata.name);
        for user in users.filter(|user| !user.spec.node_name.is_empty() && !user.is_finished()) {
            holders.insert(format!("{} on {}", user.metadata.full_name(), user.spec.node_name));
        }
    }
    match holders.is_empty() {
        true => Detail::Nothing,
        false => Detail::HeldBy(holders.into_iter().collect()),
    }
}

/// The attached volumes on a node that runs these pods, of the driver that the pod needs and that has the fewest slots
/// left.
pub(super) fn attached(objects: &Objects, pod: &Pod, node: &str, on_node: &[&Pod]) -> Detail {
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut users: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for user in on_node {
        for (driver, handle) in disks_of(objects, user) {
            used.entry(driver).or_default().insert(handle);
            users.entry(driver).or_default().insert(user.metadata.full_name());
        }
    }
    let needed: BTreeSet<String> = drivers_of(objects, pod);
    let more = |driver: &str| {
        let attached = used.get(driver);
        let own = disks_of(objects, pod).into_iter().filter(|(own, _)| *own == driver);
        let own: BTreeSet<&str> = own.map(|(_, handle)| handle).collect();
        let own = own
            .iter()
            .filter(|handle| attached.is_none_or(|attached| !attached.contains(**handle)));
        let new = claims_of(objects, pod).into_iter().filter(|(_, claim)| {
            let class = claim.class_name().and_then(|class| objects.classes.get(class));
            claim.spec.volume_name.is_empty() && class.is_some_and(|class| class.provisioner == driver)
        });
        let inline = pod.spec.volumes.iter().filter_map(|volume| volume.csi.as_ref());
        own.count() + new.count() + inline.filter(|csi| csi.driver == driver).count()
    };
    let limits = objects
        .csi_nodes
        .get(node)
        .into_iter()
        .flat_map(|node| &node.spec.drivers);
    let limits = limits
        .filter(|driver| needed.contains(&driver.name))
        .filter_map(|driver| {
            let of = driver.allocatable.as_ref()?.count?;
            let count = used.get(driver.name.as_str()).map_or(0, BTreeSet::len);
            Some((i64::from(of) - count as i64, driver, of, count))
        });
    let tightest = limits.min_by_key(|(left, ..)| *left);
    tightest.map_or(Detail::Nothing, |(left, driver, of, count)| Detail::Attached {
        driver: driver.name.clone(),
        count,
        of,
        excess: usize::try_from(more(&driver.name) as i64 - left).unwrap_or(0),
        pods: users.remove(driver.name.as_str()).into_iter().flatten().collect(),
    })
}

fn claims_of<'o>(objects: &'o Objects, pod: &Pod) -> Vec<(String, &'o PersistentVolumeClaim)> {
    let names = pod
        .spec
        .volumes
        .iter()
        .filter_map(|volume| volume.claim_name(&pod.metadata.name));
    let found = names.filter_map(|name| {
        let claim = objects.claims.get(&format!("{}/{name}", pod.metadata.namespace))?;
        Some((name, claim))
    });
    found.collect()
}

/// The CSI volumes behind the claims of a pod: driver and handle.
fn disks_of<'o>(objects: &'o Objects, pod: &Pod) -> Vec<(&'o str, &'o str)> {
    let claims = claims_of(objects, pod).into_iter();
    let volumes = claims.filter_map(|(_, claim)| objects.volumes.get(&claim.spec.volume_name));
    let disks = volumes.filter_map(|volume| volume.spec.csi.as_ref());
    disks
        .map(|disk| (disk.driver.as_str(), disk.volume_handle.as_str()))
        .collect()
}

/// The drivers that a pod needs: those of its bound volumes, and those that would provision the others.
fn drivers_of(objects: &Objects, pod: &Pod) -> BTreeSet<String> {
    let mut drivers: BTreeSet<String> = disks_of(objects, pod)
        .into_iter()
        .map(|(driver, _)| driver.to_owned())
        .collect();
    for (_, claim) in claims_of(objects, pod) {
        let class = claim.class_name().and_then(|class| objects.classes.get(class));
        drivers.extend(class.map(|class| class.provisioner.clone()));
    }
    drivers.extend(
        pod.spec
            .volumes
            .iter()
            .filter_map(|volume| volume.csi.as_ref())
            .map(|csi| csi.driver.clone()),
    );
    drivers
}
