//! `berth bench decide`: measures decisions in memory, including placement.

pub use crate::case::Case;
pub use crate::cluster::Size;

use crate::process::{Memory, seconds_on_processor};
use crate::{Progress, cluster, mebibytes};
use berth_core::api::Kind;
use berth_core::binder::Assumption;
use berth_scheduler::cluster::{AssumedPod, Cluster};
use berth_scheduler::decide::{Decision, Placement, Scratch, decide};
use berth_scheduler::diagnose::Diagnosis;
use berth_scheduler::nominated::{Nominated, Question};
use berth_scheduler::pod::Pod;
use berth_scheduler::preemption::{Preemption, best, preempt};
use berth_scheduler::profile::Profile;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of objects loaded between two progress checks.
const PROGRESS_EVERY: usize = 1000;
/// Number of pods decided between two progress checks: they take longer than objects.
const PODS_PER_LOOK: usize = 16;
/// Number of pods that run at a time if each is deleted after a while.
const RUNNING: usize = 100;

/// The measurement. The field names are a contract with users' scripts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Volumes in the cluster.
    pub volumes: usize,
    /// Pods decided.
    pub pods: usize,
    /// Pods that got a node.
    pub placed: usize,
    /// Seconds to generate and load the cluster.
    pub load_s: f64,
    /// Seconds to decide all pods and to assume each decision.
    pub decide_s: f64,
    /// The CPU time of it; less if other programs took turns.
    pub decide_cpu_s: f64,
    /// Pods per second of `decide_s`.
    pub pods_per_s: f64,
    /// Microseconds per pod, 50th percentile.
    pub p50_us: f64,
    /// Microseconds per pod, 99th percentile.
    pub p99_us: f64,
    /// Memory of the process at the end.
    pub rss_bytes: u64,
    /// The peak memory of the process.
    pub peak_rss_bytes: u64,
    /// Claims per pod.
    pub claims: usize,
    /// What is hard about the cluster and its pods.
    pub case: &'static str,
    /// Number of distinct pod shapes, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shapes: Option<usize>,
    /// Zones that the nodes are in.
    pub zones: usize,
    /// The seed of the cluster.
    pub seed: u64,
}

/// Generates a cluster, decides its pods one after the other, and measures.
pub fn measure(size: &Size, profile: &Profile, progress: &mut Progress<'_>) -> Measurement {
    let begun = Instant::now();
    let mut cluster = load(size, progress);
    let load = begun.elapsed();
    let mut scratch = Scratch::new(size.seed);
    let mut times = Vec::with_capacity(size.pods);
    let mut placed = 0;
    let mut running = VecDeque::new();
    let worked_before = seconds_on_processor();
    for index in 0..size.pods {
        let pod = cluster::pod(size, index);
        let begun = Instant::now();
        let mut new = place(&mut cluster, &pod, profile, &mut scratch);
        placed += usize::from(new.is_some());
        if size.deletes() {
            running.extend(new.take());
            if running.len() > RUNNING {
                running
                    .pop_front()
                    .into_iter()
                    .for_each(|oldest| delete(&mut cluster, oldest));
            }
        }
        // Nothing is ever bound here, and nothing fails: other assumptions remain.
        drop(new);
        times.push(begun.elapsed());
        if index % PODS_PER_LOOK == 0 {
            progress("decided on", index, "pods");
        }
    }
    let worked = seconds_on_processor() - worked_before;
    let decide: Duration = times.iter().sum();
    times.sort_unstable();
    let memory = Memory::of_this_process();
    Measurement {
        nodes: size.nodes,
        volumes: size.nodes * size.volumes_per_node,
        pods: size.pods,
        placed,
        load_s: load.as_secs_f64(),
        decide_s: decide.as_secs_f64(),
        decide_cpu_s: worked,
        pods_per_s: size.pods as f64 / decide.as_secs_f64().max(f64::MIN_POSITIVE),
        p50_us: percentile(&times, 50),
        p99_us: percentile(&times, 99),
        rss_bytes: memory.now,
        peak_rss_bytes: memory.peak,
        claims: size.claims,
        case: size.case.name(),
        shapes: size.shapes,
        zones: size.zones(),
        seed: size.seed,
    }
}

fn load(size: &Size, progress: &mut Progress<'_>) -> Cluster {
    let mut cluster = Cluster::default();
    let mut loaded = 0;
    cluster::objects(size, &mut |object| {
        cluster.upsert(object);
        loaded += 1;
        if loaded % PROGRESS_EVERY == 0 {
            progress("loaded", loaded, "objects");
        }
    });
    cluster
}

/// A pod that was placed.
type Placed = (AssumedPod, Assumption);

/// Decides a pod and assumes its node and its volumes; evicts others if that is the only way. Returns `None` if it fits nowhere.
///
/// It keeps its name in the binary: `bench/instructions` counts the instructions inside.
#[inline(never)]
fn place(
    cluster: &mut Cluster,
    pod: &berth_core::api::Pod,
    profile: &Profile,
    scratch: &mut Scratch,
) -> Option<Placed> {
    let compiled = cluster.compile(&profile.adapt(pod));
    let decision = match decide(cluster, &compiled, profile, scratch) {
        Decision::Refuse(diagnosis) if evict(cluster, &compiled, profile, scratch, &diagnosis) => {
            decide(cluster, &compiled, profile, scratch)
        }
        decision => decision,
    };
    let placed = match decision {
        Decision::Place(placement) => assume(cluster, &compiled, &placement),
        Decision::Refuse(_) => None,
    };
    cluster.release(&compiled);
    placed
}

/// Deletes the pods that preemption chooses. Returns false if none would help.
fn evict(cluster: &mut Cluster, pod: &Pod, profile: &Profile, scratch: &Scratch, diagnosis: &Diagnosis) -> bool {
    let nominated = Nominated::default();
    let question = Question {
        pod,
        profile,
        states: &scratch.states,
        nominated: &nominated,
    };
    let Preemption::Evict(candidates) = preempt(cluster, &question, diagnosis) else {
        return false;
    };
    for victim in best(cluster, candidates).map_or(Vec::new(), |best| best.victims) {
        if let Some(running) = cluster.pods().get(victim) {
            let (namespace, name) = (running.footprint.namespace, running.footprint.name.clone());
            let namespace = cluster.symbols().text(namespace).to_owned();
            cluster.remove(Kind::Pod, &namespace, &name);
        }
    }
    true
}

fn assume(cluster: &mut Cluster, pod: &Pod, placement: &Placement) -> Option<Placed> {
    let volumes = cluster.assume_volumes(placement.node, &placement.volumes).ok()?;
    Some((cluster.assume_pod(pod, placement.node), volumes))
}

/// Deletes a pod, and frees its volumes.
#[inline(never)]
fn delete(cluster: &mut Cluster, (pod, volumes): Placed) {
    cluster.forget(pod);
    cluster.revert_volumes(volumes);
}

/// The time in microseconds at `percent` of the sorted times.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

impl Measurement {
    /// The measurement as text.
    #[must_use]
    pub fn table(&self) -> String {
        crate::table(&[
            ("case", self.case.to_owned()),
            ("nodes", format!("{} in {} zones", self.nodes, self.zones)),
            ("volumes", self.volumes.to_string()),
            (
                "pods",
                format!(
                    "{} with {} claims each{}, {} placed",
                    self.pods,
                    self.claims,
                    self.shapes
                        .map_or(String::new(), |shapes| format!(", of {shapes} shapes")),
                    self.placed
                ),
            ),
            ("load", format!("{:.2} s", self.load_s)),
            (
                "decide",
                format!(
                    "{:.2} s ({:.2} s on the processor), {:.0} pods/s",
                    self.decide_s, self.decide_cpu_s, self.pods_per_s
                ),
            ),
            (
                "a pod",
                format!("{:.0} µs median, {:.0} µs at 99%", self.p50_us, self.p99_us),
            ),
            (
                "memory",
                format!(
                    "{}, at most {}",
                    mebibytes(self.rss_bytes),
                    mebibytes(self.peak_rss_bytes)
                ),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_times() {
        let times: Vec<_> = (1..=4).map(Duration::from_micros).collect();
        assert_eq!(percentile(&[], 50), 0.0);
        assert!((percentile(&times, 50) - 2.0).abs() < 1e-9);
        assert!((percentile(&times, 99) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_cluster_is_measured() {
        let size = Size {
            nodes: 30,
            volumes_per_node: 4,
            pods: 20,
            claims: 2,
            shapes: None,
            case: Case::Plain,
            seed: 7,
        };
        let measured = measure(&size, &Profile::default(), &mut |_, _, _| {});
        assert_eq!((measured.nodes, measured.volumes, measured.pods), (30, 120, 20));
        assert_eq!(measured.placed, 20, "there is room for all");
        assert!(measured.rss_bytes > 0);
        assert!(measured.table().contains("pods/s"));
        assert!(measured.table().contains("µs median, "));
    }

    /// Every case places its pods.
    #[test]
    fn cases_are_measured() {
        for (name, case) in Case::ALL {
            let size = Size {
                nodes: 200,
                volumes_per_node: 4,
                pods: 150,
                claims: usize::from(case != Case::Preemption),
                shapes: None,
                case,
                seed: 7,
            };
            let measured = measure(&size, &Profile::default(), &mut |_, _, _| {});
            assert_eq!(measured.case, name);
            // A few find no volume of their class or no node of their team that is left.
            assert!(measured.placed > 100, "{name}: {}", measured.placed);
        }
    }

    #[test]
    fn pods_have_as_many_shapes_as_are_asked_for() {
        let size = |shapes| Size {
            nodes: 30,
            volumes_per_node: 4,
            pods: 20,
            claims: 1,
            shapes,
            case: Case::Plain,
            seed: 7,
        };
        let distinct = |size: &Size| {
            let pods = (0..size.pods).map(|index| cluster::pod(size, index));
            let shapes = pods.map(|pod| format!("{:?} {:?}", pod.metadata.labels, pod.spec.containers));
            shapes.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(distinct(&size(Some(1))), 1);
        assert_eq!(distinct(&size(Some(7))), 7);
        assert_eq!(distinct(&size(Some(20))), 20);
        let measured = measure(&size(Some(7)), &Profile::default(), &mut |_, _, _| {});
        assert_eq!((measured.placed, measured.shapes), (20, Some(7)));
    }
}
