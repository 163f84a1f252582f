//! An assignment of the pods of a sketch to its nodes, which changes pod by pod.

use super::sketch::{Sketch, Stored, store};
use super::trial::Value;
use smallvec::SmallVec;

/// Which pod is on which node.
#[derive(Debug)]
pub(super) struct Board<'s> {
    pub(super) sketch: &'s Sketch,
    levels: &'s [usize],
    places: Vec<Option<usize>>,
    nodes: Vec<Used>,
    value: Value,
    /// Number of placements checked.
    pub(super) checks: usize,
    /// Which volumes of a node are taken, and the claims there: kept to save allocations.
    taken: Vec<bool>,
    claims: Vec<(i64, usize)>,
}

/// What pods use of a node.
#[derive(Clone, Debug, Default)]
struct Used {
    pods: Vec<usize>,
    free: SmallVec<[i64; 4]>,
    claims: Vec<(i64, usize)>,
    stored: Stored,
}

impl<'s> Board<'s> {
    /// A board without pods. Each pod has a level: the number of higher priorities.
    pub(super) fn new(sketch: &'s Sketch, levels: &'s [usize], level_count: usize) -> Self {
        let used = |node: &super::sketch::SketchNode| Used {
            free: node.free.clone(),
            ..Used::default()
        };
        Self {
            levels,
            places: vec![None; sketch.pods.len()],
            nodes: sketch.nodes.iter().map(used).collect(),
            value: Value {
                by_level: vec![0; level_count],
                new_volumes: 0,
                waste: 0,
            },
            checks: 0,
            taken: Vec::new(),
            claims: Vec::new(),
            sketch,
        }
    }

    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    pub(super) fn level(&self, pod: usize) -> usize {
        self.levels[pod]
    }

    pub(super) fn place(&self, pod: usize) -> Option<usize> {
        self.places[pod]
    }

    pub(super) fn places(&self) -> Vec<Option<usize>> {
        self.places.clone()
    }

    pub(super) fn pods_on(&self, node: usize) -> &[usize] {
        &self.nodes[node].pods
    }

    pub(super) fn waste_on(&self, node: usize) -> i64 {
        self.nodes[node].stored.waste
    }

    /// The share of a node that is free: the sum over its resources.
    pub(super) fn room(&self, node: usize) -> f64 {
        let all = &self.sketch.nodes[node].free;
        let share = |(free, all): (&i64, &i64)| *free as f64 / (*all as f64).max(1.0);
        self.nodes[node].free.iter().zip(all).map(share).sum()
    }

    /// What the claims on a node take with a pod there in addition to now. `None` if the pod does not fit.
    pub(super) fn check(&mut self, pod: usize, node: usize) -> Option<Stored> {
        self.checks += 1;
        let asks = &self.sketch.pods[pod];
        let used = &self.nodes[node];
        let lacks = |(takes, free): (&i64, &i64)| *takes > 0 && takes > free;
        if asks.takes.iter().zip(&used.free).any(lacks) || self.meets_another(pod, node) {
            return None;
        }
        if asks.claims.is_empty() {
            return Some(Stored::default());
        }
        self.claims.clear();
        self.claims.extend_from_slice(&used.claims);
        self.claims.extend_from_slice(&asks.claims);
        self.claims.sort_unstable();
        let volumes = &self.sketch.nodes[node].volumes;
        let stored = store(&self.claims, volumes, &self.sketch.provisioned, &mut self.taken)?;
        Some(Stored {
            new_volumes: stored.new_volumes.saturating_sub(used.stored.new_volumes),
            waste: stored.waste - used.stored.waste,
        })
    }

    fn meets_another(&self, pod: usize, node: usize) -> bool {
        self.sketch.pods[pod].apart.iter().any(|(other, key)| {
            let domains = &self.sketch.domains[*key];
            let there = self.places[*other].and_then(|there| domains[there]);
            there.is_some() && there == domains[node]
        })
    }

    /// Places a pod that [`Self::check`] has found to fit.
    pub(super) fn put(&mut self, pod: usize, node: usize) {
        let asks = &self.sketch.pods[pod];
        let used = &mut self.nodes[node];
        used.pods.push(pod);
        used.free
            .iter_mut()
            .zip(&asks.takes)
            .for_each(|(free, takes)| *free -= takes);
        used.claims.extend_from_slice(&asks.claims);
        self.places[pod] = Some(node);
        self.value.by_level[self.levels[pod]] += 1;
        self.store_anew(node, !asks.claims.is_empty());
    }

    /// Removes a pod from its node.
    pub(super) fn lift(&mut self, pod: usize) -> Option<usize> {
        let node = self.places[pod].take()?;
        let asks = &self.sketch.pods[pod];
        let used = &mut self.nodes[node];
        used.pods.retain(|other| *other != pod);
        used.free
            .iter_mut()
            .zip(&asks.takes)
            .for_each(|(free, takes)| *free += takes);
        for claim in &asks.claims {
            if let Some(place) = used.claims.iter().position(|other| other == claim) {
                used.claims.remove(place);
            }
        }
        self.value.by_level[self.levels[pod]] -= 1;
        self.store_anew(node, !asks.claims.is_empty());
        Some(node)
    }

    /// Assigns the claims on a node to its volumes.
    fn store_anew(&mut self, node: usize, is_changed: bool) {
        if !is_changed {
            return;
        }
        let used = &mut self.nodes[node];
        used.claims.sort_unstable();
        let volumes = &self.sketch.nodes[node].volumes;
        let stored = store(&used.claims, volumes, &self.sketch.provisioned, &mut self.taken).unwrap_or_default();
        self.value.new_volumes = self.value.new_volumes + stored.new_volumes - used.stored.new_volumes;
        self.value.waste += stored.waste - used.stored.waste;
        used.stored = stored;
    }

    /// Places pods exactly so, as far as they fit.
    pub(super) fn arrange(&mut self, places: &[Option<usize>]) {
        (0..places.len()).for_each(|pod| {
            self.lift(pod);
        });
        for (pod, node) in places.iter().enumerate() {
            if let Some(node) = node
                && self.check(pod, *node).is_some()
            {
                self.put(pod, *node);
            }
        }
    }
}
