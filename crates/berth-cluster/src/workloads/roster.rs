//! The pods of a StatefulSet as far as its controller reads them, updated where pods changed.
//!
//! An ordered set is reconciled several times for each of its pods. If each time looked at all of them, thousands of replicas would take
//! millions of looks; so this remembers what they showed, and finds the ones that need something.
//!
//! ```text
//!   start ............. frontier ............. end
//!   │ all exist, except  │ none exists, except │
//!   │ `holes`            │ a few               │
//! ```

use super::pods::{self, Availability, Selector};
use super::stateful_set::ordinal;
use crate::field;
use crate::names;
use crate::objects::View;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a pod showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) is_leaving: bool,
    pub(super) is_over: bool,
    pub(super) is_ready: bool,
    has_node: bool,
    pub(super) available: Availability,
    revision: String,
}

impl Member {
    fn of(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> Self {
        Self {
            is_leaving: field::is_deleting(pod),
            is_over: pods::is_over(pod),
            is_ready: pods::is_ready(pod),
            has_node: !field::text(pod, "/spec/nodeName").is_empty(),
            available: pods::availability(pod, min_ready_seconds, now),
            revision: field::label(pod, names::CONTROLLER_REVISION_HASH).to_owned(),
        }
    }

    pub(super) fn is_healthy(&self) -> bool {
        !self.is_leaving && self.is_ready
    }

    /// Whether there is something to do about it, or to wait for.
    fn is_awaited(&self) -> bool {
        self.is_leaving || self.is_over || !self.has_node || self.available != Availability::Now
    }
}

/// The pods of one set, including condemned ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roster {
    uid: String,
    spec: Value,
    latest: String,
    /// Up to which changes are read.
    read: u64,
    members: BTreeMap<i64, Member>,
    awaited: BTreeSet<i64>,
    unhealthy: BTreeSet<i64>,
    outdated: BTreeSet<i64>,
    /// When ready pods will be available.
    due: BTreeSet<(Timestamp, i64)>,
    /// By revision: the pods that are not being deleted.
    revisions: BTreeMap<String, i64>,
    ready: i64,
    available: i64,
    frontier: i64,
    holes: BTreeSet<i64>,
}

impl Roster {
    /// Reads what changed since the last time, or everything if that is unknown or the set is another one now.
    pub(super) fn refresh(&mut self, view: &dyn View, set: &Value, latest: &str, now: Timestamp) {
        let is_same = self.uid == field::uid(set) && self.latest == latest && self.spec == set["spec"];
        let changed = view.changed_pods(field::uid(set), self.read).filter(|_| is_same);
        let selector = Selector::of(set);
        match changed {
            Some(changed) => {
                let changed: BTreeSet<&str> = changed.collect();
                for name in changed {
                    if let Some(ordinal) = ordinal(field::name(set), name) {
                        self.read(view, set, &selector, ordinal, now);
                    }
                }
                while let Some((_, ordinal)) = self.due.first().copied().filter(|(then, _)| *then <= now) {
                    self.read(view, set, &selector, ordinal, now);
                }
            }
            None => {
                *self = Self {
                    uid: field::uid(set).to_owned(),
                    spec: set["spec"].clone(),
                    latest: latest.to_owned(),
                    frontier: field::count(set, "/spec/ordinals/start").unwrap_or(0),
                    ..Self::default()
                };
                for pod in view.dependents_of_kind(field::uid(set), "Pod") {
                    if let Some(ordinal) = ordinal(field::name(set), field::name(pod)) {
                        self.note(set, &selector, ordinal, Some(pod), now);
                    }
                }
            }
        }
        self.read = view.version();
    }

    fn read(&mut self, view: &dyn View, set: &Value, selector: &Selector, ordinal: i64, now: Timestamp) {
        let name = format!("{}-{ordinal}", field::name(set));
        let pod = view.get("Pod", field::namespace(set), &name);
        self.note(set, selector, ordinal, pod, now);
    }

    fn note(&mut self, set: &Value, selector: &Selector, ordinal: i64, pod: Option<&Value>, now: Timestamp) {
        self.forget(ordinal);
        let is_own = |pod: &&Value| field::is_controlled_by(pod, set) && selector.selects(pod);
        if let Some(pod) = pod.filter(is_own) {
            let min_ready_seconds = field::count(set, "/spec/minReadySeconds").unwrap_or(0);
            self.add(ordinal, Member::of(pod, min_ready_seconds, now));
        }
    }

    fn add(&mut self, ordinal: i64, member: Member) {
        let lists = [
            (&mut self.awaited, member.is_awaited()),
            (&mut self.unhealthy, !member.is_healthy()),
            (&mut self.outdated, member.revision != self.latest),
        ];
        for (list, _) in lists.into_iter().filter(|(_, is_listed)| *is_listed) {
            list.insert(ordinal);
        }
        if let Availability::From(then) = member.available {
            self.due.insert((then, ordinal));
        }
        self.count(&member, 1);
        self.members.insert(ordinal, member);
        self.holes.remove(&ordinal);
        while self.members.contains_key(&self.frontier) {
            self.frontier += 1;
        }
    }

    fn forget(&mut self, ordinal: i64) {
        let Some(member) = self.members.remove(&ordinal) else {
            return;
        };
        for set in [&mut self.awaited, &mut self.unhealthy, &mut self.outdated] {
            set.remove(&ordinal);
        }
        if let Availability::From(then) = member.available {
            self.due.remove(&(then, ordinal));
        }
        self.count(&member, -1);
        let start = field::count(&self.spec, "/ordinals/start").unwrap_or(0);
        if (start..self.frontier).contains(&ordinal) {
            self.holes.insert(ordinal);
        }
    }

    fn count(&mut self, member: &Member, by: i64) {
        // A terminating pod is not available, but may be ready.
        self.ready += if member.is_ready { by } else { 0 };
        self.available += if member.available == Availability::Now { by } else { 0 };
        if !member.is_leaving {
            let count = self.revisions.entry(member.revision.clone()).or_default();
            *count += by;
            if *count == 0 {
                self.revisions.remove(&member.revision);
            }
        }
    }

    pub(super) fn get(&self, ordinal: i64) -> Option<&Member> {
        self.members.get(&ordinal)
    }

    /// The pods outside of a range, lowest ordinal first.
    pub(super) fn outside(&self, range: Range<i64>) -> impl DoubleEndedIterator<Item = (i64, &Member)> {
        let (below, above) = (self.members.range(..range.start), self.members.range(range.end..));
        below.chain(above).map(|(ordinal, member)| (*ordinal, member))
    }

    /// The first pod of a range that is missing, or about which there is something to do or to wait for.
    pub(super) fn first_awaited(&self, range: Range<i64>) -> Option<i64> {
        if range.is_empty() {
            return None;
        }
        let is_missing = |ordinal: &i64| !self.members.contains_key(ordinal);
        let hole = self.holes.range(range.clone()).next().copied();
        let beyond = || (self.frontier.max(range.start)..range.end).find(is_missing);
        let awaited = self.awaited.range(range.clone()).next().copied();
        [hole.or_else(beyond), awaited].into_iter().flatten().min()
    }

    /// The last pod of a range that is missing, has another revision than the latest, or is awaited.
    pub(super) fn last_notable(&self, range: Range<i64>) -> Option<i64> {
        if range.is_empty() {
            return None;
        }
        let is_missing = |ordinal: &i64| !self.members.contains_key(ordinal);
        let last = |set: &BTreeSet<i64>| set.range(range.clone()).next_back().copied();
        let beyond = (self.frontier.max(range.start)..range.end).rev().find(is_missing);
        let found = [last(&self.holes), beyond, last(&self.awaited), last(&self.outdated)];
        found.into_iter().flatten().max()
    }

    pub(super) fn first_unhealthy(&self) -> Option<i64> {
        self.unhealthy.first().copied()
    }

    pub(super) fn is_outdated(&self, ordinal: i64) -> bool {
        self.outdated.contains(&ordinal)
    }

    /// When the next ready pod will be available.
    pub(super) fn next_available(&self) -> Option<Timestamp> {
        self.due.first().map(|(then, _)| *then)
    }

    pub(super) fn all(&self) -> i64 {
        i64::try_from(self.members.len()).unwrap_or(i64::MAX)
    }

    pub(super) fn ready(&self) -> i64 {
        self.ready
    }

    pub(super) fn available(&self) -> i64 {
        self.available
    }

    /// How many pods of a revision are not being deleted.
    pub(super) fn of_revision(&self, revision: &str) -> i64 {
        self.revisions.get(revision).copied().unwrap_or(0)
    }

    /// The revisions of its pods.
    pub(super) fn live_revisions(&self) -> impl Iterator<Item = &str> {
        let leaving = self.members.values().filter(|member| member.is_leaving);
        let leaving = leaving.map(|member| member.revision.as_str());
        self.revisions.keys().map(String::as_str).chain(leaving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::key_for;
    use crate::testing::{Story, workload};
    use proptest::prelude::*;
    use serde_json::json;

    /// What is remembered of a set equals what reading all of its pods shows.
    fn check(story: &Story, roster: &mut Roster) -> Result<(), TestCaseError> {
        let (objects, set) = (story.cluster.objects(), story.get("StatefulSet", "db"));
        let latest = field::text(set, "/status/updateRevision");
        let mut anew = Roster::default();
        anew.refresh(objects, set, latest, story.now);
        roster.refresh(objects, set, latest, story.now);
        prop_assert_eq!(&anew.members, &roster.members);
        prop_assert_eq!(&anew.awaited, &roster.awaited);
        prop_assert_eq!(&anew.unhealthy, &roster.unhealthy);
        prop_assert_eq!(&anew.outdated, &roster.outdated);
        prop_assert_eq!(&anew.due, &roster.due);
        prop_assert_eq!(&anew.revisions, &roster.revisions);
        prop_assert_eq!((anew.ready, anew.available), (roster.ready, roster.available));
        for (start, end) in (0..9).flat_map(|start| (start..9).map(move |end| (start, end))) {
            let found = |roster: &Roster| (roster.first_awaited(start..end), roster.last_notable(start..end));
            prop_assert_eq!(found(&anew), found(roster), "{}..{}", start, end);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_roster_is_up_to_date(
            policy in prop_oneof![Just("OrderedReady"), Just("Parallel")],
            actions in proptest::collection::vec((0..9_u8, 0..7_i64), 1..25),
        ) {
            let mut story = Story::with_nodes(2);
            let spec = json!({"replicas": 3, "podManagementPolicy": policy, "minReadySeconds": 2, "volumeClaimTemplates": []});
            story.create(workload("StatefulSet", "db", spec));
            let mut roster = Roster::default();
            for (action, number) in actions {
                let pods: Vec<String> = story.names("Pod").iter().map(|name| (*name).to_owned()).collect();
                let pod = usize::try_from(number).ok().and_then(|at| pods.get(at));
                match (action, pod) {
                    (0, _) => story.patch("StatefulSet", "db", json!({"spec": {"replicas": number}})),
                    (1, _) => {
                        let containers = json!([{"name": "main", "image": format!("db:{number}")}]);
                        story.patch("StatefulSet", "db", json!({"spec": {"template": {"spec": {"containers": containers}}}}));
                    }
                    (2, Some(pod)) => story.delete("Pod", pod),
                    (3, Some(pod)) => story.set_status("Pod", pod, json!({"phase": "Failed"})),
                    (4, Some(pod)) => story.patch("Pod", pod, json!({"metadata": {"labels": {"app": "other"}}})),
                    (5, Some(pod)) => story.patch("Pod", pod, json!({"metadata": {"ownerReferences": null}})),
                    (6, _) => story.now = field::after(story.now, 1),
                    (7, _) => {
                        story.round();
                    }
                    _ => {
                        let key = key_for("StatefulSet", "default", "db");
                        let step = story.workloads.reconcile(story.cluster.objects(), &key, story.now);
                        story.carry_out(&step.effects);
                    }
                }
                if number % 2 == 0 {
                    check(&story, &mut roster)?;
                }
            }
            check(&story, &mut roster)?;
        }
    }

    /// More changes than are recorded are read as a whole.
    #[test]
    fn a_roster_that_missed_changes_is_read_again() {
        let mut story = Story::with_nodes(1);
        story.create(workload(
            "StatefulSet",
            "db",
            json!({"replicas": 2, "volumeClaimTemplates": []}),
        ));
        story.settle();
        let mut roster = Roster::default();
        check(&story, &mut roster).unwrap();
        for number in 0..1500 {
            story.patch(
                "Pod",
                "db-0",
                json!({"metadata": {"annotations": {"number": number.to_string()}}}),
            );
        }
        story.set_status("Pod", "db-0", json!({"phase": "Failed"}));
        check(&story, &mut roster).unwrap();
        assert_eq!(roster.first_awaited(0..2), Some(0));
    }
}
