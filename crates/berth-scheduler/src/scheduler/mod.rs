//! The scheduler: watched objects and results of writes in, effects out.
//!
//! It has one owner, and keeps the cluster, the queue and the bindings in progress. It does no I/O and reads no clock,
//! so that the same code runs against an API server and in virtual time.
//!
//! ```text
//!   upsert / remove ──▶ cluster ──▶ queue ──step──▶ decide ──▶ assume ──▶ binding ──▶ effects
//!                          ▲                                                 │
//!                          └────────── written / upsert / tick ──────────────┘
//! ```
//!
//! With extenders there is a detour between the filters and the choice of a node: see [`extender`](crate::extender).

mod attempts;
mod binding;
mod binding_index;
mod consulting;
mod cycle;
mod early;
mod effects;
mod lower;
mod plan;
mod pods;
mod preempting;
mod refusals;
mod rollback;
mod sending;
mod settings;
mod sweep;
mod watch;

pub use binding::is_binding_timeout;
pub use effects::{Effect, FailedStage, Outcome, PodRef, Write, WriteId, WriteOutcome};
pub use plan::{GaveWay, Look};
pub use sending::{MOST_TRIES, Order};
pub use settings::{Settings, Together};

use crate::cluster::Cluster;
use crate::decide::Scratch;
use crate::framework::PluginSet;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::queue::{Place, PodKey, Queue};
use berth_core::api;
use binding::Seen;
use binding_index::BindingIndex;
use consulting::Consulting;
use early::Early;
use plan::Plan;
use preempting::{Eviction, Nominations};
use refusals::Refusals;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use sweep::Sweeps;
use watch::NodeDigest;

/// The name of the scheduler for pods that set none.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// The field selector for the pods that a scheduler watches. Succeeded pods take no resources, and there may be many of them: one that
/// succeeds counts as deleted. Failed ones are included: a node may have rejected them.
pub const POD_FIELDS: &str = "status.phase!=Succeeded";

/// Default random seed, shared by live schedulers and simulations so that both break ties in the same way.
pub const DEFAULT_SEED: u64 = 1;

/// A pod without a node, or whose binding is in progress.
#[derive(Debug)]
struct PendingPod {
    object: api::Pod,
    compiled: Pod,
    /// The message of its condition, which is written only when it changes.
    said: Option<String>,
    /// Nominations that this scheduler sent for it and that were not observed in the API yet.
    nominations_sent: Vec<Box<str>>,
    /// The last attempt of this scheduler to get all of its volumes; 0 for none.
    last_attempt: u64,
    /// The attempt that was committed last when this scheduler began its own; 0 for none.
    committed_before: u64,
    /// It waits with claims that could be given back: whatever happens, it may fit somewhere without them.
    has_clean_claims: bool,
}

impl PendingPod {
    fn reference(&self, key: &PodKey) -> PodRef {
        PodRef {
            key: PodKey::clone(key),
            uid: self.object.metadata.uid.clone(),
        }
    }

    /// Its resource version; 0 if unknown.
    fn version(&self) -> u64 {
        self.object.metadata.resource_version.parse().unwrap_or(0)
    }

    fn scheduler_name(&self) -> &str {
        scheduler_name(&self.object)
    }

    /// The keys (`namespace/name`) of the claims that the pod uses.
    fn claims(&self) -> impl Iterator<Item = String> + '_ {
        let namespace = &self.object.metadata.namespace;
        let volumes = self.compiled.volumes.claims.iter();
        volumes.map(move |claim| format!("{namespace}/{}", claim.name))
    }
}

/// The pod's `schedulerName`, or the default.
#[must_use]
pub fn scheduler_name(pod: &api::Pod) -> &str {
    pod.spec
        .scheduler_name
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or(DEFAULT_SCHEDULER_NAME)
}

/// Counters of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Pods that were bound.
    pub scheduled: u64,
    /// Decisions that found no node.
    pub unschedulable: u64,
    /// Bindings that failed.
    pub errors: u64,
    /// Pods that another scheduler bound to exactly the node that was chosen here.
    pub overtaken: u64,
    /// Sleeping pods that an event woke.
    pub woken: u64,
    /// Preempted pods.
    pub victims: u64,
    /// Claims checked while pods waited for their volumes.
    pub claims_checked: u64,
}

/// The scheduler.
///
/// ```
/// use berth_core::api::Object;
/// use berth_scheduler::scheduler::{Effect, Scheduler, Settings, Write, WriteOutcome};
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut scheduler = Scheduler::new(Settings::default(), 1);
/// // Time is a parameter: the time since the scheduler was created.
/// let now = Duration::from_secs(1);
///
/// // Watched objects go in, in any order.
/// let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},
///                "status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"}}}"#;
/// let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default","uid":"1"},
///               "spec":{"containers":[{"name":"main","image":"app"}]}}"#;
/// for text in [node, pod] {
///     let object = Object::decode(&serde_json::from_str(text)?)?;
///     object.iter().for_each(|object| scheduler.upsert(object, now));
/// }
///
/// // Each step decides about one pod. The caller carries out the resulting effects.
/// while scheduler.step(now) {}
/// let mut bound = Vec::new();
/// for effect in scheduler.take_effects() {
///     match effect {
///         Effect::Write { id, write } => {
///             if let Write::BindPod { pod, node, .. } = &write {
///                 bound.push(format!("{} to {node}", pod.key));
///             }
///             // The result of a write is reported back; it may produce further effects.
///             scheduler.written(id, &WriteOutcome::Done { version: 2 }, now);
///         }
///         Effect::Condition { .. } | Effect::Nominate { .. } | Effect::Event { .. } => {}
///     }
/// }
/// assert_eq!(bound, ["default/web to n1"]);
///
/// // Then wait for objects, for responses, or until this time, and call `tick` and `step` again.
/// assert_eq!(scheduler.next_wakeup(), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Scheduler {
    cluster: Cluster,
    queue: Queue,
    profiles: BTreeMap<String, Profile>,
    scratch: Scratch,
    pods: FxHashMap<PodKey, PendingPod>,
    bindings: BindingIndex,
    /// Pods that a watch showed on their nodes before the responses to their bindings.
    unanswered: FxHashMap<WriteId, Seen>,
    /// Pods that arrived before their claims.
    early: Early,
    /// The volumes of a pod are held until all of them exist.
    hold_volumes: bool,
    /// Distinguishes its attempts from those of other schedulers.
    replica: u16,
    /// When refused commits of attempts are retried.
    recommits: BTreeSet<(Duration, PodKey)>,
    /// How long a new pod waits for unknown claims.
    await_claims: Duration,
    /// Bindings by the claims that they wait for.
    waiting_for_claim: FxHashMap<String, SmallVec<[PodKey; 1]>>,
    nominations: Nominations,
    /// Evictions of pods that still exist, by their writes.
    evictions: FxHashMap<WriteId, Eviction>,
    /// Writes that give claims back.
    rollbacks: FxHashSet<WriteId>,
    nodes: FxHashMap<Box<str>, NodeDigest>,
    /// Pods that nodes rejected.
    refusals: Refusals,
    /// When promised storage may expire.
    promise_end: Option<Duration>,
    effects: Vec<Effect>,
    writes: FxHashMap<WriteId, PodKey>,
    write_count: u64,
    counts: Counts,
    last_tried: Option<PodKey>,
    together: Together,
    plan: Plan,
    consulting: Consulting,
    sweeps: Sweeps,
}

impl Scheduler {
    /// A scheduler for the pods of these profiles. The same seed and the same inputs give the same effects.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let mut cluster = Cluster::default();
        cluster.set_gates(settings.volume_gates());
        let Settings {
            profiles,
            times,
            together,
            hold_volumes,
            extenders,
            replica,
        } = settings;
        Self {
            cluster,
            queue: Queue::new(times),
            profiles,
            scratch: Scratch::new(seed),
            pods: FxHashMap::default(),
            bindings: BindingIndex::default(),
            unanswered: FxHashMap::default(),
            early: Early::default(),
            hold_volumes,
            replica,
            recommits: BTreeSet::new(),
            await_claims: times.await_claims,
            waiting_for_claim: FxHashMap::default(),
            nominations: Nominations::default(),
            evictions: FxHashMap::default(),
            rollbacks: FxHashSet::default(),
            nodes: FxHashMap::default(),
            refusals: Refusals::default(),
            promise_end: None,
            effects: Vec::new(),
            writes: FxHashMap::default(),
            write_count: 0,
            counts: Counts::default(),
            last_tried: None,
            together,
            plan: Plan::default(),
            consulting: Consulting::new(extenders),
            sweeps: Sweeps::default(),
        }
    }

    /// The cluster as the scheduler sees it, including assumptions.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Sets the wall clock in seconds since 1970: expired storage pools do not count. All other times are relative to
    /// the creation of the scheduler.
    pub fn set_now(&mut self, seconds: i64) {
        self.cluster.set_now(seconds);
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of pods in a state of the queue.
    #[must_use]
    pub fn pending(&self, place: Place) -> usize {
        self.queue.count(place)
    }

    /// The pod that the last [step](Self::step) decided about.
    #[must_use]
    pub fn last_tried(&self) -> Option<&PodKey> {
        self.last_tried.as_ref()
    }

    /// Whether the last [step](Self::step) decided about a pod with inline volumes. The capacity they take is known only when their
    /// driver reports it.
    #[must_use]
    pub fn last_brings_volumes(&self) -> bool {
        let pod = self.last_tried.as_ref().and_then(|key| self.pods.get(key));
        pod.is_some_and(|pod| !pod.compiled.volumes.inline.is_empty())
    }

    /// The pods that fit nowhere: the names of their profiles, and the plugins that refused them.
    pub fn refused_pods(&self) -> impl Iterator<Item = (&str, PluginSet)> {
        let pods = self.queue.refused_pods();
        pods.filter_map(|(key, by)| Some((self.pods.get(key)?.scheduler_name(), by)))
    }

    /// Number of pods that are being bound and not yet observed on their node.
    #[must_use]
    pub fn bindings_under_way(&self) -> usize {
        self.bindings.len()
    }

    /// The state of a pod in the queue.
    #[must_use]
    pub fn place(&self, key: &str) -> Option<Place> {
        self.queue.place(key)
    }

    /// The last message about a waiting pod.
    #[must_use]
    pub fn message(&self, key: &str) -> Option<&str> {
        self.pods.get(key)?.said.as_deref()
    }

    /// The nominated node of a pod: for preemption or provisioning.
    #[must_use]
    pub fn nominated_node(&self, key: &str) -> Option<&str> {
        self.nominations.get(key).map(|node| &**node)
    }

    /// The effects since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Drops the effects since the last call, and frees unused memory if that is due: another replica leads, decides and writes. To be called
    /// instead of [`Self::take_effects`] and [`Self::step`] after objects were applied.
    pub fn stand_by(&mut self, now: Duration) {
        for effect in std::mem::take(&mut self.effects) {
            // What is not sent is never observed.
            if let Effect::Nominate { pod, .. } = effect
                && let Some(known) = self.pods.get_mut(&pod.key)
            {
                known.nominations_sent.clear();
            }
        }
        self.sweep_if_due(now);
    }

    /// When [`Self::tick`] and [`Self::step`] have something to do, if nothing else happens. Zero means at once.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Duration> {
        let turn = self.queue.next_turn();
        let due = [
            turn.filter(|turn| !turn.is_zero() || !self.is_waiting_for_advice()),
            self.bindings.next_due(),
            self.early.next_due(),
            self.recommits.first().map(|(due, _)| *due),
            self.promise_end,
        ];
        due.into_iter().flatten().min()
    }

    fn write(&mut self, key: &PodKey, write: Write) -> WriteId {
        self.write_count += 1;
        let id = WriteId(self.write_count);
        self.writes.insert(id, PodKey::clone(key));
        self.effects.push(Effect::Write { id, write });
        id
    }

    /// Says why a pod waits: by an event each time, and by its condition if that said something else before. A pod that may
    /// have a node gets no condition.
    fn say(&mut self, key: &PodKey, outcome: Outcome, message: String) {
        let Some(pod) = self.pods.get_mut(key) else {
            return;
        };
        let reference = pod.reference(key);
        let is_in_doubt = outcome == Outcome::Failed(FailedStage::BindPodInDoubt);
        if !is_in_doubt && pod.said.as_deref() != Some(&message) {
            pod.said = Some(message.clone());
            self.effects.push(Effect::Condition {
                pod: reference.clone(),
                generation: pod.object.metadata.generation.unwrap_or(0),
                reason: match outcome {
                    Outcome::Unschedulable => "Unschedulable",
                    Outcome::Failed(_) | Outcome::Scheduled | Outcome::Preempted => "SchedulerError",
                },
                message: message.clone(),
            });
        }
        self.effects.push(Effect::Event {
            pod: reference,
            source: pod.scheduler_name().to_owned(),
            outcome,
            message,
        });
    }
}
