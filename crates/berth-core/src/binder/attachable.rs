//! Volumes for a pod that can be attached together.
//!
//! Claims get existing volumes so that the least capacity is taken, whichever drivers those are of. A node may have room for fewer volumes of one
//! driver than that takes, and for others of another driver. Then all ways are tried: as many existing volumes as possible, and of those ways
//! the one that takes the least capacity. If there is none, the pod keeps what it would have got, and NodeVolumeLimits says why it cannot
//! have it.

use super::VolumeBinder;
use super::find::PreparedPod;
use super::provision::{Need, Plan};
use crate::model::VolumeId;
use crate::nodes::NodeId;
use crate::symbols::Symbol;
use smallvec::SmallVec;

/// How many ways are tried on a node. Three claims and two drivers take a few dozen; a pod with more than this many gets what it
/// would have got without limits.
const MAX_TRIES: usize = 10_000;

/// How many volumes of each driver there are, or may be. A cluster has few drivers.
type ByDriver = SmallVec<[(Symbol, i64); 2]>;

/// How much of an existing volume a claim could take.
struct Candidate {
    volume: VolumeId,
    driver: Symbol,
    capacity: i64,
}

/// One way to serve the open claims: a volume for each, or none for those for which one is made.
#[derive(Clone, Default)]
struct Way {
    chosen: SmallVec<[Option<VolumeId>; 4]>,
    made: usize,
    capacity: i64,
}

struct Tries<'a> {
    binder: &'a VolumeBinder,
    node: NodeId,
    needs: SmallVec<[&'a Need; 4]>,
    candidates: Vec<Vec<Candidate>>,
    /// Claims whose volumes do not change, and have to be made.
    to_make: SmallVec<[&'a Need; 2]>,
    inline: &'a [(Symbol, i64)],
    left: usize,
    best: Option<Way>,
}

impl VolumeBinder {
    /// Another way to serve a pod on a node, if too many volumes of one driver would be attached there this way.
    pub(super) fn attachable<'a>(&'a self, pod: &'a PreparedPod, node: NodeId, plan: &Plan<'a>) -> Option<Plan<'a>> {
        if !self.full.is_limited(node) || !self.exceeds_room(pod, plan, node) {
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
            left: MAX_TRIES,
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

    /// How many volumes of each driver a plan takes, with those that the pod's claims are bound to.
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

    /// The driver that would make a volume for a claim.
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
    /// Tries all ways to serve the claims that are left.
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
            self.go_on(way, taken);
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
