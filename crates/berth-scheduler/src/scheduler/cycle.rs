//! One scheduling cycle: the next pod, a decision, an assumption, and the start of the binding.

use super::binding::Binding;
use super::plan::promises;
use super::{FailedStage, Outcome, Scheduler};
use crate::cluster::Cluster;
use crate::decide::{Decision, Placement, decide_timed};
use crate::diagnose::Diagnosis;
use crate::events::{ClusterEvent, Help};
use crate::framework::{Code, PluginName, PluginSet, PreFilter};
use crate::plugins;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::queue::{PodKey, Rousing};
use crate::stopwatch::{NoStopwatch, Stopwatch};
use berth_core::nodes::NodeId;
use std::sync::Arc;
use std::time::Duration;

impl Scheduler {
    /// Decides about the next pod. Returns `false` if none is to be tried now.
    pub fn step(&mut self, now: Duration) -> bool {
        self.step_timed(now, &mut NoStopwatch)
    }

    /// [`Self::step`] that measures the plugins.
    pub fn step_timed(&mut self, now: Duration, watch: &mut impl Stopwatch) -> bool {
        self.sweep_if_due(now);
        let Some((key, wish)) = self.next_pod(now) else {
            return false;
        };
        self.last_tried = Some(PodKey::clone(&key));
        if self.is_held_up(&key, now) {
            return true;
        }
        if self.asks_about(&key) {
            self.consult(&key, now, watch);
            return true;
        }
        let mut avoided = Vec::new();
        let decided = self.pods.get(&key).and_then(|pod| {
            let profile = self.profiles.get(pod.scheduler_name())?;
            let (nominations, refusals) = (&self.nominations, &self.refusals);
            let mut nominated = promises(nominations, refusals, &self.pods, &self.cluster, (&key, pod), now);
            nominated.own = nominated.own.or(wish);
            let decision = decide_timed(
                &mut self.cluster,
                &pod.compiled,
                profile,
                &mut self.scratch,
                &nominated,
                watch,
            );
            avoided = nominated.avoided;
            Some(decision)
        });
        let node = decided.as_ref().and_then(Decision::node);
        if wish.is_some() && wish != node {
            self.plan.fails();
        }
        match decided {
            Some(decision) => self.settle(&key, decision, &avoided, PluginSet::default(), now),
            None => self.queue.remove(&key),
        }
        true
    }

    /// Carries out a decision about a pod. Nodes that did not admit pods like it lately are avoided.
    pub(super) fn settle(
        &mut self,
        key: &PodKey,
        decision: Decision,
        avoided: &[NodeId],
        refused_too: PluginSet,
        now: Duration,
    ) {
        match decision {
            Decision::Place(placement) => {
                // A node that did not admit pods like it lately is the last resort.
                let rollback = avoided.contains(&placement.node).then(|| self.roll_back(key, avoided));
                match rollback.flatten() {
                    Some(message) => self.wait_for_new_claims(key, message, now),
                    None => self.place_pod(key, &placement, now),
                }
            }
            Decision::Refuse(diagnosis) => self.refuse(key, &diagnosis, refused_too, now),
        }
    }

    /// Assumes the pod and its volumes on a node, and starts its binding.
    fn place_pod(&mut self, key: &PodKey, placement: &Placement, now: Duration) {
        let node = placement.node;
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let timeout = self
            .profiles
            .get(pod.scheduler_name())
            .map_or(Duration::ZERO, |profile| profile.volume_binding.bind_timeout);
        match self.cluster.assume_volumes(node, &placement.volumes) {
            Ok(mut assumption) => {
                let footprint = Arc::clone(&pod.compiled.footprint);
                let assumed_pod = self.cluster.assume_pod(&pod.compiled, node);
                self.hold_volumes_of(key, &mut assumption);
                self.settle_room(key, node, now);
                // Others may wait for exactly this pod to have a node; they need not wait until it is bound.
                self.happened(&ClusterEvent::PodPlaced { node, pod: footprint }, now);
                let binding = Binding::new(assumption, assumed_pod, now + timeout);
                self.start_binding(key, binding, now);
            }
            Err(error) => {
                let outcome = Outcome::Failed(FailedStage::AssumeVolumes);
                self.say(key, outcome, format!("assuming volumes: {error}"));
                self.counts.errors += 1;
                self.queue.failed(key, now);
            }
        }
    }

    /// Claims of a pod are given back: it is tried again when its claims change.
    fn wait_for_new_claims(&mut self, key: &PodKey, message: String, now: Duration) {
        self.counts.unschedulable += 1;
        self.say(key, Outcome::Unschedulable, message);
        self.queue.refused(key, self.concerned(key), now);
    }

    /// The plugins whose events could help a pod with claims that can be given back: all of them. The pod need not stay where its volumes are.
    fn concerned(&self, key: &PodKey) -> PluginSet {
        let profile = self
            .pods
            .get(key)
            .and_then(|pod| self.profiles.get(pod.scheduler_name()));
        let mut plugins = PluginSet::default();
        let filters = profile.into_iter().flat_map(|profile| profile.filters.iter());
        filters.for_each(|plugin| plugins.insert(*plugin));
        plugins
    }

    /// A pod fits nowhere: it sleeps with the plugins that refused it, and with these, until an event could help it.
    pub(super) fn refuse(&mut self, key: &PodKey, diagnosis: &Diagnosis, too: PluginSet, now: Duration) {
        let mut message = diagnosis.message();
        if diagnosis.is_aborted() {
            // It is unknown whether the pod fits, so there is no event to wait for.
            self.counts.errors += 1;
            self.say(key, Outcome::Failed(FailedStage::Decision), message);
            self.queue.failed(key, now);
            return;
        }
        // Nobody has to go for a pod that fits with other volumes.
        if let Some(rollback) = self.roll_back(key, &[]) {
            return self.wait_for_new_claims(key, format!("{message} {rollback}"), now);
        }
        self.counts.unschedulable += 1;
        let (preemption, refused_too) = self.make_room(key, diagnosis, now);
        if let Some(preemption) = preemption {
            message = format!("{message} {preemption}");
        }
        if let Some(others) = self.says_who_goes_first(key) {
            message = format!("{message} {others}");
        }
        self.say(key, Outcome::Unschedulable, message);
        let mut refused_by = refused_by(diagnosis);
        too.iter().for_each(|plugin| refused_by.insert(plugin));
        // An event that helps these could let the pod preempt others.
        refused_too.iter().for_each(|plugin| refused_by.insert(plugin));
        if self.pods.get(key).is_some_and(|pod| pod.has_clean_claims) {
            refused_by = self.concerned(key);
        }
        self.queue.refused(key, refused_by, now);
    }

    /// Handles an event: wakes the sleeping pods that it could help.
    pub(super) fn happened(&mut self, event: &ClusterEvent, now: Duration) {
        self.consulting.events += 1;
        let Self {
            cluster,
            queue,
            profiles,
            pods,
            nominations,
            evictions,
            ..
        } = self;
        let could_help = |refused_by| event.could_help(refused_by);
        let woken = queue.rouse(now, could_help, |key, refused_by| {
            let pod = pods.get(key);
            let Some((pod, profile)) = pod.and_then(|pod| Some((pod, profiles.get(pod.scheduler_name())?))) else {
                return Rousing::SleepOn;
            };
            if pod.has_clean_claims {
                return Rousing::Wake;
            }
            let mut on_node = event.new_node();
            for plugin in refused_by.iter() {
                match event.help(plugin) {
                    Help::No => {}
                    Help::Perhaps => return Rousing::Wake,
                    Help::IfConcerned => {
                        if event.concerns(cluster, &pod.compiled, plugin) {
                            return Rousing::Wake;
                        }
                    }
                    Help::OnNode(node) => on_node = Some(node),
                }
            }
            let Some(node) = on_node else {
                return Rousing::SleepOn;
            };
            match refusal_on(cluster, &pod.compiled, profile, refused_by, node) {
                None | Some((_, Code::Error)) => Rousing::Wake,
                // A pod that preempted others waits for its room. Others can preempt, if that would be sufficient now.
                Some((_, Code::Unschedulable))
                    if !evictions.values().any(|eviction| eviction.by == *key)
                        && fits_without_lesser(cluster, &pod.compiled, profile, refused_by, node) =>
                {
                    Rousing::Wake
                }
                Some((plugin, _)) if refused_by.contains(plugin) => Rousing::SleepOn,
                // It cannot use the room nominated for it, and must report that.
                Some(_) if nominations.get(key).is_some() => Rousing::Wake,
                Some((plugin, _)) => Rousing::RefusedToo(plugin),
            }
        });
        self.counts.woken += woken as u64;
    }
}

/// Which plugin refuses a pod on a node. Those that refused it before are run first: if one still does, nothing has
/// changed.
fn refusal_on(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    refused_by: PluginSet,
    node: NodeId,
) -> Option<(PluginName, Code)> {
    let filters = profile.filters.iter().copied();
    let before = filters.clone().filter(|plugin| refused_by.contains(*plugin));
    let others = filters.filter(|plugin| !refused_by.contains(*plugin));
    before
        .chain(others)
        .find_map(|plugin| match plugins::pre_filter(plugin, cluster, pod, profile) {
            PreFilter::Skip => None,
            PreFilter::Refused(refusal) => Some((plugin, refusal.code)),
            PreFilter::Ready { state, only_nodes } => {
                let name = cluster.nodes().name(node);
                if only_nodes.is_some_and(|names| !names.contains(&name)) {
                    return Some((plugin, Code::UnschedulableAndUnresolvable));
                }
                state.filter(cluster, node).map(|refusal| (plugin, refusal.code))
            }
        })
}

/// Whether a node would fit a pod without the less important pods there.
fn fits_without_lesser(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    refused_by: PluginSet,
    node: NodeId,
) -> bool {
    let priority = pod.footprint.priority;
    let lowest = cluster.pods().lowest_priority();
    if !profile.preempts || pod.never_preempts || lowest.is_none_or(|lowest| lowest >= priority) {
        return false;
    }
    let on_node = cluster.pods().of_node(cluster.nodes().name(node));
    let lesser = on_node.filter(|(_, running)| running.footprint.priority < priority);
    let lesser: Vec<_> = lesser.map(|(pod, _)| pod).collect();
    let lifted: Vec<_> = lesser.into_iter().filter_map(|pod| cluster.lift(pod)).collect();
    let fits = !lifted.is_empty() && refusal_on(cluster, pod, profile, refused_by, node).is_none();
    lifted.into_iter().for_each(|lifted| cluster.put_back(lifted));
    fits
}

/// The plugins whose refusals prevent a pod from running.
fn refused_by(diagnosis: &Diagnosis) -> PluginSet {
    let mut plugins = PluginSet::default();
    let refusals = diagnosis.nodes.iter().map(|(_, refusal)| refusal);
    for refusal in refusals.chain(&diagnosis.early) {
        plugins.insert(refusal.plugin);
    }
    plugins
}
