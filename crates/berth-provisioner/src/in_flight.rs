//! What a provisioner remembers about its work in progress.

use crate::request::FailureKind;
use crate::state::State;
use crate::step::Attempt;
use berth_core::api::{Kind, Object};
use berth_core::effect::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};

/// The volume that may currently be created for a claim.
#[derive(Debug)]
struct Making {
    volume: String,
    /// The UID of a volume with that name that was deleted meanwhile: an older response must not bring it back.
    gone: Option<String>,
}

/// Work in progress. It is lost with the process; the records on claims are not.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Claims for which every response of the backend was received since the record was written.
    heard: BTreeSet<ObjectKey>,
    making: BTreeMap<ObjectKey, Making>,
    /// Volumes, by name, that may be being deleted, with the claims that they refer to.
    reclaiming: BTreeMap<String, ObjectKey>,
}

impl InFlight {
    /// The backend is about to be asked: sets whether a response may have been lost.
    pub fn asks(&mut self, key: &ObjectKey, attempt: &mut Attempt) {
        attempt.in_doubt = attempt.repeated && !self.heard.contains(key);
        if !attempt.repeated {
            self.heard.insert(key.clone());
        }
    }

    /// Work on these objects has started.
    pub fn begun(&mut self, touched: &[ObjectKey], state: &State) {
        for key in touched {
            if key.known_kind() == Some(Kind::PersistentVolume) {
                let reference = state
                    .volume(&key.name)
                    .and_then(|volume| volume.spec.claim_ref.as_ref());
                let claim = reference.map(ObjectKey::referred);
                self.reclaiming.extend(claim.map(|claim| (key.name.clone(), claim)));
            } else if let Some(claim) = state.claim(&key.namespace, &key.name) {
                let (volume, gone) = (state.volume_name(claim), None);
                self.making.insert(key.clone(), Making { volume, gone });
            }
        }
    }

    /// Ends [`Self::begun`]. Gives the claims that had to wait for a volume of their name to be deleted.
    pub fn ended(&mut self, touched: &[ObjectKey]) -> Vec<ObjectKey> {
        touched.iter().for_each(|key| drop(self.making.remove(key)));
        let volumes = touched
            .iter()
            .filter(|key| key.known_kind() == Some(Kind::PersistentVolume));
        volumes.filter_map(|key| self.reclaiming.remove(&key.name)).collect()
    }

    /// Whether the volume of this name may be being deleted. One of the same name must not be created at the same time: the deletion could
    /// reach the backend last.
    #[must_use]
    pub fn is_reclaiming(&self, volume: &str) -> bool {
        self.reclaiming.contains_key(volume)
    }

    /// The backend's response was received: how it failed, if it was asked and failed.
    pub fn heard(&mut self, key: &ObjectKey, failure: Option<FailureKind>) {
        match failure {
            // The record was removed, or is unchanged.
            Some(FailureKind::Final | FailureKind::Unclear | FailureKind::NotAsked) => {}
            // If the step is to be run again, it is unknown whether the backend was asked.
            Some(FailureKind::InDoubt) | None => drop(self.heard.remove(key)),
        }
    }

    /// An object is about to be forgotten because it is gone.
    pub fn gone(&mut self, key: &ObjectKey, state: &State) {
        match key.known_kind() {
            Some(Kind::PersistentVolumeClaim) => drop(self.heard.remove(key)),
            Some(Kind::PersistentVolume) => {
                // A deletion may be reported twice, by a response and by a watch. The second time the object is no
                // longer known.
                let Some(volume) = state.volume(&key.name) else {
                    return;
                };
                for making in self.making.values_mut().filter(|making| making.volume == key.name) {
                    making.gone = Some(volume.metadata.uid.clone());
                }
            }
            _ => {}
        }
    }

    /// Whether to apply an object from a response of the API server. An unknown object may already be deleted again.
    #[must_use]
    pub fn wants(&self, object: &Object, state: &State) -> bool {
        if state.knows(object) {
            return false;
        }
        let metadata = object.metadata();
        if state.metadata(&ObjectKey::of(object.kind(), metadata)).is_some() {
            return true;
        }
        let mut making = self.making.values();
        if making.any(|making| making.gone.as_ref() == Some(&metadata.uid)) {
            return false;
        }
        // A volume that was just created is not known yet, but its claim is.
        let Object::PersistentVolume(volume) = object else {
            return false;
        };
        volume.spec.claim_ref.as_ref().is_some_and(|claim| {
            let known = state.claim(&claim.namespace, &claim.name);
            known.is_some_and(|known| known.metadata.uid == claim.uid)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A claim and the volume that was made for it.
    fn claim_and_volume() -> [Object; 2] {
        let decode = |object: &Value| Object::decode(object).unwrap().unwrap();
        let claim = decode(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default", "uid": "u"}, "spec": {}}));
        let volume = decode(&json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "pvc-u", "uid": "v", "resourceVersion": "7"}, "spec": {"claimRef":
            {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": "u"}}}));
        [claim, volume]
    }

    #[test]
    fn a_volume_that_went_while_its_claim_was_worked_on_is_not_brought_back_by_an_answer() {
        let [claim, volume] = claim_and_volume();
        let (claim_key, volume_key) = (ObjectKey::claim("default", "c"), ObjectKey::volume("pvc-u"));
        let (mut state, mut in_flight) = (State::default(), InFlight::default());
        state.apply(&claim);
        in_flight.begun(std::slice::from_ref(&claim_key), &state);
        assert!(in_flight.wants(&volume, &state), "it was just made");
        state.apply(&volume);
        // First the response to its deletion reports it, then the watch.
        for _ in 0..2 {
            in_flight.gone(&volume_key, &state);
            state.remove(Kind::PersistentVolume, "", "pvc-u");
            assert!(!in_flight.wants(&volume, &state));
        }
    }

    #[test]
    fn a_claim_waits_until_the_deletion_of_its_last_volume_has_ended() {
        let [claim_object, volume] = claim_and_volume();
        let (claim_key, volume_key) = (ObjectKey::claim("default", "c"), ObjectKey::volume("pvc-u"));
        let (mut state, mut in_flight) = (State::default(), InFlight::default());
        state.apply(&claim_object);
        state.apply(&volume);
        in_flight.begun(std::slice::from_ref(&volume_key), &state);
        assert!(in_flight.is_reclaiming("pvc-u"));
        // The object is gone before the last request about it has arrived.
        state.remove(Kind::PersistentVolume, "", "pvc-u");
        assert!(in_flight.is_reclaiming("pvc-u"));
        assert_eq!(in_flight.ended(std::slice::from_ref(&volume_key)), [claim_key]);
        assert!(!in_flight.is_reclaiming("pvc-u"));
    }
}
