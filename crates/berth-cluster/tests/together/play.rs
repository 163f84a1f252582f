//! Plays a cluster and counts the results.

use berth_cluster::simulation::{Options, Simulation};
use berth_core::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The result for a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Result {
    /// Number of pods with a node, by priority from the highest.
    pub(crate) by_priority: Vec<usize>,
    /// Total request of the bound claims, in bytes.
    pub(crate) asked: i64,
    /// Total size of their volumes.
    pub(crate) taken: i64,
}

impl Result {
    pub(crate) fn placed(&self) -> usize {
        self.by_priority.iter().sum()
    }

    /// Bytes taken per requested byte.
    pub(crate) fn ratio(&self) -> f64 {
        self.taken as f64 / self.asked.max(1) as f64
    }
}

impl AddAssign for Result {
    fn add_assign(&mut self, other: Self) {
        self.by_priority
            .resize(self.by_priority.len().max(other.by_priority.len()), 0);
        for (sum, placed) in self.by_priority.iter_mut().zip(other.by_priority) {
            *sum += placed;
        }
        self.asked += other.asked;
        self.taken += other.taken;
    }
}

fn bytes(object: &Value, pointer: &str) -> i64 {
    let text = object.pointer(pointer).and_then(Value::as_str).expect("a size");
    text.parse::<Quantity>().expect("a quantity").value()
}

/// Plays a cluster until nothing changes.
pub(crate) fn play(objects: &[Value], tries_per_pod: usize) -> Result {
    let mut options = Options::default();
    options.settings.together.tries_per_pod = tries_per_pod;
    let mut simulation = Simulation::new(options);
    for object in objects {
        simulation.create(object.clone()).expect("a new object");
    }
    simulation.run(&mut |_| {});
    let objects = simulation.objects();
    let mut by_priority: BTreeMap<i64, usize> = BTreeMap::new();
    for pod in objects.of_kind("Pod") {
        let placed = by_priority
            .entry(-pod["spec"]["priority"].as_i64().unwrap_or(0))
            .or_default();
        *placed += usize::from(pod["spec"]["nodeName"].is_string());
    }
    let mut result = Result {
        by_priority: by_priority.into_values().collect(),
        ..Result::default()
    };
    let capacities: BTreeMap<&str, i64> = objects
        .of_kind("PersistentVolume")
        .map(|volume| {
            let name = volume["metadata"]["name"].as_str().expect("a name");
            (name, bytes(volume, "/spec/capacity/storage"))
        })
        .collect();
    for claim in objects.of_kind("PersistentVolumeClaim") {
        if let Some(capacity) = claim["spec"]["volumeName"]
            .as_str()
            .and_then(|name| capacities.get(name))
        {
            result.asked += bytes(claim, "/spec/resources/requests/storage");
            result.taken += capacity;
        }
    }
    result
}
