//! Keeps components from fighting over an object.
//!
//! One component writes, another reverts it, and the first decides the same again: without a limit, that becomes a storm. The
//! code that runs steps asks [`Disputes`] before it carries out a list of effects, and reports what was written. The first time
//! a write was reverted it is retried soon, because it may have been an accident; from the second time on it waits a minute or
//! more. Only an identical write waits: a different decision goes through at once, and so does one about another object.

use crate::effect::{Effect, Patch};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::{FxHashMap, FxHasher};
use serde_json::Value;
use std::hash::{Hash, Hasher};

/// How long a write waits after it was reverted once.
const SLIP: SignedDuration = SignedDuration::from_secs(2);
/// How long it waits after further reverts; doubled each time.
const DISPUTE: SignedDuration = SignedDuration::from_secs(60);
/// The maximum wait.
const LONGEST: SignedDuration = SignedDuration::from_secs(300);
/// A write that lasted this long was not reverted in response. Twice the maximum wait.
const PEACE: SignedDuration = SignedDuration::from_secs(600);
/// Writes in one generation of the memory. The last two generations are kept, at some forty bytes per write. A dispute is
/// between writes that follow each other closely, so a write followed by many thousands of others is not disputed.
const GENERATION: usize = 32_768;

/// The last write to one part of one object.
#[derive(Clone, Copy, Debug)]
struct Written {
    body: u64,
    /// Number of consecutive repetitions.
    repeated: u32,
    last: Timestamp,
}

impl Written {
    /// When the same write may be repeated.
    fn due(&self) -> Timestamp {
        let delay = match self.repeated {
            0 => SLIP,
            // Four doublings exceed the maximum.
            count => (DISPUTE * (1_i32 << (count - 1).min(4))).min(LONGEST),
        };
        self.last.checked_add(delay).unwrap_or(Timestamp::MAX)
    }
}

/// Recent writes, to detect which ones are repeated again and again.
#[derive(Clone, Debug, Default)]
pub struct Disputes {
    young: FxHashMap<u64, Written>,
    old: FxHashMap<u64, Written>,
}

impl Disputes {
    /// The earliest time at which these effects may be carried out, if one of them was written recently and reverted
    /// since.
    #[must_use]
    pub fn due(&self, effects: &[Effect], now: Timestamp) -> Option<Timestamp> {
        let patches = effects.iter().filter_map(patch);
        let due = patches.filter_map(|patch| Some(self.repeated(patch, now)?.due()));
        due.max().filter(|due| *due > now)
    }

    /// Records effects that were carried out.
    pub fn written(&mut self, effects: &[Effect], now: Timestamp) {
        for patch in effects.iter().filter_map(patch) {
            let repeated = self
                .repeated(patch, now)
                .map_or(0, |last| last.repeated.saturating_add(1));
            if self.young.len() >= GENERATION {
                self.old = std::mem::take(&mut self.young);
            }
            let written = Written {
                body: body(patch),
                repeated,
                last: now,
            };
            self.young.insert(place(patch), written);
        }
    }

    /// What is known about this exact write, if it was the last one to its part of the object and recent.
    fn repeated(&self, patch: &Patch, now: Timestamp) -> Option<&Written> {
        let place = place(patch);
        let last = self.young.get(&place).or_else(|| self.old.get(&place))?;
        let recent = now.duration_since(last.last) < PEACE;
        (recent && last.body == body(patch)).then_some(last)
    }
}

fn patch(effect: &Effect) -> Option<&Patch> {
    match effect {
        Effect::Patch(patch) => Some(patch),
        Effect::Confirm(_)
        | Effect::Create(_)
        | Effect::Delete(_)
        | Effect::Bind { .. }
        | Effect::Event(_)
        | Effect::LookAgain { .. } => None,
    }
}

/// The object and the part of it that a patch changes.
fn place(patch: &Patch) -> u64 {
    let mut hasher = FxHasher::default();
    (&patch.target.key, &patch.target.uid, patch.subresource, patch.name).hash(&mut hasher);
    hasher.finish()
}

fn body(patch: &Patch) -> u64 {
    let mut hasher = FxHasher::default();
    hash(&patch.body, &mut hasher);
    hasher.finish()
}

/// Versions are excluded: they differ each time, although the write is the same.
fn hash(value: &Value, hasher: &mut FxHasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(value) => (1_u8, value).hash(hasher),
        Value::Number(number) => (2_u8, number).hash(hasher),
        Value::String(text) => (3_u8, text).hash(hasher),
        Value::Array(items) => {
            (4_u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash(item, hasher));
        }
        Value::Object(fields) => {
            (5_u8, fields.len()).hash(hasher);
            for (key, value) in fields.iter().filter(|(key, _)| *key != "resourceVersion") {
                key.hash(hasher);
                hash(value, hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Guard, Merge, ObjectKey, Target};
    use serde_json::json;

    fn select(uid: &str, node: Option<&str>) -> Effect {
        Effect::Patch(Patch {
            target: Target {
                key: ObjectKey::new("PersistentVolumeClaim", "ns", "c"),
                uid: uid.to_owned(),
                ..Target::default()
            },
            guard: Guard::Version,
            subresource: None,
            merge: Merge::Json,
            body: json!({"metadata": {"annotations": {"selected-node": node}}}),
            name: "select_node",
        })
    }

    fn after(start: Timestamp, seconds: i64) -> Timestamp {
        start + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn the_same_write_is_made_twice_in_the_first_minute() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let effects = [select("u", Some("n1"))];
        let mut disputes = Disputes::default();
        let mut made = Vec::new();
        for second in 0..1000 {
            let now = after(start, second);
            if disputes.due(&effects, now).is_none() {
                disputes.written(&effects, now);
                made.push(second);
            }
        }
        assert_eq!(made, [0, 2, 62, 182, 422, 722]);
    }

    #[test]
    fn only_the_same_write_to_the_same_object_waits() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let effects = [select("u", Some("n1"))];
        let mut disputes = Disputes::default();
        disputes.written(&effects, start);
        assert_eq!(disputes.due(&effects, start), Some(after(start, 2)));
        assert_eq!(disputes.due(&[select("u", Some("n2"))], start), None);
        assert_eq!(disputes.due(&[select("v", Some("n1"))], start), None);
        assert_eq!(disputes.due(&effects, after(start, 600)), None, "it stood for long");
        // A component that reverts its own write has no dispute.
        disputes.written(&[select("u", None)], start);
        assert_eq!(disputes.due(&effects, start), None);
    }

    #[test]
    fn the_memory_is_bounded() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut disputes = Disputes::default();
        for number in 0..3 * GENERATION {
            disputes.written(&[select(&number.to_string(), None)], start);
        }
        assert!(disputes.young.len() + disputes.old.len() <= 2 * GENERATION);
    }
}
