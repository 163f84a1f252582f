//! What schedulers have done about a pod: whether one serves it, has tried it, and tries it again.

use super::{Asked, Waiting};
use crate::explain::cause::Cause;
use crate::explain::evidence::{Event, Lease, lasting};
use berth_core::api;
use berth_scheduler::queue::QueueTimes;
use berth_scheduler::scheduler::{is_binding_timeout, scheduler_name};

/// A component that has written an event this recently is active, in seconds.
const RECENT: i64 = 3600;
/// A scheduler tries a new pod within this time, in seconds: until then, its silence shows nothing.
const FIRST_TRY: i64 = 10;
/// A pod that no scheduler has tried for this long is overlooked, in seconds. Schedulers with many pending pods take some time.
const OVERLOOKED: i64 = 60;
/// How late the time of a repeated event may be, in seconds: kube-scheduler writes it every 30 minutes.
const EVENTS_LATE: i64 = 1800;

impl Asked<'_> {
    /// No scheduler serves the pod's `schedulerName`. If leases were not read, this is unknown.
    pub(super) fn unserved(&self) -> Option<Waiting> {
        let name = scheduler_name(self.pod);
        let evidence = &self.world.evidence;
        let is_new = self.pod_age().is_some_and(|age| age < FIRST_TRY);
        if !evidence.has_leases() || is_new || self.was_looked_at() {
            return None;
        }
        let now = self.now();
        let held = || evidence.leases.iter().filter(|lease| lease.is_held(now));
        let is_recent = |event: &Event| event.is_of(name) && self.age(event.last).is_some_and(|age| age < RECENT);
        let placed = self.world.objects.pods.values().any(|pod| {
            let later = pod.metadata.creation_timestamp >= self.pod.metadata.creation_timestamp;
            scheduler_name(pod) == name && !pod.spec.node_name.is_empty() && later
        });
        let may_serve = |lease: &Lease| lease.serves(name).unwrap_or(true);
        if held().any(may_serve) || placed || evidence.events.iter().any(is_recent) {
            return None;
        }
        let silent = if evidence.has_events() {
            " and wrote no event in the last hour"
        } else {
            ""
        };
        let text = format!(
            "waits{} for scheduler {name:?}, which does not respond: it holds no lease{silent}",
            self.since(self.pod.metadata.creation_timestamp.as_deref())
        );
        let expired = evidence.leases.iter().filter(|lease| may_serve(lease)).map(|lease| {
            let renewed = lease.renewed.map_or("never renewed".to_owned(), |renewed| {
                format!("last renewed {} ago", self.ago(renewed))
            });
            format!(
                "lease {}/{} of {}: {renewed}",
                lease.namespace, lease.name, lease.holder
            )
        });
        let others = held().filter(|lease| !lease.scheduler_names().is_empty()).map(|lease| {
            let names = lease.scheduler_names().join(", ");
            format!(
                "lease {}/{} is held by a scheduler that serves {names}",
                lease.namespace, lease.name
            )
        });
        Some(Waiting::new(Cause::PodSchedulerAbsent, text).with(expired.chain(others)))
    }

    /// Whether a scheduler has reported anything about the pod.
    fn was_looked_at(&self) -> bool {
        let selected = self.report.claims.iter().any(|claim| claim.selected_node().is_some());
        selected || self.refusal().is_some()
    }

    /// The condition that a scheduler sets on a pod that it refuses.
    fn condition(&self) -> Option<&api::PodCondition> {
        let mut conditions = self.pod.status.conditions.iter();
        conditions.find(|condition| condition.kind == "PodScheduled" && condition.status == "False")
    }

    /// What the scheduler last said when it refused the pod, and how many seconds ago, if that is known.
    fn refusal(&self) -> Option<(&str, Option<i64>)> {
        let refusals = self.events().filter(|event| event.reason == "FailedScheduling");
        match (refusals.max_by_key(|event| event.last), self.condition()) {
            (Some(event), _) => Some((&event.message, self.age(event.last))),
            (None, Some(condition)) => Some((&condition.message, None)),
            (None, None) => None,
        }
    }

    /// Binding the volumes took too long, maybe more than once.
    pub(super) fn timed_out(&self) -> Option<Waiting> {
        let is_late = |event: &&Event| event.reason == "FailedScheduling" && is_binding_timeout(&event.message);
        let found: Vec<&Event> = self.events().filter(is_late).collect();
        let last = found.iter().filter_map(|event| event.last).max();
        let times: u64 = found.iter().map(|event| event.count).sum();
        let last = last.map_or(String::new(), |last| format!(", last {} ago", self.ago(last)));
        let message = &found.first()?.message;
        let times = if times == 1 {
            "once".to_owned()
        } else {
            format!("{times} times")
        };
        let text = format!("got a node, but its volumes were not bound in time: {times}{last}");
        Some(Waiting::new(Cause::PodBindingTimedOut, text).with([format!("the scheduler says: {message}")]))
    }

    /// The scheduler refused it, and will retry, or should have.
    pub(super) fn refused_before(&self) -> Option<Waiting> {
        let (message, age) = self.refusal()?;
        let patience = QueueTimes::default().flush_after.as_secs().cast_signed();
        let told = (!message.is_empty()).then(|| format!("the scheduler said: {message}"));
        let when = age.map_or(String::new(), |age| format!(" {} ago", lasting(age)));
        if age.is_some_and(|age| age > patience + EVENTS_LATE) {
            let text = format!(
                "was refused{when}, fits now and has not been tried again: schedulers retry every {}",
                lasting(patience)
            );
            return Some(Waiting::new(Cause::PodOverlooked, text).with(told));
        }
        // The time of an event that is repeated may be that of an earlier try.
        let within = age.map(|age| patience - age.max(0)).filter(|within| *within > 0);
        let text = format!(
            "was refused{when} but fits now: the scheduler tries it again within {}, or when something changes",
            lasting(within.unwrap_or(patience))
        );
        Some(Waiting {
            retry_within_seconds: within,
            ..Waiting::new(Cause::PodRefusedBefore, text).with(told)
        })
    }

    /// No scheduler has processed it. Nothing can be said about a pod that no API server has stored.
    pub(super) fn not_looked_at(&self) -> Option<Waiting> {
        let created = self.pod.metadata.creation_timestamp.as_deref()?;
        if !self.report.schedulable || !self.is_pending() {
            return None;
        }
        let text = format!("waits{}; no scheduler has tried it yet", self.since(Some(created)));
        let code = match self.pod_age() {
            Some(age) if age > OVERLOOKED => Cause::PodOverlooked,
            _ => Cause::PodNotLookedAt,
        };
        Some(Waiting::new(code, text))
    }
}
