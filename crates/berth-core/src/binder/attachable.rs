//! Chooses volumes for a pod that can be attached together.
//!
//! Claims get existing volumes so that the least capacity is used, regardless of driver. A node may have fewer attach slots left for one driver
//! than that requires, and free slots for another. In that case all combinations are tried: as many existing volumes as possible, and among those
//! the combination with the least capacity, existing and new volumes together. If there is none, the pod keeps its original volumes, and NodeVolumeLimits reports why they cannot be
//! attached.

use super::VolumeBinder;
use super::find::PreparedPod;
use super::provision::{Need, Plan};
use crate::assign::MAX_TOGETHER;
use crate::model::VolumeId;
use crate::nodes::NodeId;
use crate::symbols::Symbol;
use smallvec::SmallVec;

/// Maximum number of volumes examined on a node, over all claims and combinations. Three claims and two drivers need a few dozen. A pod
/// that needs more gets the best combination found so far, or what it would get without limits.
const MAX_LOOKS: usize = 50_000;

/// Number of volumes by driver, used or allowed. A cluster has few drivers.
type ByDriver = SmallVec<[(Symbol, i64); 2]>;

/// An existing volume that a claim could use.
struct Candidate {
    volume: VolumeId,
    driver: Symbol,
    capacity: i64,
}

/// One way to serve the open claims: an existing volume for each, or none for those that need a new one.
#[derive(Clone, Default)]
struct Way {
    chosen: SmallVec<[Option<VolumeId>; 4]>,
    made: usize,
    /// Of the existing volumes, and of those to be made.
    capacity: i64,
}

struct Tries<'a> {
    binder: &'a VolumeBinder,
    node: NodeId,
    needs: SmallVec<[&'a Need; 4]>,
    candidates: Vec<Vec<Candidate>>,
    /// Claims whose volumes are fixed, and must be provisioned.
    to_make: SmallVec<[&'a Need; 2]>,
    inline: &'a [(Symbol, i64)],
    left: usize,
    best: Option<Way>,
}

impl VolumeBinder {
    /// Another way to serve a pod on a node, if this one would exceed the attach limit of a driver there.
    pub(super) fn attachable<'a>(&'a self, pod: &'a PreparedPod, node: NodeId, plan: &Plan<'a>) -> Option<Plan<'a>> {
        if !self.full.is_limited(node) || !self.exceeds_room(pod, plan, node) {
            return None;
        }
        // The number of candidates is the square of the number of claims. No node attaches that many volumes of one
        // driver.
        let open: usize = pod.open.iter().map(|open| open.needs.len()).sum();
        if open > MAX_TOGETHER {
            return None;
        }
        let is_open = |need: &Need| {
            let mut open = pod.open.iter().flat_map(|open| &open.needs);
            open.any(|other| other.claim == need.claim)
        };
        let mut fixed = Plan::default();
        fixed
            .bindings
            .extend(plan.bindings.iter().copied().filter(|(need, _)| !is_open(need)));
        fixed
            .to_make
            .extend(plan.to_make.iter().copied().filter(|need| !is_open(need)));
        let mut tries = Tries {
            binder: self,
            node,
            needs: SmallVec::new(),
            candidates: Vec::new(),
            to_make: fixed.to_make.clone(),
            inline: &pod.inline,
            left: MAX_LOOKS,
            best: None,
        };
        for open in &pod.open {
            let free = self.free.get(&open.needs.first()?.class)?;
            let groups: SmallVec<[u32; 4]> = free.groups_of(self.places(), node).collect();
            let smallest: Vec<_> = groups
                .iter()
                .map(|group| free.smallest_each(*group, &open.shapes))
                .collect();
            for (index, need) in open.needs.iter().enumerate() {
                let volumes = smallest.iter().filter_map(|each| each.get(index)).flatten();
                let candidates = volumes.filter_map(|volume| {
                    let driver = self.volume(volume.id)?.driver;
                    Some(Candidate {
                        volume: volume.id,
                        driver,
                        capacity: volume.capacity,
                    })
                });
                tries.candidates.push(candidates.collect());
                tries.needs.push(need);
            }
        }
        let mut taken = self.drivers_of(pod, &fixed);
        tries.go_on(&mut Way::default(), &mut taken);
        let way = tries.best?;
        for (need, volume) in tries.needs.iter().zip(way.chosen) {
            fixed.add(need, volume);
        }
        fixed.sort(pod);
        Some(fixed)
    }

    fn exceeds_room(&self, pod: &PreparedPod, plan: &Plan<'_>, node: NodeId) -> bool {
        let drivers = self.drivers_of(pod, plan);
        drivers
            .iter()
            .any(|(driver, count)| *count > self.full.room(*driver, node))
    }

    /// Number of volumes of each driver that a plan uses, including those that the pod's claims are bound to.
    fn drivers_of(&self, pod: &PreparedPod, plan: &Plan<'_>) -> ByDriver {
        let bindings = plan
            .bindings
            .iter()
            .filter_map(|(_, volume)| Some(self.volume(*volume)?.driver));
        let made = plan.to_make.iter().map(|need| self.driver_of(need));
        let mut drivers = ByDriver::new();
        for driver in bindings.chain(made).chain(pod.bound_drivers()) {
            add(&mut drivers, driver, 1);
        }
        drivers
    }

    /// The driver that would provision a volume for a claim.
    fn driver_of(&self, need: &Need) -> Symbol {
        self.classes
            .get(&need.class)
            .map_or(Symbol::EMPTY, |class| class.driver)
    }
}

fn add(drivers: &mut ByDriver, driver: Symbol, count: i64) {
    match drivers.iter_mut().find(|(found, _)| *found == driver) {
        Some((_, found)) => *found += count,
        None => drivers.push((driver, count)),
    }
}

impl Tries<'_> {
    /// Tries all ways to serve the remaining claims.
    fn go_on(&mut self, way: &mut Way, taken: &mut ByDriver) {
        let index = way.chosen.len();
        let is_worse = |best: &Way| (way.made, way.capacity) >= (best.made, best.capacity);
        if self.left == 0 || self.best.as_ref().is_some_and(is_worse) {
            return;
        }
        self.left -= 1;
        let Some(need) = self.needs.get(index).copied() else {
            if self.can_be_made(way) {
                self.best = Some(way.clone());
            }
            return;
        };
        for at in 0..self.candidates[index].len() {
            let Candidate {
                volume,
                driver,
                capacity,
            } = self.candidates[index][at];
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            if !way.chosen.contains(&Some(volume)) && self.has_room(taken, driver) {
                add(taken, driver, 1);
                way.chosen.push(Some(volume));
                way.capacity = way.capacity.saturating_add(capacity);
                self.go_on(way, taken);
                way.capacity = way.capacity.saturating_sub(capacity);
                way.chosen.pop();
                add(taken, driver, -1);
            }
        }
        let driver = self.binder.driver_of(need);
        if need.provision.possible && self.has_room(taken, driver) {
            add(taken, driver, 1);
            way.chosen.push(None);
            way.made += 1;
            way.capacity = way.capacity.saturating_add(need.request);
            self.go_on(way, taken);
            way.capacity = way.capacity.saturating_sub(need.request);
            way.made -= 1;
            way.chosen.pop();
            add(taken, driver, -1);
        }
    }

    fn has_room(&self, taken: &ByDriver, driver: Symbol) -> bool {
        let count = taken
            .iter()
            .find(|(found, _)| *found == driver)
            .map_or(0, |(_, count)| *count);
        count < self.binder.full.room(driver, self.node)
    }

    fn can_be_made(&self, way: &Way) -> bool {
        let chosen = self.needs.iter().zip(&way.chosen);
        let made = chosen.filter(|(_, volume)| volume.is_none()).map(|(need, _)| *need);
        let all: SmallVec<[&Need; 4]> = self.to_make.iter().copied().chain(made).collect();
        self.binder.check_provisions(&all, self.inline, self.node).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Object;
    use crate::binder::PodVolumes;
    use serde_json::{Value, json};

    /// Number of volumes of a driver that a pod with this many claims gets on a node with one attach slot left. Volumes
    /// without a driver are larger.
    fn of_driver(claims: usize) -> usize {
        let volume = |name: String, size: &str, source: (&str, Value)| {
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                   "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
                            source.0: source.1},
                   "status": {"phase": "Available"}})
        };
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
                   "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}),
        ];
        for number in 0..claims {
            let csi = json!({"driver": "csi.example.com", "volumeHandle": number.to_string()});
            objects.push(volume(format!("csi{number}"), "1Gi", ("csi", csi)));
            objects.push(volume(
                format!("local{number}"),
                "2Gi",
                ("local", json!({"path": "/d"})),
            ));
            objects.push(
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": format!("c{number}")},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
                         "resources": {"requests": {"storage": "1Gi"}}}}),
            );
        }
        let mut binder = VolumeBinder::default();
        for object in objects {
            binder.upsert(&Object::decode(&object).unwrap().unwrap());
        }
        let volumes: Vec<Value> = (0..claims)
            .map(|number| json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": format!("c{number}")}}))
            .collect();
        let pod = json!({"metadata": {"name": "db", "namespace": "default"}, "spec": {"volumes": volumes}});
        let pod = PodVolumes::new(binder.symbols_mut(), &serde_json::from_value(pod).unwrap());
        let node = binder.node("n1").unwrap();
        let driver = binder.symbols_mut().intern("csi.example.com");
        binder.set_attach_room(driver, node, Some(1));
        let claims = binder.claims(&pod).unwrap();
        let prepared = binder.prepare(&claims);
        let chosen = binder.on_node(&prepared, node).unwrap().bindings;
        let drivers = chosen
            .iter()
            .filter_map(|(_, volume)| Some(binder.volume(*volume)?.driver));
        drivers.filter(|found| *found == driver).count()
    }

    #[test]
    fn another_way_is_looked_for_by_as_many_claims_as_are_assigned_together() {
        assert_eq!(of_driver(3), 1);
        assert_eq!(of_driver(20), 1);
        assert_eq!(
            of_driver(MAX_TOGETHER + 1),
            MAX_TOGETHER + 1,
            "NodeVolumeLimits says why not"
        );
    }
}
