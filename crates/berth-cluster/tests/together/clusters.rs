//! Random clusters in which not all pods can be scheduled, from a seed.

use crate::limit::{Disks, Wants};
use berth_core::names::{HOSTNAME, ZONE};
use berth_testing::{Manifest, claim, local_class, node, pod, volume};
use serde_json::{Value, json};
use std::ops::Range;

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.below(2);
        random
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn between(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.len())
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

const VOLUME_SIZES: [u32; 6] = [10, 20, 50, 100, 200, 500];
const CLAIM_SIZES: [u32; 6] = [8, 15, 40, 80, 150, 400];
const ZONES: [&str; 3] = ["a", "b", "c"];

/// A cluster of local volumes.
pub(crate) struct Crowd {
    pub(crate) nodes: Vec<Disks>,
    pub(crate) pods: Vec<Wants>,
}

impl Crowd {
    /// Nodes with one to six local volumes each, and pods with one to three claims. Some pods require a zone, some have
    /// anti-affinity.
    pub(crate) fn new(seed: u64, nodes: Range<usize>, pods: Range<usize>) -> Self {
        let mut random = Random::new(seed);
        let nodes: Vec<Disks> = (0..random.between(nodes))
            .map(|number| Disks {
                sizes: (0..random.between(1..7))
                    .map(|_| random.one_of(&VOLUME_SIZES))
                    .collect(),
                zone: number % ZONES.len(),
            })
            .collect();
        let pods = (0..random.between(pods)).map(|_| {
            let claims = (0..random.between(1..4)).map(|_| random.one_of(&CLAIM_SIZES)).collect();
            let (mut zone, mut group) = (None, None);
            match random.below(5) {
                0 => zone = Some(random.below(ZONES.len())),
                1 => group = Some(random.below(3)),
                _ => {}
            }
            Wants { claims, zone, group }
        });
        Self {
            pods: pods.collect(),
            nodes,
        }
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        let mut objects = vec![local_class()];
        for (number, disks) in self.nodes.iter().enumerate() {
            let name = format!("n{number}");
            let node = node(&name).zone(ZONES[disks.zone]);
            objects.push(node.allocatable("cpu", "64").allocatable("memory", "256Gi"));
            for (disk, size) in disks.sizes.iter().enumerate() {
                objects.push(volume(&format!("{name}-{disk}"), "local", *size).on(&name));
            }
        }
        for (number, wants) in self.pods.iter().enumerate() {
            objects.extend(pod_with_claims(&format!("p{number:02}"), wants));
        }
        objects
    }
}

/// A pod and its claims.
fn pod_with_claims(name: &str, wants: &Wants) -> Vec<Value> {
    let names: Vec<String> = (0..wants.claims.len()).map(|claim| format!("{name}-{claim}")).collect();
    let claims = names.iter().zip(&wants.claims);
    let mut objects: Vec<Value> = claims.map(|(name, size)| claim(name, "local", *size)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut pod = pod(name, &names).requests("cpu", "100m");
    if let Some(zone) = wants.zone {
        pod = pod.with("/spec/nodeSelector", json!({ZONE: ZONES[zone]}));
    }
    if let Some(group) = wants.group {
        let group = format!("g{group}");
        let term = json!({"labelSelector": {"matchLabels": {"group": group}}, "topologyKey": HOSTNAME});
        let pointer = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        pod = pod.label("group", &group).with(pointer, json!([term]));
    }
    objects.push(pod);
    objects
}

/// Nodes and pods that request 90 to 105 percent of their CPU and memory, with four priorities.
pub(crate) struct FullNodes {
    nodes: usize,
    pods: Vec<Asks>,
}

/// What a pod requests.
struct Asks {
    cpu_milli: usize,
    memory_mi: usize,
    priority: i32,
}

const NODE_CPU_MILLI: usize = 8000;
const NODE_MEMORY_MI: usize = 32 * 1024;

impl FullNodes {
    /// Some or all of 4, 8, 16 and 32 nodes.
    pub(crate) fn new(seed: u64, doublings: usize) -> Self {
        let mut random = Random::new(seed);
        let nodes = 4 << random.below(doublings);
        let percent = random.between(90..106);
        let (mut cpu_left, mut memory_left) = (
            nodes * NODE_CPU_MILLI * percent / 100,
            nodes * NODE_MEMORY_MI * percent / 100,
        );
        let mut pods = Vec::new();
        loop {
            let asks = Asks {
                cpu_milli: 100 * random.between(1..41),
                memory_mi: 128 * random.between(1..121),
                priority: random.one_of(&[0, 1, 2, 3]),
            };
            if asks.cpu_milli > cpu_left || asks.memory_mi > memory_left {
                return Self { nodes, pods };
            }
            cpu_left -= asks.cpu_milli;
            memory_left -= asks.memory_mi;
            pods.push(asks);
        }
    }

    pub(crate) fn pods(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        let node = |number: usize| {
            let node = node(&format!("n{number}")).allocatable("cpu", format!("{NODE_CPU_MILLI}m"));
            node.allocatable("memory", format!("{NODE_MEMORY_MI}Mi"))
        };
        let pod = |(number, asks): (usize, &Asks)| {
            pod(&format!("p{number:03}"), &[])
                .requests("cpu", format!("{}m", asks.cpu_milli))
                .requests("memory", format!("{}Mi", asks.memory_mi))
                .priority(asks.priority)
                // Pods that can preempt others get room in the end, one by one or not.
                .with("/spec/preemptionPolicy", "Never")
        };
        let pods = self.pods.iter().enumerate().map(pod);
        (0..self.nodes).map(node).chain(pods).collect()
    }

    /// Whether no more pods of the highest priority could be scheduled, then no more of the two highest, and so on: their total request of one
    /// resource must fit into the total of all nodes.
    pub(crate) fn is_optimal(&self, by_priority: &[usize]) -> bool {
        let mut placed = 0;
        by_priority.iter().zip([3, 2, 1, 0]).all(|(count, priority)| {
            placed += count;
            let pods = || self.pods.iter().filter(|asks| asks.priority >= priority);
            let most = |room: usize, asked: fn(&Asks) -> usize| {
                let mut asked: Vec<usize> = pods().map(asked).collect();
                asked.sort_unstable();
                let mut sum = 0;
                let fits = |amount: &usize| {
                    sum += amount;
                    sum <= room
                };
                asked.into_iter().take_while(fits).count()
            };
            let by_cpu = most(self.nodes * NODE_CPU_MILLI, |asks| asks.cpu_milli);
            let by_memory = most(self.nodes * NODE_MEMORY_MI, |asks| asks.memory_mi);
            placed == by_cpu.min(by_memory)
        })
    }
}
