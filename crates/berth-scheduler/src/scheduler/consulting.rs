//! Decisions with extenders: the pod waits in its cycle until they have answered.
//!
//! At most one consultation is under way, because an extender learns of a decision only when it has been made. Pods that no extender is
//! interested in are decided meanwhile, unless they are less important than the pod that waits, or behind another one to be asked about.
//! Whatever happens meanwhile, the advice is applied to the cluster as it is then.

use super::plan::promises;
use super::{FailedStage, Outcome, PodRef, Scheduler};
use crate::decide::{self, decide_advised};
use crate::extender::{Advice, Consultation, ConsultationId, Extender, FailedNode, Matter, NodeAdvice, NodeVictims};
use crate::framework::{Code, PluginName, PluginSet, Refusal};
use crate::preemption::{Candidate, best};
use crate::queue::{Place, PodKey};
use crate::reason::Reason;
use crate::stopwatch::{NoStopwatch, Stopwatch};
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// The extenders, and the consultation under way.
#[derive(Debug)]
pub(super) struct Consulting {
    extenders: Arc<[Extender]>,
    asked: Option<Asked>,
    /// Consultations that the caller has not taken yet.
    new: Vec<Consultation>,
    count: u64,
    /// Number of events so far.
    pub(super) events: u64,
}

/// A pod that waits for extenders.
#[derive(Debug)]
struct Asked {
    id: ConsultationId,
    pod: PodRef,
    priority: i32,
    /// Number of events when they were asked.
    events: u64,
    /// They are asked about its nominated node only.
    sole: bool,
}

impl Consulting {
    pub(super) fn new(extenders: Arc<[Extender]>) -> Self {
        Self {
            extenders,
            asked: None,
            new: Vec::new(),
            count: 0,
            events: 0,
        }
    }
}

impl Scheduler {
    /// What extenders must be asked since the last call. The advice is handed back with [`Self::advised`].
    pub fn take_consultations(&mut self) -> Vec<Consultation> {
        std::mem::take(&mut self.consulting.new)
    }

    /// The interested extenders of a pod with some part in decisions.
    fn interested<'a>(&'a self, key: &PodKey, part: fn(&Extender) -> bool) -> impl Iterator<Item = usize> + 'a {
        let pod = self.pods.get(key).filter(|_| !self.consulting.extenders.is_empty());
        let extenders = self.consulting.extenders.iter().enumerate();
        extenders
            .filter(move |(_, extender)| part(extender) && pod.is_some_and(|pod| extender.is_interested(&pod.object)))
            .map(|(place, _)| place)
    }

    /// Whether extenders choose the node of a pod too.
    pub(super) fn asks_about(&self, key: &PodKey) -> bool {
        self.interested(key, Extender::chooses).next().is_some()
    }

    /// The extender that binds a pod, if any.
    pub(super) fn binder_of(&self, key: &PodKey) -> Option<usize> {
        self.interested(key, Extender::binds).next()
    }

    /// Whether a pod has its turn only when extenders have answered about another one.
    pub(super) fn waits_for_advice(&self, key: &PodKey) -> bool {
        let Some(asked) = &self.consulting.asked else {
            return false;
        };
        let pod = self.pods.get(key);
        pod.is_some_and(|pod| pod.compiled.footprint.priority < asked.priority)
            || self
                .interested(key, |extender| extender.chooses() || extender.preempts())
                .next()
                .is_some()
    }

    /// Whether the next pod waits for an answer about another one.
    pub(super) fn is_waiting_for_advice(&self) -> bool {
        self.consulting.asked.is_some()
            && self
                .queue
                .ready()
                .next()
                .is_some_and(|next| self.waits_for_advice(next))
    }

    /// Finds the nodes that fit a pod, and asks extenders about them.
    pub(super) fn consult(&mut self, key: &PodKey, now: Duration, watch: &mut impl Stopwatch) {
        self.consult_about(key, true, now, watch);
    }

    /// Asks extenders about the nodes of a pod: first about its nominated one, unless that is already refused.
    fn consult_about(&mut self, key: &PodKey, nominated_first: bool, now: Duration, watch: &mut impl Stopwatch) {
        let Some(pod) = self.pods.get(key) else {
            return self.queue.remove(key);
        };
        let Some(profile) = self.profiles.get(pod.scheduler_name()) else {
            return self.queue.remove(key);
        };
        let (nominations, refusals) = (&self.nominations, &self.refusals);
        let mut nominated = promises(nominations, refusals, &self.pods, &self.cluster, (key, pod), now);
        nominated.own = nominated.own.filter(|_| nominated_first);
        let own = nominated.own;
        let (cluster, scratch) = (&mut self.cluster, &mut self.scratch);
        match decide::candidates(cluster, &pod.compiled, profile, scratch, &nominated, watch) {
            Ok(nodes) => {
                let sole = own.is_some_and(|own| nodes == [own]);
                let nodes = nodes.into_iter().map(|node| self.node_name(node)).collect();
                let extenders = self.interested(key, Extender::chooses).collect();
                self.ask(key, extenders, Matter::Nodes(nodes), sole);
            }
            Err(diagnosis) => self.refuse(key, &diagnosis, PluginSet::default(), now),
        }
    }

    fn ask(&mut self, key: &PodKey, extenders: Vec<usize>, matter: Matter, sole: bool) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let (pod, priority) = (pod.reference(key), pod.compiled.footprint.priority);
        let consulting = &mut self.consulting;
        consulting.count += 1;
        let id = ConsultationId(consulting.count);
        consulting.asked = Some(Asked {
            id,
            pod: pod.clone(),
            priority,
            events: consulting.events,
            sole,
        });
        consulting.new.push(Consultation {
            id,
            pod,
            extenders,
            matter,
        });
    }

    /// Applies what extenders say about a pod.
    pub fn advised(&mut self, id: ConsultationId, advice: Advice, now: Duration) {
        let Some(asked) = self.consulting.asked.take_if(|asked| asked.id == id) else {
            return;
        };
        let key = PodKey::clone(&asked.pod.key);
        if self
            .pods
            .get(&key)
            .is_none_or(|pod| pod.object.metadata.uid != asked.pod.uid)
        {
            return;
        }
        // A pod that is to make room for itself sleeps meanwhile.
        let in_cycle = self.queue.place(&key) == Some(Place::InCycle) && self.bindings.get(&key).is_none();
        match advice {
            Advice::Nodes { left, failed } if in_cycle => {
                if left.is_empty() && asked.sole {
                    return self.consult_about(&key, false, now, &mut NoStopwatch);
                }
                let advice = self.node_advice(&left, failed);
                self.decide_with(&key, &advice, now);
                self.catch_up(&key, &asked, now);
            }
            Advice::Victims(victims) => {
                let candidates = victims.iter().filter_map(|victims| self.candidate(&key, victims));
                match best(&self.cluster, candidates.collect()) {
                    Some(candidate) => self.evict(&key, &candidate, now),
                    None => self.withdraw(&key, now),
                }
                self.catch_up(&key, &asked, now);
            }
            Advice::Failed(problem) if in_cycle => {
                self.counts.errors += 1;
                self.say(&key, Outcome::Failed(FailedStage::Decision), problem);
                self.queue.failed(&key, now);
            }
            // Room is tried to be made again, when the extenders have had time to recover.
            Advice::Failed(_) => self.queue.back_off(&key),
            Advice::Nodes { .. } => {}
        }
    }

    /// Events during a consultation woke nobody who waited for it: a pod that was refused looks again.
    fn catch_up(&mut self, key: &PodKey, asked: &Asked, now: Duration) {
        if self.consulting.events != asked.events {
            self.queue.wake(key, now);
        }
    }

    fn node_advice(&self, left: &[(String, i64)], failed: Vec<FailedNode>) -> NodeAdvice {
        let binder = self.cluster.binder();
        let mut advice = NodeAdvice {
            left: NodeMask::none(self.cluster.nodes()),
            scores: FxHashMap::default(),
            refused: Vec::new(),
        };
        for (node, score) in left {
            if let Some(node) = binder.node(node) {
                advice.left.insert(node);
                advice.scores.insert(node, *score);
            }
        }
        let refused = failed.into_iter().filter_map(|failed| {
            let code = match failed.resolvable {
                true => Code::Unschedulable,
                false => Code::UnschedulableAndUnresolvable,
            };
            let reason = Reason::Extender {
                message: failed.message.into(),
            };
            Some((
                binder.node(&failed.node)?,
                Refusal::of(PluginName::Extender, code, reason),
            ))
        });
        advice.refused = refused.collect();
        advice
    }

    /// Decides about a pod on the nodes that extenders left.
    fn decide_with(&mut self, key: &PodKey, advice: &NodeAdvice, now: Duration) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let Some(profile) = self.profiles.get(pod.scheduler_name()) else {
            return;
        };
        let (nominations, refusals) = (&self.nominations, &self.refusals);
        let nominated = promises(nominations, refusals, &self.pods, &self.cluster, (key, pod), now);
        let decision = decide_advised(
            &mut self.cluster,
            &pod.compiled,
            profile,
            &mut self.scratch,
            &nominated,
            Some(advice),
            &mut NoStopwatch,
        );
        let avoided = nominated.avoided;
        // Nodes that they left out without a reason may be back with the next answer.
        self.settle(key, decision, &avoided, PluginSet::of(PluginName::Extender), now);
    }

    /// Asks extenders which evictions are right for a pod, if any has a say in it. Returns false if none has.
    pub(super) fn consult_about_victims(&mut self, key: &PodKey, candidates: &[Candidate]) -> bool {
        let extenders: Vec<_> = self.interested(key, Extender::preempts).collect();
        if extenders.is_empty() {
            return false;
        }
        let victims = candidates.iter().map(|candidate| self.victims(candidate)).collect();
        self.ask(key, extenders, Matter::Victims(victims), false);
        true
    }

    fn victims(&self, candidate: &Candidate) -> NodeVictims {
        let pods = candidate.victims.iter();
        NodeVictims {
            node: self.node_name(candidate.node),
            pods: pods.filter_map(|victim| self.victim(*victim)).collect(),
            violations: i64::try_from(candidate.violations).unwrap_or(i64::MAX),
        }
    }

    /// An eviction that extenders left; `None` if one of its pods is not there, or more important than the pod.
    fn candidate(&self, key: &PodKey, victims: &NodeVictims) -> Option<Candidate> {
        let priority = self.pods.get(key)?.compiled.footprint.priority;
        let node: NodeId = self.cluster.binder().node(&victims.node)?;
        let pods = self.cluster.pods();
        let found = |victim: &PodRef| {
            let mut on_node = pods.of_node(self.cluster.nodes().name(node));
            let (id, running) = on_node.find(|(_, running)| *running.footprint.uid == *victim.uid)?;
            (running.footprint.priority < priority).then_some(id)
        };
        let found: Option<Vec<_>> = victims.pods.iter().map(found).collect();
        Some(Candidate {
            node,
            victims: found.filter(|found| !found.is_empty())?,
            violations: usize::try_from(victims.violations).unwrap_or(0),
        })
    }
}
