//! Job: pods that run until enough of them have succeeded.
//!
//! Results are counted from the existing pods and never fall below the current status, so that a finished pod may be
//! deleted without its work being repeated.

use super::BURST;
use super::pods;
use crate::field;
use crate::hash::Suffixes;
use crate::names;
use crate::objects::View;
use crate::status::{self, Condition, Status};
use crate::step::Step;
use berth_core::backoff::Backoff;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const SOURCE: &str = "job-controller";
/// The delay after a pod has failed.
const PAUSE: Backoff = Backoff {
    initial: Duration::from_secs(10),
    max: Duration::from_secs(600),
};

/// The observed state of a Job.
struct Look<'a> {
    view: &'a dyn View,
    job: &'a Value,
    now: Timestamp,
    active: Vec<&'a Value>,
    leaving: i64,
    /// The indexes of pods that succeeded, for indexed Jobs.
    done: BTreeSet<i64>,
    succeeded: i64,
    failed: i64,
    last_failure: Option<Timestamp>,
    completions: Option<i64>,
    is_indexed: bool,
}

/// How a Job has ended.
enum End {
    Complete,
    Failed {
        reason: &'static str,
        message: &'static str,
    },
}

pub(super) fn reconcile(view: &dyn View, job: &Value, suffixes: &mut Suffixes, now: Timestamp) -> Step {
    let mut step = Step::default();
    if status::holds(job, "Complete") || status::holds(job, "Failed") {
        // Deletions that were too many for one step when it ended.
        let look = Look::at(view, job, now);
        look.stop(look.active.len(), &mut step);
        expire(job, now, &mut step);
        return step;
    }
    let look = Look::at(view, job, now);
    let is_suspended = field::flag(job, "/spec/suspend");
    let end = look.end(&mut step);
    if end.is_some() || is_suspended {
        look.stop(look.active.len(), &mut step);
    } else {
        look.start_or_stop(suffixes, &mut step);
    }
    look.write_status(end.as_ref(), is_suspended, &mut step);
    match end {
        Some(End::Complete) => {
            step.normal(SOURCE, job, "Completed", "Job completed".to_owned());
        }
        Some(End::Failed { reason, message }) => {
            step.warning(SOURCE, job, reason, message.to_owned());
        }
        None => {}
    }
    step
}

/// Deletes a finished Job after its TTL.
fn expire(job: &Value, now: Timestamp, step: &mut Step) {
    let ended = ["Complete", "Failed"].iter().filter(|name| status::holds(job, name));
    let ended = ended
        .filter_map(|name| field::time(status::find(job, name)?, "/lastTransitionTime"))
        .min();
    let kept = field::count(job, "/spec/ttlSecondsAfterFinished");
    if let Some((ended, kept)) = ended.zip(kept) {
        let expires = field::after(ended, kept);
        if expires <= now {
            step.delete(job);
        } else {
            step.wake_at(expires);
        }
    }
}

impl<'a> Look<'a> {
    fn at(view: &'a dyn View, job: &'a Value, now: Timestamp) -> Self {
        let mut look = Self {
            view,
            job,
            now,
            active: Vec::new(),
            leaving: 0,
            done: BTreeSet::new(),
            succeeded: 0,
            failed: 0,
            last_failure: None,
            completions: field::count(job, "/spec/completions"),
            is_indexed: field::text(job, "/spec/completionMode") == "Indexed",
        };
        if look.completions.is_none() && field::count(job, "/spec/parallelism").is_none() {
            look.completions = Some(1);
        }
        let owned = view
            .dependents(field::uid(job))
            .filter(|object| field::kind(object) == "Pod" && field::is_controlled_by(object, job));
        for pod in owned {
            match field::text(pod, "/status/phase") {
                "Succeeded" => {
                    look.succeeded += 1;
                    look.done.extend(index_of(pod));
                }
                "Failed" => {
                    look.failed += 1;
                    look.last_failure = look.last_failure.max(ended_at(pod));
                }
                _ if field::is_deleting(pod) => look.leaving += 1,
                _ => look.active.push(pod),
            }
        }
        if look.is_indexed {
            look.done.extend(indexes(field::text(job, "/status/completedIndexes")));
            look.succeeded = i64::try_from(look.done.len()).unwrap_or(i64::MAX);
        }
        look.succeeded = look.succeeded.max(field::count(job, "/status/succeeded").unwrap_or(0));
        look.failed = look.failed.max(field::count(job, "/status/failed").unwrap_or(0));
        look
    }

    fn parallelism(&self) -> i64 {
        field::count(self.job, "/spec/parallelism").unwrap_or(1)
    }

    /// How the Job has ended, if it has.
    fn end(&self, step: &mut Step) -> Option<End> {
        if self.failed > field::count(self.job, "/spec/backoffLimit").unwrap_or(6) {
            return Some(End::Failed {
                reason: "BackoffLimitExceeded",
                message: "Job has reached the specified backoff limit",
            });
        }
        let started = field::time(self.job, "/status/startTime");
        let limit = field::count(self.job, "/spec/activeDeadlineSeconds");
        if let Some((started, limit)) = started.zip(limit) {
            let deadline = field::after(started, limit);
            if deadline <= self.now {
                return Some(End::Failed {
                    reason: "DeadlineExceeded",
                    message: "Job was active longer than specified deadline",
                });
            }
            step.wake_at(deadline);
        }
        let is_complete = match self.completions {
            Some(completions) => self.succeeded >= completions,
            // Pods that share a queue: the first success means that it is empty, and the others may finish.
            None => self.succeeded > 0 && self.active.is_empty(),
        };
        is_complete.then_some(End::Complete)
    }

    /// How many pods should run now.
    fn wanted(&self) -> i64 {
        match self.completions {
            Some(completions) => self.parallelism().min(completions - self.succeeded),
            None if self.succeeded > 0 => i64::try_from(self.active.len()).unwrap_or(i64::MAX),
            None => self.parallelism(),
        }
    }

    fn start_or_stop(&self, suffixes: &mut Suffixes, step: &mut Step) {
        let running = i64::try_from(self.active.len()).unwrap_or(i64::MAX);
        let wanted = self.wanted().max(0);
        if running > wanted {
            return self.stop(usize::try_from(running - wanted).unwrap_or(0), step);
        }
        // A terminating pod still counts, so that no two do the same work.
        let missing = usize::try_from(wanted - running - self.leaving).unwrap_or(0).min(BURST);
        if missing == 0 {
            return;
        }
        if let Some(resumes) = self.backoff().filter(|resumes| *resumes > self.now) {
            return step.wake_at(resumes);
        }
        if !self.is_indexed {
            return (0..missing).for_each(|_| self.create_pod(None, suffixes, step));
        }
        let taken: BTreeSet<i64> = self.active.iter().filter_map(|pod| index_of(pod)).collect();
        let free =
            (0..self.completions.unwrap_or(0)).filter(|index| !self.done.contains(index) && !taken.contains(index));
        free.take(missing)
            .for_each(|index| self.create_pod(Some(index), suffixes, step));
    }

    /// Until when to wait after the last failure.
    fn backoff(&self) -> Option<Timestamp> {
        let pause = PAUSE.delay(u32::try_from(self.failed).unwrap_or(0));
        let until = |failure: Timestamp| failure.saturating_add(pause).unwrap_or(Timestamp::MAX);
        self.last_failure.map(until)
    }

    fn create_pod(&self, index: Option<i64>, suffixes: &mut Suffixes, step: &mut Step) {
        let job = field::name(self.job);
        let mut pod = pods::template_pod(self.job, &self.job["spec"]["template"]);
        let labels = [
            (names::JOB_NAME, job),
            (names::JOB_NAME_LEGACY, job),
            (names::CONTROLLER_UID, field::uid(self.job)),
            (names::CONTROLLER_UID_LEGACY, field::uid(self.job)),
        ];
        for (key, value) in labels {
            field::set(&mut pod, &["metadata", "labels", key], json!(value));
        }
        let mut base = format!("{job}-");
        if let Some(index) = index {
            base = format!("{job}-{index}-");
            let text = json!(index.to_string());
            field::set(
                &mut pod,
                &["metadata", "labels", names::JOB_COMPLETION_INDEX],
                text.clone(),
            );
            field::set(
                &mut pod,
                &["metadata", "annotations", names::JOB_COMPLETION_INDEX],
                text,
            );
            field::set(&mut pod, &["spec", "hostname"], json!(format!("{job}-{index}")));
        }
        let namespace = field::namespace(self.job);
        let name = suffixes.name(&base, |name| self.view.get("Pod", namespace, name).is_some());
        pods::name_pod(&mut pod, &base, &name);
        step.create(pod);
        step.normal(SOURCE, self.job, "SuccessfulCreate", format!("Created pod: {name}"));
    }

    fn stop(&self, count: usize, step: &mut Step) {
        // Those with the least progress are deleted first.
        let mut ranked = self.active.clone();
        ranked.sort_by_key(|pod| {
            (
                pods::is_ready(pod),
                field::time(pod, "/status/startTime"),
                field::name(pod),
            )
        });
        for pod in ranked.iter().take(count.min(BURST)) {
            let message = format!("Deleted pod: {}", field::name(pod));
            step.delete(pod);
            step.normal(SOURCE, self.job, "SuccessfulDelete", message);
        }
    }

    fn write_status(&self, end: Option<&End>, is_suspended: bool, step: &mut Step) {
        let is_over = end.is_some();
        let ready = self.active.iter().filter(|pod| pods::is_ready(pod)).count();
        let mut status = Status::of(self.job, self.now);
        let counted = |count: usize| {
            if is_over {
                0
            } else {
                i64::try_from(count).unwrap_or(i64::MAX)
            }
        };
        status.count("active", counted(self.active.len()));
        status.set("ready", counted(ready));
        status.set("terminating", if is_over { 0 } else { self.leaving });
        status.count("succeeded", self.succeeded);
        status.count("failed", self.failed);
        if self.is_indexed {
            status.set("completedIndexes", ranges(&self.done));
        }
        if self.job["status"]["startTime"].is_null() && !is_suspended {
            status.set("startTime", field::seconds(self.now));
        }
        if is_suspended || status::find(self.job, "Suspended").is_some() {
            let (reason, message) = if is_suspended {
                ("JobSuspended", "Job suspended")
            } else {
                ("JobResumed", "Job resumed")
            };
            status.probed_condition(Condition {
                name: "Suspended",
                holds: is_suspended,
                reason,
                message,
            });
        }
        let (name, reason, message) = match end {
            None => ("", "", ""),
            Some(End::Complete) => (
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            ),
            Some(End::Failed { reason, message }) => ("Failed", *reason, *message),
        };
        if is_over {
            status.probed_condition(Condition {
                name,
                holds: true,
                reason,
                message,
            });
        }
        if matches!(end, Some(End::Complete)) {
            status.set("completionTime", field::seconds(self.now));
        }
        step.effects.extend(status.effect());
    }
}

fn index_of(pod: &Value) -> Option<i64> {
    field::annotation(pod, names::JOB_COMPLETION_INDEX)?.parse().ok()
}

/// When the last container of a pod ended; if unknown, when the pod was created.
fn ended_at(pod: &Value) -> Option<Timestamp> {
    let containers = field::items(pod, "/status/containerStatuses").iter();
    let ended = containers
        .filter_map(|container| field::time(container, "/state/terminated/finishedAt"))
        .max();
    ended.or_else(|| field::time(pod, "/metadata/creationTimestamp"))
}

/// Indexes in the format of Jobs: `0-2,5`.
fn ranges(indexes: &BTreeSet<i64>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for index in indexes {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            Some(_) | None => ranges.push((*index, *index)),
        }
    }
    let texts = ranges.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Parses the format of [`ranges`]. A Job has at most 100,000 indexes, as Kubernetes requires.
fn indexes(text: &str) -> BTreeSet<i64> {
    let parts = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<i64>().ok()?..=last.parse::<i64>().ok()?)
    });
    parts.flatten().filter(|index| *index >= 0).take(100_000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_in_ranges() {
        for text in ["", "0", "0,1", "0-2", "0-2,5,7,8,10-12"] {
            assert_eq!(ranges(&indexes(text)), text);
        }
        assert!(indexes("x,-3,9-1").is_empty());
        assert_eq!(indexes("0-99999999999").len(), 100_000);
    }
}
