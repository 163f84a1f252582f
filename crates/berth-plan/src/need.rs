//! Total requests of the pods of a cluster compared with the available resources: lower bounds on what must be added.
//!
//! A bound holds whatever the scheduler does: it counts all free resources as if pods could be split, and assumes that running pods
//! stay where they are. A bound may therefore be too low, but never too high.

use crate::candidate::{Candidate, Cost};
use crate::oracle::Played;
use crate::template::{allocatable, bytes_of};
use berth_cluster::workloads::{Selector, is_over};
use berth_cluster::{Objects, View, field, objects::claims_of};
use berth_core::api::Object;
use berth_core::names::{HOSTNAME, NO_PROVISIONER};
use berth_core::symbols::Symbols;
use berth_scheduler::pod::PodRequests;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A countable need of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum What {
    /// A node resource: CPU in thousandths, everything else in units.
    Resource {
        /// Its name.
        name: String,
    },
    /// Local disks of a class with at least this size.
    Disks {
        /// The class.
        class: String,
        /// The size.
        bytes: i64,
    },
    /// Bytes that a driver can provision.
    Capacity {
        /// The class.
        class: String,
    },
    /// Nodes for pods with anti-affinity to each other.
    Nodes {
        /// One of these pods.
        pod: String,
    },
}

/// Demand and supply of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The resource.
    #[serde(flatten)]
    pub what: What,
    /// Total demand of pods that have no node initially.
    pub needed: i64,
    /// The maximum free amount.
    pub free: i64,
}

impl Need {
    /// The missing amount.
    #[must_use]
    pub fn lacking(&self) -> i64 {
        self.needed.saturating_sub(self.free).max(0)
    }
}

/// All needs of pods, and what each candidate provides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// The unmet needs.
    open: Vec<Need>,
    /// For each candidate, how much one provides of each unmet need.
    gives: Vec<Vec<i64>>,
}

impl Needs {
    /// Computes them from a cluster in which all desired pods exist, and from its initial objects.
    #[must_use]
    pub(crate) fn of(objects: &[Value], played: &Played, candidates: &[Candidate]) -> Self {
        // A pod without a node even here needs something that nodes do not provide.
        Self::of_pods(objects, played, candidates, false)
    }

    /// Computes those that must be met for every existing pod to run, in a cluster that may not have come to rest.
    #[must_use]
    pub(crate) fn of_all_pods(objects: &[Value], played: &Played, candidates: &[Candidate]) -> Self {
        Self::of_pods(objects, played, candidates, true).of_candidates()
    }

    fn of_pods(objects: &[Value], played: &Played, candidates: &[Candidate], with_waiting: bool) -> Self {
        let before: Objects = objects.iter().cloned().collect();
        let pods = Pods::of(&before, played, with_waiting);
        let mut needs = Vec::new();
        needs.extend(pods.resources(&before));
        needs.extend(pods.storage(&before, played.simulation.objects()));
        needs.extend(pods.apart(&before));
        needs.retain(|need| need.lacking() > 0);
        let gives = candidates.iter().map(|candidate| {
            let overhead = &pods.overhead;
            needs
                .iter()
                .map(|need| given(candidate, &need.what, overhead))
                .collect()
        });
        Self {
            gives: gives.collect(),
            open: needs,
        }
    }

    /// These needs if some candidates provide nothing.
    #[must_use]
    pub(crate) fn without(mut self, is_out: impl Fn(usize) -> bool) -> Self {
        for (candidate, gives) in self.gives.iter_mut().enumerate() {
            if is_out(candidate) {
                gives.fill(0);
            }
        }
        self
    }

    /// Only those needs of which some candidate provides something. Where candidates suffice, the others are met without them, such as by
    /// provisioners that publish less than they have.
    #[must_use]
    pub(crate) fn of_candidates(mut self) -> Self {
        let is_given: Vec<bool> = (0..self.open.len())
            .map(|index| self.gives.iter().any(|gives| gives[index] > 0))
            .collect();
        let mut keep = is_given.iter();
        self.open.retain(|_| keep.next().is_some_and(|given| *given));
        for gives in &mut self.gives {
            let mut keep = is_given.iter();
            gives.retain(|_| keep.next().is_some_and(|given| *given));
        }
        self
    }

    /// Adds needs that must be met as well, for the same candidates. Of needs that differ only in the missing amount, the largest remains.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.open.is_empty() {
            return;
        }
        self.gives.resize(other.gives.len(), Vec::new());
        for (index, need) in other.open.iter().enumerate() {
            let gives =
                |needs: &Self, index: usize| -> Vec<i64> { needs.gives.iter().map(|gives| gives[index]).collect() };
            let same = (0..self.open.len())
                .find(|known| self.open[*known].what == need.what && gives(self, *known) == gives(other, index));
            match same {
                Some(known) if self.open[known].lacking() < need.lacking() => self.open[known] = need.clone(),
                Some(_) => {}
                None => {
                    self.open.push(need.clone());
                    for (own, gives) in self.gives.iter_mut().zip(&other.gives) {
                        own.push(gives[index]);
                    }
                }
            }
        }
    }

    /// Whether this many of each candidate meet every need.
    #[must_use]
    pub(crate) fn are_met(&self, counts: &[usize]) -> bool {
        self.open.iter().enumerate().all(|(index, need)| {
            let given = counts.iter().zip(&self.gives);
            let given =
                given.map(|(count, gives)| gives[index].saturating_mul(i64::try_from(*count).unwrap_or(i64::MAX)));
            given.fold(0_i64, i64::saturating_add) >= need.lacking()
        })
    }

    /// How much of all needs one more of a candidate meets, relative to what is missing, in addition to these.
    #[must_use]
    pub(crate) fn worth(&self, counts: &[usize], candidate: usize) -> f64 {
        let parts = self.open.iter().enumerate().map(|(index, need)| {
            let there = counts.iter().zip(&self.gives);
            let there: i64 = there
                .map(|(count, gives)| gives[index].saturating_mul(i64::try_from(*count).unwrap_or(i64::MAX)))
                .fold(0, i64::saturating_add);
            let left = need.lacking().saturating_sub(there).max(0);
            let used = self.gives[candidate][index].min(left).max(0);
            used as f64 / need.lacking().max(1) as f64
        });
        parts.sum()
    }

    /// The minimum cost, and the need it results from.
    #[must_use]
    pub(crate) fn least_cost(&self, candidates: &[Candidate]) -> (Cost, Option<&Need>) {
        let bounds = self.open.iter().enumerate().map(|(index, need)| {
            let per = candidates.iter().zip(&self.gives).filter(|(_, gives)| gives[index] > 0);
            // The missing amount times the lowest cost per unit, rounded up.
            let costs = per.map(|(candidate, gives)| {
                let (lacking, cost) = (i128::from(need.lacking()), i128::from(candidate.cost.0));
                let given = i128::from(gives[index]);
                (lacking * cost + given - 1) / given
            });
            let least = costs.min().unwrap_or(0);
            (Cost(u64::try_from(least).unwrap_or(u64::MAX)), Some(need))
        });
        let (bound, need) = bounds.max_by_key(|(cost, _)| *cost).unwrap_or((Cost(0), None));
        (rounded_up(bound, candidates), need)
    }

    /// The largest need of disks: if no nodes are added, at least as many disks as it lacks are needed.
    #[must_use]
    pub(crate) fn least_disks(&self) -> Option<&Need> {
        let of_disks = self.open.iter().filter(|need| matches!(need.what, What::Disks { .. }));
        of_disks.max_by_key(|need| need.lacking())
    }

    /// The minimum number of nodes, and the need it results from.
    #[must_use]
    pub(crate) fn least_nodes(&self) -> (usize, Option<&Need>) {
        let bounds = self.open.iter().enumerate().map(|(index, need)| {
            let most = self.gives.iter().map(|gives| gives[index]).max().unwrap_or(0).max(1);
            let least = need.lacking().saturating_add(most - 1) / most;
            (usize::try_from(least).unwrap_or(usize::MAX), Some(need))
        });
        bounds.max_by_key(|(count, _)| *count).unwrap_or((0, None))
    }
}

/// The candidates that could run at least one of the pods to be scheduled, by its node selector, its tolerations and its
/// requests.
#[must_use]
pub(crate) fn useful(objects: &[Value], played: &Played, candidates: &[Candidate]) -> Vec<Candidate> {
    let before: Objects = objects.iter().cloned().collect();
    let pods = Pods::of(&before, played, false);
    let takes = |candidate: &&Candidate| {
        let node = candidate.template.node();
        let mut movable = pods.movable.iter();
        movable.any(|movable| {
            let selector = field::at(movable.pod, "/spec/nodeSelector").and_then(Value::as_object);
            let mut selector = selector.into_iter().flatten();
            let is_tolerant = !field::items(movable.pod, "/spec/tolerations").is_empty();
            let has = |name: &str| candidate.supply.resources.get(name).copied().unwrap_or(0);
            (is_tolerant || !has_taint(node))
                && selector.all(|(key, value)| node["metadata"]["labels"][key] == *value)
                && movable.requests.iter().all(|(name, amount)| *amount <= has(name))
        })
    };
    candidates.iter().filter(takes).cloned().collect()
}

/// Total requests of all pods on nodes, except DaemonSet pods.
pub(crate) fn requested(view: &dyn View) -> BTreeMap<String, i64> {
    let mut symbols = Symbols::default();
    let mut all = BTreeMap::new();
    for pod in view.of_kind("Pod").filter(|pod| !is_over(pod)) {
        let is_daemon = field::controller_of(pod).is_some_and(|owner| owner["kind"] == "DaemonSet");
        if !is_daemon && !field::text(pod, "/spec/nodeName").is_empty() {
            for (name, amount) in requests(&mut symbols, pod) {
                *all.entry(name).or_default() += amount;
            }
        }
    }
    all
}

/// Costs are sums of the candidates' costs, so multiples of their greatest common divisor.
fn rounded_up(cost: Cost, candidates: &[Candidate]) -> Cost {
    let step = candidates.iter().map(|candidate| candidate.cost.0).fold(0, gcd).max(1);
    Cost(cost.0.div_ceil(step).saturating_mul(step))
}

fn gcd(first: u64, second: u64) -> u64 {
    match second {
        0 => first,
        _ => gcd(second, first % second),
    }
}

/// How much one of a candidate provides of a need. DaemonSet pods take their part first.
fn given(candidate: &Candidate, what: &What, overhead: &BTreeMap<String, i64>) -> i64 {
    match what {
        What::Resource { name } => {
            let all = candidate.supply.resources.get(name).copied().unwrap_or(0);
            (all - overhead.get(name).copied().unwrap_or(0)).max(0)
        }
        What::Disks { class, bytes } => {
            let disks = candidate.supply.disks.iter();
            let count = disks.filter(|(of, size)| of == class && size >= bytes).count();
            i64::try_from(count).unwrap_or(i64::MAX)
        }
        What::Capacity { class } => {
            let supply = &candidate.supply;
            let own = supply.pools.iter().chain(&supply.disks).filter(|(of, _)| of == class);
            own.map(|(_, bytes)| *bytes).sum()
        }
        What::Nodes { .. } => 1,
    }
}

/// A pod to be scheduled.
struct Movable<'a> {
    pod: &'a Value,
    requests: BTreeMap<String, i64>,
}

/// The pods of a cluster: those with a fixed node, and those to be scheduled.
struct Pods<'a> {
    movable: Vec<Movable<'a>>,
    /// Requests of fixed pods on each node.
    taken: BTreeMap<String, BTreeMap<String, i64>>,
    /// Minimum requests of DaemonSet pods on a node.
    overhead: BTreeMap<String, i64>,
    fixed: Vec<&'a Value>,
}

impl<'a> Pods<'a> {
    fn of(before: &Objects, played: &'a Played, with_waiting: bool) -> Self {
        let mut pods = Self {
            movable: Vec::new(),
            taken: BTreeMap::new(),
            overhead: BTreeMap::new(),
            fixed: Vec::new(),
        };
        let mut symbols = Symbols::default();
        for pod in played.simulation.objects().of_kind("Pod").filter(|pod| !is_over(pod)) {
            let requests = requests(&mut symbols, pod);
            let known = before.get("Pod", field::namespace(pod), field::name(pod));
            let placed = known.map(|pod| field::text(pod, "/spec/nodeName")).unwrap_or_default();
            let is_daemon = field::controller_of(pod).is_some_and(|owner| owner["kind"] == "DaemonSet");
            let found = field::text(pod, "/spec/nodeName");
            let node = if is_daemon { found } else { placed };
            if node.is_empty() {
                if !is_daemon && (with_waiting || !found.is_empty()) {
                    pods.movable.push(Movable { pod, requests });
                }
                continue;
            }
            let taken = pods.taken.entry(node.to_owned()).or_default();
            for (name, amount) in requests {
                *taken.entry(name).or_default() += amount;
            }
            pods.fixed.push(pod);
        }
        pods.overhead = pods.least_on_new_nodes(before, played.simulation.objects());
        pods
    }

    /// Minimum requests of DaemonSet pods on a new node.
    fn least_on_new_nodes(&self, before: &Objects, after: &dyn View) -> BTreeMap<String, i64> {
        let new = after.of_kind("Node").map(field::name);
        let new = new.filter(|node| before.get("Node", "", node).is_none());
        let taken = new.map(|node| self.taken.get(node).cloned().unwrap_or_default());
        let least = taken.reduce(|mut least, taken| {
            least.retain(|name, amount| {
                *amount = (*amount).min(taken.get(name).copied().unwrap_or(0));
                *amount > 0
            });
            least
        });
        least.unwrap_or_default()
    }

    fn resources(&self, before: &Objects) -> Vec<Need> {
        let mut needed: BTreeMap<&str, i64> = BTreeMap::new();
        for movable in &self.movable {
            for (name, amount) in &movable.requests {
                *needed.entry(name).or_default() += *amount;
            }
        }
        let tolerant = |movable: &Movable<'_>| !field::items(movable.pod, "/spec/tolerations").is_empty();
        let any_tolerant = self.movable.iter().any(tolerant);
        let mut free: BTreeMap<&str, i64> = BTreeMap::new();
        for node in before.of_kind("Node") {
            let is_closed = field::flag(node, "/spec/unschedulable") || (has_taint(node) && !any_tolerant);
            let taken = self.taken.get(field::name(node));
            let left: BTreeMap<String, i64> = allocatable(node)
                .into_iter()
                .map(|(name, amount)| {
                    let taken = taken.and_then(|taken| taken.get(&name)).copied().unwrap_or(0);
                    (name, amount.saturating_sub(taken))
                })
                .collect();
            let room = |name: &str| left.get(name).copied().unwrap_or(0);
            let fits = |movable: &Movable<'_>| movable.requests.iter().all(|(name, amount)| *amount <= room(name));
            if is_closed || !self.movable.iter().any(fits) {
                continue;
            }
            for name in needed.keys() {
                *free.entry(name).or_default() += room(name).max(0);
            }
        }
        let needs = needed.iter().map(|(name, needed)| Need {
            what: What::Resource {
                name: (*name).to_owned(),
            },
            needed: *needed,
            free: free.get(name).copied().unwrap_or(0),
        });
        needs.collect()
    }

    /// The claims of pods to be scheduled that had no volume before.
    fn open_claims(&self, before: &Objects, after: &'a dyn View) -> Vec<&'a Value> {
        let mut seen = BTreeSet::new();
        let mut claims = Vec::new();
        for movable in &self.movable {
            let namespace = field::namespace(movable.pod);
            for name in claims_of(movable.pod) {
                let bound = before.get("PersistentVolumeClaim", namespace, &name);
                let is_bound = bound.is_some_and(|claim| !field::text(claim, "/spec/volumeName").is_empty());
                if let Some(claim) = after.get("PersistentVolumeClaim", namespace, &name)
                    && !is_bound
                    && seen.insert((namespace.to_owned(), name.into_owned()))
                {
                    claims.push(claim);
                }
            }
        }
        claims
    }

    fn storage(&self, before: &Objects, after: &'a dyn View) -> Vec<Need> {
        let claims = self.open_claims(before, after);
        let named: BTreeSet<(&str, &str)> = claims
            .iter()
            .copied()
            .map(|claim| (field::namespace(claim), field::name(claim)))
            .collect();
        let mut asked: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for claim in claims {
            let bytes = bytes_of(&claim["spec"]["resources"]["requests"]["storage"]);
            asked.entry(field::class_name(claim)).or_default().push(bytes);
        }
        let mut needs = Vec::new();
        for (class, sizes) in asked {
            let is_free = |volume: &&Value| {
                let claim = |part: &str| field::text(volume, &format!("/spec/claimRef/{part}"));
                // A volume that is reserved for one of the claims is free for it.
                let is_reserved = named.contains(&(claim("namespace"), claim("name")));
                field::class_name(volume) == class && (volume["spec"]["claimRef"].is_null() || is_reserved)
            };
            let free = before.of_kind("PersistentVolume").filter(is_free);
            let free: Vec<i64> = free
                .map(|volume| bytes_of(&volume["spec"]["capacity"]["storage"]))
                .collect();
            let provisioner = before
                .get("StorageClass", "", class)
                .map(|class| field::text(class, "/provisioner"));
            if provisioner == Some(NO_PROVISIONER) {
                let at_least = |sizes: &[i64], bytes: i64| {
                    i64::try_from(sizes.iter().filter(|size| **size >= bytes).count()).unwrap_or(i64::MAX)
                };
                for bytes in sizes.iter().copied().collect::<BTreeSet<i64>>() {
                    let class = class.to_owned();
                    needs.push(Need {
                        what: What::Disks { class, bytes },
                        needed: at_least(&sizes, bytes),
                        free: at_least(&free, bytes),
                    });
                }
                continue;
            }
            let pools = before.of_kind("CSIStorageCapacity");
            let pools = pools.filter(|pool| field::text(pool, "/storageClassName") == class);
            let pools: Vec<i64> = pools.map(|pool| bytes_of(&pool["capacity"])).collect();
            if !pools.is_empty() {
                let class = class.to_owned();
                needs.push(Need {
                    what: What::Capacity { class },
                    needed: sizes.iter().copied().fold(0, i64::saturating_add),
                    free: pools.iter().chain(&free).copied().fold(0, i64::saturating_add),
                });
            }
        }
        needs
    }

    /// Pods that allow no other one like them on their node.
    fn apart(&self, before: &Objects) -> Vec<Need> {
        let mut groups: BTreeMap<(String, String), (Selector, Vec<&Value>)> = BTreeMap::new();
        for movable in &self.movable {
            for term in field::items(
                movable.pod,
                "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution",
            ) {
                let selector = Selector::at(term, "/labelSelector");
                let is_plain = term["namespaces"].is_null() && term["namespaceSelector"].is_null();
                let by_labels = term["matchLabelKeys"].is_null() && term["mismatchLabelKeys"].is_null();
                if term["topologyKey"] == HOSTNAME && is_plain && by_labels && selector.selects(movable.pod) {
                    let key = (
                        field::namespace(movable.pod).to_owned(),
                        term["labelSelector"].to_string(),
                    );
                    let group = groups.entry(key).or_insert_with(|| (selector, Vec::new()));
                    group.1.push(movable.pod);
                }
            }
        }
        let needs = groups.into_iter().filter_map(|((namespace, _), (selector, pods))| {
            let holds = |pod: &&&Value| field::namespace(pod) == namespace && selector.selects(pod);
            let holding = self.fixed.iter().filter(holds);
            let holding: BTreeSet<&str> = holding.map(|pod| field::text(pod, "/spec/nodeName")).collect();
            let is_free =
                |node: &&Value| !field::flag(node, "/spec/unschedulable") && !holding.contains(field::name(node));
            let first = pods.first()?;
            Some(Need {
                what: What::Nodes {
                    pod: format!("{namespace}/{}", field::name(first)),
                },
                needed: i64::try_from(pods.len()).unwrap_or(i64::MAX),
                free: i64::try_from(before.of_kind("Node").filter(is_free).count()).unwrap_or(i64::MAX),
            })
        });
        needs.collect()
    }
}

fn has_taint(node: &Value) -> bool {
    let taints = field::items(node, "/spec/taints").iter();
    let mut hard = taints.filter(|taint| taint["effect"] != "PreferNoSchedule");
    hard.any(|taint| !field::text(taint, "/key").is_empty())
}

/// The requests of a pod, including the pod itself: nodes count pods.
fn requests(symbols: &mut Symbols, pod: &Value) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::from([("pods".to_owned(), 1)]);
    let Ok(Some(Object::Pod(pod))) = Object::decode(pod) else {
        return all;
    };
    let requests = PodRequests::new(symbols, &pod).requests;
    let named = [
        ("cpu", requests.cpu_milli),
        ("memory", requests.memory_bytes),
        ("ephemeral-storage", requests.ephemeral_bytes),
    ];
    all.extend(named.map(|(name, amount)| (name.to_owned(), amount)));
    for (name, amount) in &requests.scalars {
        all.insert(symbols.text(*name).to_owned(), *amount);
    }
    all.retain(|_, amount| *amount > 0);
    all
}
