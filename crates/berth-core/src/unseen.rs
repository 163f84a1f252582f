//! Objects known only from responses to our own writes: no watch has shown them yet.
//!
//! A component that applies the responses to its own writes knows an object before its watch does. If the object is deleted while
//! that watch is disconnected, the following list does not contain it, and no event reports the deletion because the watch never
//! showed the object. Such objects are therefore looked up after a list. A list alone proves nothing, because it may be older than
//! the response.

use crate::effect::{Effect, Fact, ObjectKey, Refusal};
use rustc_hash::FxHashMap;

/// An object that no watch has shown.
#[derive(Clone, Debug)]
struct Known {
    uid: String,
    /// Its kind has been listed since.
    in_doubt: bool,
}

/// The objects known only from responses.
///
/// ```
/// use berth_core::effect::{Effect, Fact, ObjectKey};
/// use berth_core::unseen::Unseen;
///
/// let (mut unseen, pod) = (Unseen::default(), ObjectKey::new("Pod", "team", "web-0"));
/// unseen.answered(pod.clone(), "u-1");
/// assert_eq!(unseen.question(&pod), None);
///
/// // The pod watch had to list again, and has not shown this one.
/// assert_eq!(unseen.listed("Pod"), [pod.clone()]);
/// let gone = Fact::Gone { key: pod.clone(), uid: "u-1".to_owned() };
/// assert_eq!(unseen.question(&pod), Some(Effect::Confirm(gone)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    objects: FxHashMap<ObjectKey, Known>,
}

impl Unseen {
    /// A response contained an object that was not known.
    pub fn answered(&mut self, key: ObjectKey, uid: &str) {
        let known = Known {
            uid: uid.to_owned(),
            in_doubt: false,
        };
        self.objects.insert(key, known);
    }

    /// Whether watches have shown everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// A watch showed an object, or it is known to be gone.
    pub fn settled(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// All objects of a kind were listed, and those in the list are settled. Returns the others, which have a
    /// [question](Self::question).
    pub fn listed(&mut self, kind: &str) -> Vec<ObjectKey> {
        let of_kind = self.objects.iter_mut().filter(|(key, _)| key.kind == kind);
        let mut keys: Vec<_> = of_kind
            .map(|(key, known)| {
                known.in_doubt = true;
                key.clone()
            })
            .collect();
        keys.sort();
        keys
    }

    /// What to check about an object before its next step.
    #[must_use]
    pub fn question(&self, key: &ObjectKey) -> Option<Effect> {
        let known = self.objects.get(key).filter(|known| known.in_doubt)?;
        Some(Effect::Confirm(Fact::Gone {
            key: key.clone(),
            uid: known.uid.clone(),
        }))
    }

    /// The question was answered: the object is gone, exists, or there was no response.
    pub fn asked(&mut self, key: &ObjectKey, refusal: Option<&Refusal>) {
        match refusal {
            None => self.settled(key),
            Some(Refusal::Unavailable { .. }) => {}
            // It exists: its watch will show it.
            Some(_) => {
                if let Some(known) = self.objects.get_mut(key) {
                    known.in_doubt = false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> ObjectKey {
        ObjectKey::new("Pod", "team", "web-0")
    }

    #[test]
    fn what_its_watch_has_shown_is_not_asked_about() {
        let mut unseen = Unseen::default();
        unseen.answered(pod(), "u-1");
        assert_eq!(unseen.listed("Node"), []);
        unseen.settled(&pod());
        assert_eq!(unseen.listed("Pod"), []);
        assert_eq!(unseen.question(&pod()), None);
    }

    #[test]
    fn it_is_asked_until_somebody_answers() {
        let mut unseen = Unseen::default();
        unseen.answered(pod(), "u-1");
        unseen.listed("Pod");
        let away = Refusal::Unavailable {
            key: pod(),
            message: "no answer".to_owned(),
            in_doubt: true,
        };
        unseen.asked(&pod(), Some(&away));
        assert!(unseen.question(&pod()).is_some());
        unseen.asked(&pod(), Some(&Refusal::Stale));
        assert_eq!(unseen.question(&pod()), None, "it is there");
        assert_eq!(unseen.listed("Pod"), [pod()], "and may be gone by the next list");
        unseen.asked(&pod(), None);
        assert_eq!(unseen.listed("Pod"), []);
    }
}
