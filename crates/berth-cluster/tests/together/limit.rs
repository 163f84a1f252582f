//! The maximum number of pods that can be scheduled: by trying everything that could be better than the result, or else by the linear program
//! in which pods can be split among nodes.

/// A node's volumes and its zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    pub(crate) sizes: Vec<u32>,
    pub(crate) zone: usize,
}

/// A pod's claims, its required zone, and its anti-affinity group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) claims: Vec<u32>,
    pub(crate) zone: Option<usize>,
    pub(crate) group: Option<usize>,
}

/// A longer search ends with the bound for pods that can be split, which is no less.
const MOST_STEPS: usize = 300_000;

struct Search<'a> {
    nodes: &'a [Disks],
    pods: &'a [Wants],
    /// By node: the pods there.
    on_node: Vec<Vec<usize>>,
    /// Sizes of claims, and how many more claims of at least that size the volumes can hold.
    room: Vec<(u32, usize)>,
    best: usize,
    steps: usize,
}

/// The maximum number of pods that can be scheduled, given that this many can.
pub(crate) fn limit(nodes: &[Disks], pods: &[Wants], found: usize) -> usize {
    // Those that request the most come first: the others are easy to bound.
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
    if search.bound(0) > found {
        search.place(0, 0);
    }
    if search.steps < MOST_STEPS {
        search.best
    } else {
        split(nodes, &pods)
    }
}

/// Number of pods that can be scheduled if they can be split among nodes. On a node, the claims from a size on need as
/// many volumes.
fn split(nodes: &[Disks], pods: &[Wants]) -> usize {
    let pairs: Vec<(usize, usize)> = (0..nodes.len())
        .flat_map(|node| (0..pods.len()).map(move |pod| (node, pod)))
        .filter(|(node, pod)| pods[*pod].zone.is_none_or(|zone| zone == nodes[*node].zone))
        .filter(|(node, pod)| takes_all(&nodes[*node].sizes, pods[*pod].claims.clone()))
        .collect();
    let row = |room: usize, share: &dyn Fn(&(usize, usize)) -> usize| {
        let shares = pairs.iter().map(|pair| share(pair) as f64);
        shares.chain([room as f64]).collect::<Vec<f64>>()
    };
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for pod in 0..pods.len() {
        rows.push(row(1, &|pair| usize::from(pair.1 == pod)));
    }
    let mut sizes: Vec<u32> = pods.iter().flat_map(|pod| pod.claims.iter().copied()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for (number, node) in nodes.iter().enumerate() {
        for least in &sizes {
            let at_least = |sizes: &[u32]| sizes.iter().filter(|size| *size >= least).count();
            rows.push(row(at_least(&node.sizes), &|(on, pod)| match *on == number {
                true => at_least(&pods[*pod].claims),
                false => 0,
            }));
        }
        for group in 0..3 {
            let is_in = |pod: &Wants| pod.group == Some(group);
            rows.push(row(1, &|(on, pod)| usize::from(*on == number && is_in(&pods[*pod]))));
        }
    }
    rows.retain(|row| row[..pairs.len()].iter().any(|share| *share > 0.0));
    (maximum(rows, pairs.len()) + 1e-6).floor() as usize
}

/// The largest sum of non-negative variables under rows of factors with upper bounds, by the simplex method.
fn maximum(mut rows: Vec<Vec<f64>>, variables: usize) -> f64 {
    let mut gain: Vec<f64> = vec![1.0; variables + 1];
    gain[variables] = 0.0;
    // Only the columns of variables that are 0 are kept: an entering variable takes the column of the leaving one.
    loop {
        let entering = (0..variables)
            .max_by(|a, b| gain[*a].total_cmp(&gain[*b]))
            .filter(|column| gain[*column] > 1e-9);
        let Some(column) = entering else {
            return -gain[variables];
        };
        let limit = |row: &Vec<f64>| row[variables] / row[column];
        let positive = (0..rows.len()).filter(|row| rows[*row][column] > 1e-9);
        let Some(leaving) = positive.min_by(|a, b| limit(&rows[*a]).total_cmp(&limit(&rows[*b]))) else {
            return f64::INFINITY;
        };
        let mut pivot = std::mem::take(&mut rows[leaving]);
        let factor = pivot[column];
        pivot[column] = 1.0;
        pivot.iter_mut().for_each(|value| *value /= factor);
        for row in rows.iter_mut().filter(|row| !row.is_empty()).chain([&mut gain]) {
            let factor = std::mem::take(&mut row[column]);
            if factor != 0.0 {
                row.iter_mut()
                    .zip(&pivot)
                    .for_each(|(value, step)| *value -= factor * step);
            }
        }
        rows[leaving] = pivot;
    }
}

/// Whether volumes can serve all claims at once.
fn takes_all(volumes: &[u32], mut claims: Vec<u32>) -> bool {
    let mut volumes = volumes.to_vec();
    claims.sort_unstable_by(|a, b| b.cmp(a));
    volumes.sort_unstable_by(|a, b| b.cmp(a));
    claims.len() <= volumes.len() && claims.iter().zip(&volumes).all(|(claim, volume)| claim <= volume)
}

impl Search<'_> {
    /// No more of the pods from `next` on can be scheduled.
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
            // Equivalent nodes need not be tried twice.
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
        let all = others().chain([wants]).flat_map(|pod| pod.claims.iter().copied());
        takes_all(&disks.sizes, all.collect())
    }
}
