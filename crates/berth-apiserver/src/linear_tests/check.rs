//! Checks a history: whether one order of all operations explains every response.
//!
//! - Versions are that order. A write that returned before another was invoked has the smaller version.
//! - Every change has exactly one cause: a write on that object whose precondition held, and which was not refused. A write without a response has
//!   happened once or not at all.
//! - A read, and a refusal, describes the objects at one point of the order: not before anything that any client knew when it was invoked, and
//!   before every write that was invoked after it returned. A list describes them at its own version.
//! - A watch delivers every change after its version, once, in order.
//! - The next start finds everything that was published, and beyond that only writes without a response.

use std::collections::{BTreeMap, HashMap};

use super::history::{Answer, Asked, Call, Change, Life, Snapshot, State, Time};
use crate::store::EventKind;

/// How much was checked.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) writes: usize,
    pub(super) reads: usize,
    pub(super) refusals: usize,
    pub(super) unknown: usize,
    pub(super) unknown_applied: usize,
    pub(super) delivered: usize,
}

pub(super) fn check(lives: &[Life]) -> Result<Checked, String> {
    let mut checked = Checked::default();
    let mut marks = HashMap::new();
    for (number, life) in lives.iter().enumerate() {
        let in_life = |problem: String| format!("life {number}: {problem}");
        for (change, _) in life
            .published
            .iter()
            .filter(|(change, _)| change.kind != EventKind::Deleted)
        {
            once(&mut marks, change.state).map_err(in_life)?;
        }
        Order::of(life)
            .and_then(|order| order.check(&mut checked))
            .map_err(in_life)?;
        if let Some(next) = lives.get(number + 1) {
            checked.unknown_applied += restart(life, &next.first, &mut marks).map_err(in_life)?;
        }
    }
    Ok(checked)
}

/// A mark belongs to one version.
fn once(marks: &mut HashMap<u64, u64>, state: State) -> Result<(), String> {
    match marks.insert(state.mark, state.version) {
        Some(other) if other != state.version => Err(format!(
            "write {} is at versions {other} and {}",
            state.mark, state.version
        )),
        _ => Ok(()),
    }
}

/// The published changes of a life, and the objects after each.
struct Order<'a> {
    life: &'a Life,
    /// The first is what the server found; the one at `i + 1` is after change `i`.
    snapshots: Vec<Snapshot>,
    /// The point after each write that left a mark.
    by_mark: HashMap<u64, usize>,
    /// The point after each deletion, by the name and the version that was deleted.
    by_deleted: HashMap<(&'a str, u64), usize>,
}

impl<'a> Order<'a> {
    fn of(life: &'a Life) -> Result<Self, String> {
        let mut order = Self {
            life,
            snapshots: vec![life.first.clone()],
            by_mark: HashMap::new(),
            by_deleted: HashMap::new(),
        };
        let mut now = life.first.clone();
        for (change, previous) in &life.published {
            let Change { kind, name, state } = change;
            if state.version <= now.version {
                return Err(format!("version {} follows {}", state.version, now.version));
            }
            now.version = state.version;
            let before = match kind {
                EventKind::Deleted => now.objects.remove(name),
                EventKind::Added | EventKind::Modified => now.objects.insert(name.clone(), *state),
            };
            let fits = (*kind == EventKind::Added) == before.is_none();
            if !fits || before.map(|before| before.version) != *previous {
                return Err(format!("{change:?} of {previous:?} follows {before:?}"));
            }
            order.snapshots.push(now.clone());
            let point = order.snapshots.len() - 1;
            match (kind, previous) {
                (EventKind::Deleted, Some(previous)) => drop(order.by_deleted.insert((name, *previous), point)),
                _ => drop(order.by_mark.insert(state.mark, point)),
            }
        }
        Ok(order)
    }

    fn check(&self, checked: &mut Checked) -> Result<(), String> {
        for (change, previous) in &self.life.published {
            self.cause(change, *previous)?;
        }
        self.writes_in_time()?;
        self.watches(checked)?;
        self.points(checked)
    }

    /// The point at which a call took effect, if it did.
    fn effect(&self, call: &Call) -> Option<usize> {
        match call.asked {
            Asked::Delete { expected } => self.by_deleted.get(&(call.name.as_str(), expected)).copied(),
            asked => self.by_mark.get(&asked.mark()?).copied(),
        }
    }

    /// Every change has a cause that was not refused.
    fn cause(&self, change: &Change, previous: Option<u64>) -> Result<(), String> {
        let is_cause = |call: &&Call| {
            call.name == change.name
                && match (call.asked, &call.answer) {
                    (Asked::Delete { expected }, Answer::Deleted | Answer::Unknown) => {
                        change.kind == EventKind::Deleted && previous == Some(expected)
                    }
                    (asked, Answer::Is(_) | Answer::Unknown) if asked.mark() == Some(change.state.mark) => {
                        match asked {
                            Asked::Create { .. } => change.kind == EventKind::Added,
                            Asked::Update { expected, .. } => previous == Some(expected),
                            _ => change.kind == EventKind::Modified,
                        }
                    }
                    _ => false,
                }
        };
        match self.life.calls.iter().any(|call| is_cause(&call)) {
            true => Ok(()),
            false => Err(format!("{change:?} of {previous:?} has no cause")),
        }
    }

    /// The order of versions agrees with that of time.
    fn writes_in_time(&self) -> Result<(), String> {
        let mut writes: Vec<(usize, &Call)> = Vec::new();
        for call in &self.life.calls {
            match (self.effect(call), &call.answer) {
                // Of several deletions of one state, others were refused.
                (Some(point), Answer::Is(_) | Answer::Deleted) => writes.push((point, call)),
                (None, Answer::Deleted) => return Err(format!("{call:?} was not published")),
                (None, Answer::Is(_)) if call.asked.mark().is_some() => {
                    return Err(format!("{call:?} was not published"));
                }
                _ => {}
            }
        }
        writes.sort_by_key(|(point, _)| *point);
        if let Some([(_, one), (_, other)]) = writes.array_windows().find(|[one, other]| one.0 == other.0) {
            return Err(format!("{one:?} and {other:?} did the same"));
        }
        let mut latest: Option<&Call> = None;
        for (_, call) in writes {
            if let Some(earlier) = latest.filter(|earlier| call.returned < earlier.invoked) {
                return Err(format!(
                    "{call:?} has a larger version than {earlier:?}, which was invoked later"
                ));
            }
            latest = latest.filter(|latest| latest.invoked > call.invoked).or(Some(call));
        }
        Ok(())
    }

    fn watches(&self, checked: &mut Checked) -> Result<(), String> {
        for watched in &self.life.watches {
            let later = self.life.published.iter().map(|(change, _)| change);
            let mut expected = later.filter(|change| change.state.version > watched.from);
            for (_, change) in &watched.changes {
                let next = expected.next();
                if next != Some(change) {
                    return Err(format!(
                        "a watch from {} delivered {change:?}, not {next:?}",
                        watched.from
                    ));
                }
                checked.delivered += 1;
            }
        }
        Ok(())
    }

    /// Finds a point for every call, in the order in which they returned. The earliest possible one leaves most room for others.
    fn points(&self, checked: &mut Checked) -> Result<(), String> {
        let mut calls: Vec<&Call> = self.life.calls.iter().collect();
        calls.sort_by_key(|call| call.returned);
        let mut known = Known::of(self);
        for call in calls {
            match (&call.answer, call.asked.mark(), call.asked) {
                (Answer::Unknown, ..) => {
                    checked.unknown += 1;
                    continue;
                }
                (Answer::Is(_), Some(_), _) | (Answer::Deleted, ..) => checked.writes += 1,
                (Answer::Exists | Answer::Conflict, ..) | (Answer::Missing, Some(_), _) => checked.refusals += 1,
                _ => checked.reads += 1,
            }
            let (from, to) = (known.at(call.invoked), self.before_later_writes(call.returned));
            let point = (from..=to).find(|point| self.describes(call, *point));
            let point = point.ok_or_else(|| {
                let versions = |point: usize| self.snapshots.get(point).map(|snapshot| snapshot.version);
                let (from, to) = (versions(from), versions(to));
                format!("{call:?} fits none of the versions from {from:?} to {to:?}")
            })?;
            known.learn(call.returned, point);
        }
        Ok(())
    }

    /// The last point before all writes that were invoked after a time.
    fn before_later_writes(&self, time: Time) -> usize {
        let later = self.life.calls.iter().filter(|call| call.invoked > time);
        // What has no cause among answered calls may come from several unknown ones.
        let later = later.filter(|call| matches!(call.answer, Answer::Is(_) | Answer::Deleted));
        let first = later.filter_map(|call| self.effect(call)).min();
        first.map_or(self.snapshots.len() - 1, |first| first - 1)
    }

    /// Whether an answer can be given at a point: for a write, whether the point is the one after it.
    fn describes(&self, call: &Call, point: usize) -> bool {
        let snapshot = &self.snapshots[point];
        let found = snapshot.objects.get(&call.name);
        match (&call.answer, call.asked) {
            (Answer::Is(state), Asked::Get | Asked::Touch) => found == Some(state),
            (Answer::Is(state), asked) => {
                found == Some(state) && state.version == snapshot.version && asked.mark() == Some(state.mark)
            }
            (Answer::Deleted, _) => self.effect(call) == Some(point),
            (Answer::Exists, _) => found.is_some(),
            (Answer::Conflict, Asked::Update { expected, .. } | Asked::Delete { expected }) => {
                found.is_some_and(|found| found.version != expected)
            }
            (Answer::Missing, _) => found.is_none(),
            (Answer::Listed(listed), _) => {
                let next = self.snapshots.get(point + 1);
                listed.objects == snapshot.objects
                    && listed.version >= snapshot.version
                    && next.is_none_or(|next| listed.version < next.version)
            }
            (Answer::Conflict | Answer::Unknown, _) => false,
        }
    }
}

/// The latest point that any client knew, by time.
struct Known(BTreeMap<Time, usize>);

impl Known {
    /// Starts with what watches delivered.
    fn of(order: &Order<'_>) -> Self {
        let mut known = Self(BTreeMap::new());
        let mut delivered: Vec<_> = order.life.watches.iter().flat_map(|watched| &watched.changes).collect();
        delivered.sort_by_key(|(time, _)| *time);
        for (time, change) in delivered {
            let point = order
                .snapshots
                .partition_point(|snapshot| snapshot.version < change.state.version);
            known.learn(*time, point);
        }
        known
    }

    fn at(&self, time: Time) -> usize {
        self.0.range(..time).next_back().map_or(0, |(_, point)| *point)
    }

    fn learn(&mut self, time: Time, point: usize) {
        let point = point.max(self.at(time));
        self.0.insert(time, point);
        self.0
            .range_mut(time..)
            .for_each(|(_, later)| *later = point.max(*later));
    }
}

/// Checks what was found after a restart. Gives the number of writes without a response that had happened.
fn restart(life: &Life, found: &Snapshot, marks: &mut HashMap<u64, u64>) -> Result<usize, String> {
    let order = Order::of(life)?;
    let last = order.snapshots.last().unwrap_or(&life.first);
    if found.version < last.version {
        return Err(format!(
            "version {} was published and came back as {}",
            last.version, found.version
        ));
    }
    let unknown = |name: &str, fits: &dyn Fn(Asked) -> bool| {
        let mut calls = life.calls.iter();
        calls.any(|call| call.answer == Answer::Unknown && call.name == name && fits(call.asked))
    };
    let names = last.objects.keys().chain(found.objects.keys());
    let mut applied = 0;
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        let (before, after) = (last.objects.get(name), found.objects.get(name));
        let is_deletion = |asked| {
            before.is_some_and(|before| {
                asked
                    == Asked::Delete {
                        expected: before.version,
                    }
            })
        };
        let explained = match after {
            _ if before == after => continue,
            None => unknown(name, &is_deletion),
            Some(after) => {
                once(marks, *after)?;
                unknown(name, &|asked| match asked {
                    Asked::Create { mark } => mark == after.mark && (before.is_none() || unknown(name, &is_deletion)),
                    Asked::Update { expected, mark } => {
                        mark == after.mark && before.is_some_and(|before| before.version == expected)
                    }
                    Asked::Patch { mark } => mark == after.mark,
                    _ => false,
                }) && after.version > last.version
            }
        };
        if !explained {
            return Err(format!("{name} was {before:?} and came back as {after:?}"));
        }
        applied += 1;
    }
    Ok(applied)
}
