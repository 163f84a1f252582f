//! What a shelf says about a node equals what a joint assignment of all volumes that the node can use finds.

use super::*;
use crate::api;
use crate::assign::assign;
use crate::model::{AccessModes, Volume, VolumeId, VolumeMode, volume_without_selectors};
use crate::node_selector::NodeSelector;
use crate::nodes::Nodes;
use crate::places::FullNodes;
use crate::slots::Slots;
use crate::symbols::Symbols;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

/// More nodes than have a place in one word of a mask.
const NODES: usize = 70;

/// Where a volume can be used.
#[derive(Clone, Copy, Debug)]
enum Reach {
    Node(usize),
    Rack(usize),
    Everywhere,
}

#[derive(Clone, Debug)]
enum Step {
    /// A node is added, or moves to another rack.
    Node(usize, usize),
    NodeGone(usize),
    Volume {
        reach: Reach,
        size: i64,
        mode: &'static str,
    },
    VolumeGone(Index),
    /// A driver is full on a node, or has room.
    Full(usize, bool),
    /// Claims: request and access mode.
    Ask(Vec<(i64, &'static str)>),
}

fn mode() -> impl Strategy<Value = &'static str> {
    prop_oneof![5 => Just("ReadWriteOnce"), 1 => Just("ReadWriteMany")]
}

fn step() -> impl Strategy<Value = Step> {
    let reach = prop_oneof![
        20 => (0..NODES).prop_map(Reach::Node),
        1 => (0..3_usize).prop_map(Reach::Rack),
        1 => Just(Reach::Everywhere),
    ];
    // Most sizes recur, and some do not: more than eight on a node, or more than 255 in all, are too many.
    let size = prop_oneof![6 => 1..5_i64, 1 => 1..2000_i64];
    prop_oneof![
        4 => (0..NODES, 0..3_usize).prop_map(|(node, rack)| Step::Node(node, rack)),
        1 => (0..NODES).prop_map(Step::NodeGone),
        12 => (reach, size, mode()).prop_map(|(reach, size, mode)| Step::Volume { reach, size, mode }),
        3 => any::<Index>().prop_map(Step::VolumeGone),
        1 => (0..NODES, any::<bool>()).prop_map(|(node, full)| Step::Full(node, full)),
        4 => proptest::collection::vec((1..6_i64, mode()), 1..5).prop_map(Step::Ask),
    ]
}

struct World {
    symbols: Symbols,
    nodes: Nodes,
    full: FullNodes,
    volumes: Slots<Volume>,
    there: Vec<VolumeId>,
    free: FreeVolumes,
    shelf: Shelf,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            symbols: Symbols::default(),
            nodes: Nodes::default(),
            full: FullNodes::default(),
            volumes: Slots::default(),
            there: Vec::new(),
            free: FreeVolumes::default(),
            shelf: Shelf::default(),
        };
        (0..NODES).for_each(|node| world.add_node(node, node % 3));
        world
    }

    fn add_node(&mut self, node: usize, rack: usize) {
        let labels = [("name", format!("n{node}")), ("rack", rack.to_string())];
        let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
        self.nodes.upsert(&mut self.symbols, &format!("n{node}"), &labels);
    }

    fn add_volume(&mut self, reach: Reach, size: i64, mode: &str) {
        let object = json!({"metadata": {"name": format!("pv{}", self.there.len())}, "status": {"phase": "Available"},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", mode]}});
        let object: api::PersistentVolume = serde_json::from_value(object).unwrap();
        let mut volume = volume_without_selectors(&mut self.symbols, &object);
        volume.driver = self.symbols.intern("disk.example.com");
        let label = match reach {
            Reach::Node(node) => Some(("name", format!("n{node}"))),
            Reach::Rack(rack) => Some(("rack", rack.to_string())),
            Reach::Everywhere => None,
        };
        if let Some((key, value)) = label {
            let selector = NodeSelector::with_labels(&mut self.symbols, &[(key.to_owned(), value)].into());
            volume.affinity = self.nodes.acquire(&self.symbols, &selector);
        }
        let id = VolumeId(self.volumes.insert(volume.clone()));
        self.there.push(id);
        self.free.insert(id, &volume);
    }

    fn remove_volume(&mut self, index: &Index) {
        if self.there.is_empty() {
            return;
        }
        let id = self.there.swap_remove(index.index(self.there.len()));
        if let Some(volume) = self.volumes.remove(id.0) {
            self.free.remove(id, &volume);
        }
    }

    fn set_full(&mut self, node: usize, full: bool) {
        let name = self.symbols.intern(&format!("n{node}"));
        let driver = self.symbols.intern("disk.example.com");
        if let Some(node) = self.nodes.id(name) {
            self.full.set(driver, node, full.then_some(0));
        }
    }

    fn shapes(&mut self, claims: &[(i64, &str)]) -> Vec<ClaimShape> {
        let none = self.symbols.intern("");
        let shape = |(request, mode): &(i64, &str)| ClaimShape {
            request: *request,
            access_modes: AccessModes::new(&[(*mode).to_owned()]),
            volume_mode: VolumeMode::Filesystem,
            attributes_class: none,
            selector: None,
        };
        let mut shapes: Vec<_> = claims.iter().map(shape).collect();
        shapes.sort_by_key(|shape| shape.request);
        shapes
    }

    /// The percentage that a joint assignment of all volumes in reach gives.
    fn expected(&self, node: NodeId, shapes: &[ClaimShape]) -> u8 {
        let mut volumes: Vec<&Volume> = self
            .there
            .iter()
            .filter_map(|id| self.volumes.get(id.0))
            .filter(|volume| self.nodes.matching(volume.affinity).contains(node.0))
            .filter(|volume| !self.full.contains(volume.driver, node))
            .collect();
        volumes.sort_by_key(|volume| volume.capacity);
        let suits = |shape: &ClaimShape, volume: &Volume| {
            volume.capacity >= shape.request
                && shape.suits(volume.access_modes, volume.volume_mode, volume.attributes_class)
        };
        let candidates: Vec<Vec<usize>> = shapes
            .iter()
            .map(|shape| (0..volumes.len()).filter(|at| suits(shape, volumes[*at])).collect())
            .collect();
        let assigned = assign(volumes.len(), &candidates);
        let capacity: Option<i64> = assigned.iter().map(|at| at.map(|at| volumes[at].capacity)).sum();
        let requested = shapes.iter().map(|shape| shape.request).sum();
        capacity.map_or(NOT_ALL, |capacity| utilization(requested, capacity))
    }

    /// Compares all nodes, and returns how many of them the shelf knows.
    fn check(&mut self, shapes: &[ClaimShape]) -> Result<usize, TestCaseError> {
        let places = Places {
            nodes: &self.nodes,
            full: &self.full,
        };
        self.shelf.refresh(&self.free, places);
        let fits = self.shelf.fits(shapes);
        let mut known = 0;
        for node in self.nodes.ids() {
            if let Some(percent) = fits.percent(node) {
                known += 1;
                prop_assert_eq!(percent, self.expected(node, shapes), "{:?} {:?}", node, shapes);
            }
        }
        Ok(known)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_shelf_agrees_with_a_joint_assignment(steps in proptest::collection::vec(step(), 1..400)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Node(node, rack) => world.add_node(node, rack),
                Step::NodeGone(node) => {
                    world.nodes.remove(&world.symbols, &format!("n{node}"));
                }
                Step::Volume { reach, size, mode } => world.add_volume(reach, size, mode),
                Step::VolumeGone(index) => world.remove_volume(&index),
                Step::Full(node, full) => world.set_full(node, full),
                Step::Ask(claims) => {
                    let shapes = world.shapes(&claims);
                    world.check(&shapes)?;
                }
            }
        }
    }
}

/// The comparison would pass if the shelf never answered.
#[test]
fn a_shelf_knows_nodes_with_volumes_of_their_own() {
    let mut world = World::new();
    for node in 0..NODES {
        (0..3).for_each(|disk| world.add_volume(Reach::Node(node), 1 + disk, "ReadWriteOnce"));
    }
    let shapes = world.shapes(&[(1, "ReadWriteOnce"), (3, "ReadWriteOnce")]);
    assert_eq!(world.check(&shapes).unwrap(), NODES);
    // A ninth size is one too many.
    (0..6).for_each(|disk| world.add_volume(Reach::Node(0), 10 + disk, "ReadWriteOnce"));
    assert_eq!(world.check(&shapes).unwrap(), NODES - 1);
    world.add_volume(Reach::Rack(1), 5, "ReadWriteOnce");
    let in_rack = (0..NODES).filter(|node| node % 3 == 1).count();
    assert_eq!(world.check(&shapes).unwrap(), NODES - 1 - in_rack);
}
