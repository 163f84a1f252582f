//! How many pods can be placed at most: by trying everything that could be better than what was found.

/// A node's volumes and its zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    pub(crate) sizes: Vec<u32>,
    pub(crate) zone: usize,
}

/// A pod's claims, the zone that it must be in, and the group whose other members it keeps away from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) claims: Vec<u32>,
    pub(crate) zone: Option<usize>,
    pub(crate) group: Option<usize>,
}

/// A search that takes longer ends with what the volumes of all nodes together would hold, which is no less.
const MOST_STEPS: usize = 300_000;

struct Search<'a> {
    nodes: &'a [Disks],
    pods: &'a [Wants],
    /// By node: the pods there.
    on_node: Vec<Vec<usize>>,
    /// Sizes of claims, and how many more claims of at least that size the volumes hold.
    room: Vec<(u32, usize)>,
    best: usize,
    steps: usize,
}

/// The most pods that can be placed, given that so many can.
pub(crate) fn limit(nodes: &[Disks], pods: &[Wants], found: usize) -> usize {
    // Those that ask for the most come first: the others are easy to bound.
    let mut pods = pods.to_vec();
    pods.sort_by_key(|pod| std::cmp::Reverse((pod.claims.len(), pod.claims.iter().copied().max())));
    let mut sizes: Vec<u32> = pods.iter().flat_map(|pod| pod.claims.iter().copied()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let volumes = || nodes.iter().flat_map(|node| &node.sizes);
    let room = |least: u32| (least, volumes().filter(|size| **size >= least).count());
    let mut search = Search {
        nodes,
        on_node: vec![Vec::new(); nodes.len()],
        room: sizes.into_iter().map(room).collect(),
        pods: &pods,
        best: found,
        steps: 0,
    };
    let bound = search.bound(0);
    search.place(0, 0);
    if search.steps < MOST_STEPS { search.best } else { bound }
}

impl Search<'_> {
    /// No more of the pods from `next` on can be placed.
    fn bound(&self, next: usize) -> usize {
        let of_size = |(least, room): &(u32, usize)| {
            let count = |pod: &Wants| pod.claims.iter().filter(|size| *size >= least).count();
            let mut claims: Vec<usize> = self.pods[next..].iter().map(count).collect();
            claims.sort_unstable();
            let mut left = *room;
            let fits = |claims: &usize| {
                let fits = *claims <= left;
                left = left.saturating_sub(*claims);
                fits
            };
            claims.into_iter().take_while(fits).count()
        };
        let by_size = self.room.iter().map(of_size).min();
        by_size.unwrap_or(self.pods.len() - next)
    }

    fn place(&mut self, next: usize, placed: usize) {
        self.best = self.best.max(placed);
        self.steps += 1;
        if next == self.pods.len() || self.steps >= MOST_STEPS || placed + self.bound(next) <= self.best {
            return;
        }
        let mut tried: Vec<(&Disks, Vec<usize>)> = Vec::new();
        for node in 0..self.nodes.len() {
            // Nodes that are alike need not be tried twice.
            let like = (&self.nodes[node], self.on_node[node].clone());
            let is_new = tried.iter().all(|(disks, pods)| {
                (&disks.sizes, disks.zone, pods) != (&like.0.sizes, like.0.zone, &like.1) || !pods.is_empty()
            });
            if !is_new || !self.takes(node, next) {
                continue;
            }
            tried.push(like);
            self.count(next, node, true);
            self.place(next + 1, placed + 1);
            self.count(next, node, false);
        }
        self.place(next + 1, placed);
    }

    fn count(&mut self, pod: usize, node: usize, on: bool) {
        if on {
            self.on_node[node].push(pod);
        } else {
            self.on_node[node].pop();
        }
        for (least, room) in &mut self.room {
            let claims = self.pods[pod].claims.iter().filter(|size| *size >= least).count();
            *room = if on { *room - claims } else { *room + claims };
        }
    }

    fn takes(&self, node: usize, pod: usize) -> bool {
        let (disks, wants) = (&self.nodes[node], &self.pods[pod]);
        let others = || self.on_node[node].iter().map(|other| &self.pods[*other]);
        let alike = |other: &Wants| wants.group.is_some() && other.group == wants.group;
        if wants.zone.is_some_and(|zone| zone != disks.zone) || others().any(alike) {
            return false;
        }
        let mut claims: Vec<u32> = others()
            .chain([wants])
            .flat_map(|pod| pod.claims.iter().copied())
            .collect();
        let mut sizes = disks.sizes.clone();
        claims.sort_unstable_by(|a, b| b.cmp(a));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        claims.len() <= sizes.len() && claims.iter().zip(&sizes).all(|(claim, size)| claim <= size)
    }
}
