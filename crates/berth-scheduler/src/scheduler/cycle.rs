//! One scheduling cycle: the next pod, a decision, an assumption, and the binding handed on.

use super::Scheduler;
use super::binding::Binding;
use super::preempting::nominated;
use crate::decide::{Decision, decide_timed};
use crate::diagnose::Diagnosis;
use crate::events::{ClusterEvent, Help};
use crate::framework::{PluginSet, PreFilter};
use crate::plugins::{self, FilterState};
use crate::queue::PodKey;
use crate::stopwatch::{NoStopwatch, Stopwatch};
use berth_core::nodes::NodeId;
use std::time::Duration;

impl Scheduler {
    /// Decides about the pod whose turn it is. `false` if none is to be tried now.
    pub fn step(&mut self, now: Duration) -> bool {
        self.step_timed(now, &mut NoStopwatch)
    }

    /// The same, and says how long the plugins take.
    pub fn step_timed(&mut self, now: Duration, watch: &mut impl Stopwatch) -> bool {
        let Some(key) = self.queue.pop(now) else {
            return false;
        };
        self.last_tried = Some(PodKey::clone(&key));
        let decided = self.pods.get(&key).and_then(|pod| {
            let profile = self.profiles.get(pod.scheduler_name())?;
            let nominated = nominated(&self.nominations, &self.pods, &self.cluster, &key);
            Some(decide_timed(
                &mut self.cluster,
                &pod.compiled,
                profile,
                &mut self.scratch,
                &nominated,
                watch,
            ))
        });
        match decided {
            Some(Decision::Place(placement)) => self.place_pod(&key, placement.node, now),
            Some(Decision::Refuse(diagnosis)) => self.refuse(&key, &diagnosis, now),
            None => self.queue.remove(&key),
        }
        true
    }

    /// Assumes the pod and its volumes on a node, and starts its binding.
    fn place_pod(&mut self, key: &PodKey, node: NodeId, now: Duration) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let timeout = self
            .profiles
            .get(pod.scheduler_name())
            .map_or(Duration::ZERO, |profile| profile.volume_binding.bind_timeout);
        let volumes = FilterState::volume_binding(&self.scratch.states)
            .and_then(|state| state.on_node(&self.cluster, node).ok())
            .unwrap_or_default();
        match self.cluster.binder_mut().assume(node, &volumes) {
            Ok(assumption) => {
                let assumed_pod = self.cluster.assume_pod(&pod.compiled, node);
                self.nominations.remove(key);
                let binding = Binding::new(
                    (node, self.cluster.nodes().name(node)),
                    volumes,
                    assumption,
                    assumed_pod,
                    now + timeout,
                );
                self.start_binding(key, binding, now);
            }
            Err(error) => {
                self.say(key, "SchedulerError", format!("assuming volumes: {error}"));
                self.counts.errors += 1;
                self.queue.failed(key, now);
            }
        }
    }

    fn refuse(&mut self, key: &PodKey, diagnosis: &Diagnosis, now: Duration) {
        self.counts.unschedulable += 1;
        let mut message = diagnosis.message();
        if let Some(preemption) = self.make_room(key, diagnosis, now) {
            message = format!("{message} {preemption}");
        }
        self.say(key, "Unschedulable", message);
        self.queue.refused(key, refused_by(diagnosis), now);
    }

    /// An event: wakes the sleeping pods that it could help.
    pub(super) fn happened(&mut self, event: &ClusterEvent, now: Duration) {
        let Self {
            cluster,
            queue,
            profiles,
            pods,
            ..
        } = self;
        let woken = queue.wake_if(now, |key, refused_by| {
            let Some(pod) = pods.get(key) else {
                return false;
            };
            let mut on_node = None;
            for plugin in refused_by.iter() {
                match event.help(plugin) {
                    Help::No => {}
                    Help::Perhaps => return true,
                    Help::IfUsed => {
                        if pod.uses(cluster, event) {
                            return true;
                        }
                    }
                    Help::OnNode(node) => on_node = Some(node),
                }
            }
            let profile = profiles.get(pod.scheduler_name());
            on_node.zip(profile).is_some_and(|(node, profile)| {
                profile.filters.iter().all(|plugin| {
                    match plugins::pre_filter(*plugin, cluster, &pod.compiled, profile) {
                        PreFilter::Skip => true,
                        PreFilter::Refused(_) => false,
                        PreFilter::Ready { state, only_nodes } => {
                            let name = cluster.nodes().name(node);
                            only_nodes.is_none_or(|names| names.contains(&name))
                                && state.filter(cluster, node).is_none()
                        }
                    }
                })
            })
        });
        self.counts.woken += woken as u64;
    }
}

/// The plugins whose refusals keep a pod from running.
fn refused_by(diagnosis: &Diagnosis) -> PluginSet {
    let mut plugins = PluginSet::default();
    let refusals = diagnosis.nodes.iter().map(|(_, refusal)| refusal);
    for refusal in refusals.chain(&diagnosis.early) {
        plugins.insert(refusal.plugin);
    }
    plugins
}
