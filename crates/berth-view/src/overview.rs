//! The cluster summed up: zones, racks and nodes with what is requested and free, and the pods that wait. For those who show a
//! cluster as lines and not as a map.

use crate::rows::{Amount, ClaimRow, PodRow, VolumeRow};
use crate::tables::State;
use berth_cluster::simulation::VolumePlace;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Volumes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// What claims ask for of the volumes that they have.
    pub asked: i64,
    /// The size of volumes that claims have, or that are reserved for one.
    pub used: i64,
    /// The size of free volumes.
    pub free: i64,
    /// How many volumes are free.
    pub free_volumes: usize,
}

impl Storage {
    /// The size of all volumes.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.used.saturating_add(self.free)
    }

    fn add(&mut self, other: &Self) {
        self.asked = self.asked.saturating_add(other.asked);
        self.used = self.used.saturating_add(other.used);
        self.free = self.free.saturating_add(other.free);
        self.free_volumes += other.free_volumes;
    }
}

/// What there is in one place, and what is requested of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Nodes.
    pub nodes: usize,
    /// Nodes that are ready.
    pub ready: usize,
    /// Nodes that take no new pods.
    pub cordoned: usize,
    /// Pods that hold resources.
    pub pods: i64,
    /// Processor time in thousandths.
    pub cpu: Amount,
    /// Memory in bytes.
    pub memory: Amount,
    /// Volumes that can be used in this place alone.
    pub volumes: Storage,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        self.ready += other.ready;
        self.cordoned += other.cordoned;
        self.pods = self.pods.saturating_add(other.pods);
        for (mine, others) in [(&mut self.cpu, other.cpu), (&mut self.memory, other.memory)] {
            mine.requested = mine.requested.saturating_add(others.requested);
            mine.allocatable = mine.allocatable.saturating_add(others.allocatable);
        }
        self.volumes.add(&other.volumes);
    }
}

/// A zone: its racks, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// What its nodes and volumes add up to.
    pub sum: Sum,
    /// Its racks; nodes without one are in that without a name.
    pub racks: BTreeMap<String, Rack>,
}

/// A rack: its nodes, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rack {
    /// What its nodes and volumes add up to.
    pub sum: Sum,
    /// Each node.
    pub nodes: BTreeMap<String, Sum>,
}

/// A pod that waits for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPod {
    /// `namespace/name`
    pub name: String,
    /// When it was made, as the object says it.
    pub created: String,
    /// Why it has no node, in the scheduler's words.
    pub reason: String,
}

/// The cluster summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Zones by name; nodes without one are in that without a name.
    pub zones: BTreeMap<String, Zone>,
    /// Volumes that belong to no single node, rack or zone.
    pub shared: Storage,
    /// Everything together.
    pub total: Sum,
    /// Pods that have a node and are not over.
    pub placed: usize,
    /// Pods that have a node and do not run: not started, or failed with no owner that replaces them.
    pub not_running: usize,
    /// Claims, and how many of them are bound.
    pub claims: (usize, usize),
    /// Pods that wait, those with the most frequent reason first.
    pub waiting: Vec<WaitingPod>,
}

impl Overview {
    /// Sums up.
    ///
    /// ```
    /// use berth_view::{Model, Overview};
    /// use serde_json::json;
    ///
    /// let mut model = Model::default();
    /// model.apply(&json!({"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "2"}}}), 0);
    /// let overview = Overview::of(model.state());
    /// assert_eq!(overview.zones[""].racks[""].nodes["n1"].cpu.allocatable, 2000);
    /// assert_eq!(overview.total.nodes, 1);
    /// ```
    #[must_use]
    pub fn of(state: &State) -> Self {
        let mut overview = Self {
            placed: state.pods.values().filter(|pod| pod.holds().is_some()).count(),
            not_running: state.pods.values().filter(|pod| pod.is_stopped()).count(),
            claims: (
                state.claims.len(),
                state.claims.values().filter(|claim| claim.phase == "Bound").count(),
            ),
            waiting: waiting(state),
            ..Self::default()
        };
        for (name, row) in &state.nodes {
            let sum = Sum {
                nodes: 1,
                ready: usize::from(row.ready),
                cordoned: usize::from(row.cordoned),
                pods: row.pods.requested,
                cpu: row.cpu,
                memory: row.memory,
                volumes: Storage::default(),
            };
            let rack = overview.rack(&row.zone, &row.rack);
            rack.nodes.insert(name.clone(), sum);
        }
        let claims = state.claims.values().map(|claim| (claim.volume.as_str(), &**claim));
        let claims: BTreeMap<&str, &ClaimRow> = claims.collect();
        for (name, row) in &state.volumes {
            let storage = storage(row, claims.get(name.as_str()).copied());
            overview.storage_at(state, &row.place).add(&storage);
        }
        overview.add_up();
        overview
    }

    fn rack(&mut self, zone: &str, rack: &str) -> &mut Rack {
        let zone = self.zones.entry(zone.to_owned()).or_default();
        zone.racks.entry(rack.to_owned()).or_default()
    }

    /// Where the volumes of a place count.
    fn storage_at(&mut self, state: &State, place: &VolumePlace) -> &mut Storage {
        let (node, zone, rack) = (only(&place.nodes), only(&place.zones), only(&place.racks));
        match (node.and_then(|node| Some((node, state.nodes.get(node)?))), zone, rack) {
            (Some((node, row)), _, _) => {
                let nodes = &mut self.rack(&row.zone, &row.rack).nodes;
                &mut nodes.entry(node.clone()).or_default().volumes
            }
            // Several nodes, or one that is gone.
            (None, _, _) if !place.nodes.is_empty() => &mut self.shared,
            (None, Some(zone), Some(rack)) => &mut self.rack(zone, rack).sum.volumes,
            (None, Some(zone), None) => &mut self.zones.entry(zone.clone()).or_default().sum.volumes,
            (None, None, _) => &mut self.shared,
        }
    }

    fn add_up(&mut self) {
        self.total.volumes = self.shared;
        for zone in self.zones.values_mut() {
            for rack in zone.racks.values_mut() {
                for node in rack.nodes.values() {
                    rack.sum.add(node);
                }
                zone.sum.add(&rack.sum);
            }
            self.total.add(&zone.sum);
        }
    }
}

/// The one name of a set that has just one.
fn only(names: &BTreeSet<String>) -> Option<&String> {
    names.first().filter(|_| names.len() == 1)
}

/// A volume, with what its claim asks for.
fn storage(row: &VolumeRow, claim: Option<&ClaimRow>) -> Storage {
    match (claim, row.claim.as_str()) {
        (None, "") => Storage {
            free: row.capacity,
            free_volumes: 1,
            ..Storage::default()
        },
        (claim, _) => Storage {
            asked: claim.map_or(0, |claim| claim.requested),
            used: row.capacity,
            ..Storage::default()
        },
    }
}

/// The pods that wait, those with the most frequent reason first.
fn waiting(state: &State) -> Vec<WaitingPod> {
    let rows = state.pods.iter().filter(|(_, row)| row.is_waiting());
    let mut pods: Vec<WaitingPod> = rows
        .map(|(name, row)| WaitingPod {
            name: name.clone(),
            created: row.created.clone(),
            reason: reason(state, row),
        })
        .collect();
    let mut frequency: BTreeMap<String, usize> = BTreeMap::new();
    for pod in &pods {
        *frequency.entry(pod.reason.clone()).or_default() += 1;
    }
    let frequency_of = |pod: &WaitingPod| Reverse(frequency.get(&pod.reason).copied().unwrap_or_default());
    pods.sort_by(|a, b| (frequency_of(a), &a.reason, &a.name).cmp(&(frequency_of(b), &b.reason, &b.name)));
    pods
}

fn reason(state: &State, pod: &PodRow) -> String {
    let unknown = pod.claims.iter().find(|claim| !state.claims.contains_key(*claim));
    match (pod.message.as_str(), pod.nominated.as_str(), unknown) {
        ("", "", None) => "not tried yet".to_owned(),
        ("", "", Some(claim)) => format!("waiting for claim {claim}"),
        ("", node, _) => format!("waiting for {node}"),
        (message, _, _) => message.to_owned(),
    }
}
