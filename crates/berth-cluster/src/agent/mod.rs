//! The node agent: simulates the kubelet of one node.
//!
//! It manages the pods that are bound to its node. It "mounts" their volumes, which here means making the checks of a
//! kubelet, reports that their containers run, ends those that should end, and removes deleted pods. It starts no
//! process and touches no disk. If a CSI driver runs, the caller makes the calls that [`csi_mounts`] lists before a pod
//! starts, and reverts them before the pod is removed.
//!
//! ```text
//!   bound ──▶ refused (Failed)            mode `refuse`
//!     │
//!     ├─────▶ waits: a claim is not bound, a volume is not for this node, a Secret or ConfigMap is missing
//!     ▼
//!   Running ──▶ Succeeded or Failed       Job pods, and those with `berth.dev/run-seconds`
//!     │  ▲
//!     ▼  │ back-off
//!   CrashLoopBackOff                      those with `berth.dev/run-seconds` that are always restarted
//!     │
//!     ▼ deleted: removed when the grace period is over
//! ```

mod behaviour;
mod concerned;
mod configuration;
mod csi;
mod heartbeat;
mod mount;
mod running;
#[cfg(test)]
mod tests;

pub use concerned::concerned;
pub use csi::{CsiMount, csi_mounts};
pub use mount::is_reachable;
pub use mount::{MountProblem, volumes_of};
pub use running::reported_problem;

use super::field;
use super::garbage;
use super::lifecycle;
use super::names;
use super::objects::View;
use super::status::{self, Status};
use super::step::{self, Step};
use super::workloads::is_over;
use behaviour::{Life, Readiness};
use berth_core::effect::Effect;
use configuration::Missing;
use jiff::Timestamp;
use running::Wait;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SOURCE: &str = "kubelet";

/// The behaviour of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Normal.
    #[default]
    Run,
    /// Normal, on a node that accepts no new pods: it marks its node unschedulable. When this mode ends, make the node
    /// schedulable again, see [`uncordon`].
    Cordon,
    /// Rejects pods that do not run yet.
    Refuse,
    /// Silent: no pod starts, ends or is removed, and the node stops reporting that it is ready.
    Stop,
}

impl Mode {
    /// The mode in the annotation `berth.dev/agent` of a node: `run`, `cordon`, `refuse` or `stop`. `None` for any
    /// other value.
    #[must_use]
    pub fn of_node(node: &Value) -> Option<Self> {
        match field::annotation(node, names::AGENT_MODE) {
            None | Some("run") => Some(Self::Run),
            Some("cordon") => Some(Self::Cordon),
            Some("refuse") => Some(Self::Refuse),
            Some("stop") => Some(Self::Stop),
            Some(_) => None,
        }
    }
}

/// What agents do besides managing pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Report that the node is ready, and renew its lease. A simulation in which only a scenario removes nodes does not
    /// need this: renewals alone would keep it going forever.
    pub heartbeats: bool,
    /// How long containers take to stop when their pod is deleted, if less than the grace period. `None`: the full
    /// grace period.
    pub stop_seconds: Option<i64>,
    /// Make pods wait for missing Secrets and ConfigMaps. Files and snapshots omit these, so a simulation assumes that
    /// they exist.
    pub needs_configuration: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeats: false,
            stop_seconds: Some(1),
            needs_configuration: false,
        }
    }
}

/// Manages the pods of a node, and the node itself if enabled. A nonexistent node needs nothing.
#[must_use]
pub fn step(view: &dyn View, node: &str, mode: Mode, settings: &Settings, now: Timestamp) -> Step {
    let mut step = Step::default();
    let Some(found) = view.get("Node", "", node) else {
        return step;
    };
    if mode == Mode::Stop {
        return step;
    }
    keep_cordoned(found, mode, &mut step);
    if settings.heartbeats {
        heartbeat::beat(view, found, now, &mut step);
    }
    let mut agent = Agent {
        view,
        node: found,
        mode,
        settings,
        now,
        addresses: running::Addresses::of(view, found),
    };
    for pod in view.pods_on(node) {
        step.append(agent.look_after(pod));
    }
    step
}

/// Reports once that a node is ready, for callers without heartbeats: one without conditions, or one that was lost and whose
/// agent runs again, which loses its taints first. Conditions of a ready node, for example from a dump, are kept.
#[must_use]
pub fn announce(node: &Value, mode: Mode, now: Timestamp) -> Step {
    let mut step = Step::default();
    if mode == Mode::Stop {
        return step;
    }
    keep_cordoned(node, mode, &mut step);
    match status::find(node, "Ready") {
        Some(ready) if ready["status"] == "True" => {}
        // Both writes are for the version that was seen. The next call makes the second one.
        Some(_) if lifecycle::is_tainted(node) => lifecycle::set_taint(node, None, now, &mut step),
        Some(_) | None => heartbeat::write_conditions(node, now, &mut step),
    }
    step
}

/// Stops the agent of a node that is marked as not ready, for example in a dump: otherwise it would become ready as soon as an agent
/// runs. Remove the annotation to get it back.
pub fn stop_if_lost(node: &mut Value) {
    let is_lost = status::find(node, "Ready").is_some_and(|ready| ready["status"] != "True");
    if field::kind(node) == "Node" && is_lost && field::annotation(node, names::AGENT_MODE).is_none() {
        field::set(node, &["metadata", "annotations", names::AGENT_MODE], "stop".into());
    }
}

fn keep_cordoned(node: &Value, mode: Mode, step: &mut Step) {
    if mode == Mode::Cordon && !field::flag(node, "/spec/unschedulable") {
        step.effects.push(set_unschedulable(node, Some(true)));
    }
}

/// Manages one pod of a node, even if the node is gone: for callers that know which pod changed.
#[must_use]
pub fn pod_step(view: &dyn View, pod: &Value, mode: Mode, settings: &Settings, now: Timestamp) -> Step {
    let node = view.get("Node", "", field::text(pod, "/spec/nodeName"));
    match node {
        Some(node) if mode != Mode::Stop => {
            let addresses = running::Addresses::of(view, node);
            let mut agent = Agent {
                view,
                node,
                mode,
                settings,
                now,
                addresses,
            };
            agent.look_after(pod)
        }
        Some(_) => Step::default(),
        None => Step {
            effects: garbage::orphan(pod).into_iter().collect(),
            wake: None,
        },
    }
}

/// Reports that a pod waits because a driver did not publish its volume.
#[must_use]
pub fn mount_failed(view: &dyn View, pod: &Value, message: &str, now: Timestamp) -> Step {
    let mut step = Step::default();
    if let Some(node) = view.get("Node", "", field::text(pod, "/spec/nodeName")) {
        waits(pod, node, message, now, &mut step);
    }
    step
}

/// Writes once why a pod waits.
fn waits(pod: &Value, node: &Value, message: &str, now: Timestamp, step: &mut Step) {
    if running::reported_problem(pod) != message {
        let wait = Wait::Volume(message);
        step.effects.extend(running::waiting(pod, node, &wait, now).effect());
        step.warning(SOURCE, pod, "FailedMount", message.to_owned());
    }
}

/// Makes a node schedulable again.
#[must_use]
pub fn uncordon(node: &Value) -> Effect {
    set_unschedulable(node, None)
}

/// One write with two values: observers of writes see that the agent itself reverts its write.
fn set_unschedulable(node: &Value, unschedulable: Option<bool>) -> Effect {
    let body = json!({"spec": {"unschedulable": unschedulable}});
    step::patch(node, "set_unschedulable", body)
}

struct Agent<'a> {
    view: &'a dyn View,
    node: &'a Value,
    mode: Mode,
    settings: &'a Settings,
    now: Timestamp,
    addresses: running::Addresses,
}

impl Agent<'_> {
    fn look_after(&mut self, pod: &Value) -> Step {
        let mut step = Step::default();
        if field::is_deleting(pod) {
            self.stop(pod, &mut step);
        } else if is_over(pod) {
            // Nothing runs any more; the owner of the pod decides when it is deleted.
        } else if field::text(pod, "/status/phase") == "Running" {
            self.finish(pod, &mut step);
        } else if self.mode == Mode::Refuse {
            self.refuse(pod, &mut step);
        } else {
            self.start(pod, &mut step);
        }
        step
    }

    /// Removes a deleted pod after the grace period of its containers.
    fn stop(&self, pod: &Value, step: &mut Step) {
        let Some(deadline) = field::time(pod, "/metadata/deletionTimestamp") else {
            return;
        };
        let grace = field::count(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        let has_started = field::text(pod, "/status/phase") == "Running";
        let stop_seconds = if has_started {
            self.settings.stop_seconds
        } else {
            Some(0)
        };
        let stopped = stop_seconds.map(|seconds| field::after(deadline, seconds.min(grace) - grace));
        let stopped = stopped.unwrap_or(deadline);
        if stopped > self.now {
            return step.wake_at(stopped);
        }
        // A finalizer can keep the pod after its containers have stopped: removing it again changes nothing.
        if grace > 0 || field::items(pod, "/metadata/finalizers").is_empty() {
            if has_started {
                for container in field::items(pod, "/spec/containers") {
                    let message = format!("Stopping container {}", field::text(container, "/name"));
                    step.normal(SOURCE, pod, "Killing", message);
                }
            }
            step.remove(pod);
        }
    }

    fn refuse(&self, pod: &Value, step: &mut Step) {
        let mut status = Status::of(pod, self.now);
        let message = format!("Pod was rejected: node {} refuses new pods", field::name(self.node));
        status.set("phase", "Failed");
        status.set("reason", "UnexpectedAdmissionError");
        status.set("message", message.as_str());
        status.set("startTime", field::seconds(self.now));
        step.effects.extend(status.effect());
        step.warning(SOURCE, pod, "UnexpectedAdmissionError", message);
    }

    fn start(&mut self, pod: &Value, step: &mut Step) {
        if let Err(problem) = mount::check(self.view, pod, self.node) {
            return waits(pod, self.node, &problem.to_string(), self.now, step);
        }
        if self.settings.needs_configuration {
            match configuration::check(self.view, pod) {
                Ok(()) => {}
                Err(Missing::Volume(problem)) => return waits(pod, self.node, &problem, self.now, step),
                Err(Missing::Environment(problems)) => return self.lacks_configuration(pod, &problems, step),
            }
        }
        let came = field::time(pod, "/status/startTime").unwrap_or(self.now);
        if let Some(starts) = behaviour::starts_at(pod, came).filter(|starts| *starts > self.now) {
            let status = running::waiting(pod, self.node, &Wait::Time, self.now);
            step.effects.extend(status.effect());
            return step.wake_at(starts);
        }
        let address = self.addresses.next(pod);
        let status = running::started(pod, self.node, &address, self.now);
        self.run(pod, status, step);
        if let Some(ends) = running::ends_at(pod, self.now) {
            step.wake_at(ends);
        }
    }

    /// Writes that containers run from now on, with an event.
    fn run(&self, pod: &Value, mut status: Status<'_>, step: &mut Step) {
        let (readiness, ready_at) = behaviour::readiness(pod, self.now, self.now);
        if readiness != Readiness::Ready {
            status = running::unready(status, pod);
        }
        step.effects.extend(status.effect());
        for container in field::items(pod, "/spec/containers") {
            let message = format!("Started container {}", field::text(container, "/name"));
            step.normal(SOURCE, pod, "Started", message);
        }
        if readiness != Readiness::Ready {
            let message = format!("Readiness probe failed: see the annotation {}", names::READY_SECONDS);
            step.warning(SOURCE, pod, "Unhealthy", message);
        }
        for wake in [ready_at, behaviour::crashes_at(pod, self.now)].into_iter().flatten() {
            step.wake_at(wake);
        }
    }

    /// Writes once which containers of a pod cannot be created.
    fn lacks_configuration(&self, pod: &Value, problems: &BTreeMap<String, String>, step: &mut Step) {
        let status = running::waiting(pod, self.node, &Wait::Configuration(problems), self.now);
        let Some(effect) = status.effect() else {
            return;
        };
        step.effects.push(effect);
        for problem in problems.values() {
            step.warning(SOURCE, pod, "Failed", format!("Error: {problem}"));
        }
    }

    /// Ends or restarts a pod whose containers have run long enough, and keeps it ready until then.
    fn finish(&self, pod: &Value, step: &mut Step) {
        let started = field::time(pod, "/status/startTime").unwrap_or(self.now);
        match running::ends_at(pod, started) {
            Some(ends) if ends <= self.now => {
                step.effects.extend(running::ended(pod, self.now).effect());
                return;
            }
            Some(ends) => step.wake_at(ends),
            None => {}
        }
        match behaviour::life(pod, self.now) {
            Life::Running { ready, until } => {
                let status = match ready {
                    // While the agent was silent, the pod may have been marked as lost.
                    Readiness::Ready => running::ready(pod, self.now),
                    Readiness::Slow | Readiness::Failing => running::unready(Status::of(pod, self.now), pod),
                };
                step.effects.extend(status.effect());
                if let Some(until) = until {
                    step.wake_at(until);
                }
            }
            Life::Ends { since } => {
                step.effects.extend(running::crashed(pod, since, self.now).effect());
                for container in field::items(pod, "/spec/containers") {
                    let (name, pod_name) = (field::text(container, "/name"), field::name(pod));
                    let message = format!("Back-off restarting failed container {name} in pod {pod_name}");
                    step.warning(SOURCE, pod, "BackOff", message);
                }
            }
            Life::Waits { until, wake } => {
                if wake {
                    step.wake_at(until);
                }
            }
            Life::Restarts => self.run(pod, running::restarted(pod, self.now), step),
        }
    }
}
