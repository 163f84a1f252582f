//! The settings of a scheduler: all of a configuration that affects decisions.

use super::{DEFAULT_SCHEDULER_NAME, scheduler_name};
use crate::extender::Extender;
use crate::profile::Profile;
use crate::queue::QueueTimes;
use berth_core::api;
use berth_core::binder::VolumeGates;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The settings of a scheduler. Every decision maker takes them as a whole, so that no part of a configuration is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The profiles by scheduler name.
    pub profiles: BTreeMap<String, Profile>,
    /// How long pods wait between attempts.
    pub times: QueueTimes,
    /// How waiting pods are considered together.
    pub together: Together,
    /// Hold the volumes of a pod until all of them exist. Correct only with a volume controller that does not bind held claims,
    /// and releases what an attempt leaves behind.
    pub hold_volumes: bool,
    /// The extenders, in the order in which they are asked. Their calls are the caller's: see
    /// [`take_consultations`](super::Scheduler::take_consultations). A pod that one is interested in waits for the advice.
    pub extenders: Arc<[Extender]>,
    /// Distinguishes the attempts of schedulers that decide on the same pods at the same time, as two without an election do.
    pub replica: u16,
}

/// How waiting pods are considered together, before they are decided one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// How many placements are tried per pod if some of the waiting pods would be left out; 0 disables it. A number and not
    /// a time, so that the same pods get the same nodes on every machine: a try takes some microseconds.
    pub tries_per_pod: usize,
    /// How long a scheduler with a clock considers each pod at most. Simulations have none. It is longer than the tries usually take, so that
    /// only a slow machine ends a look early.
    pub time_per_pod: Duration,
}

impl Default for Together {
    fn default() -> Self {
        Self {
            tries_per_pod: 200,
            time_per_pod: Duration::from_millis(10),
        }
    }
}

impl Default for Settings {
    /// The default profile, replacing kube-scheduler.
    fn default() -> Self {
        Self {
            profiles: BTreeMap::from([(DEFAULT_SCHEDULER_NAME.to_owned(), Profile::default())]),
            times: QueueTimes::default(),
            together: Together::default(),
            hold_volumes: false,
            extenders: Arc::new([]),
            replica: 0,
        }
    }
}

impl Settings {
    /// The source of events: the name of the profile, as in kube-scheduler.
    #[must_use]
    pub fn event_source(&self) -> &str {
        self.profiles
            .keys()
            .next()
            .map_or(DEFAULT_SCHEDULER_NAME, String::as_str)
    }

    /// The profile of a pod; `None` if its scheduler name has no profile here.
    #[must_use]
    pub fn profile_of(&self, pod: &api::Pod) -> Option<&Profile> {
        self.profiles.get(scheduler_name(pod))
    }

    /// The feature gates of volume decisions. Profiles share the volumes, and so the gates: off for one is off for all.
    #[must_use]
    pub fn volume_gates(&self) -> VolumeGates {
        let mut profiles = self.profiles.values().map(|profile| profile.gates.volumes);
        let both = |all: VolumeGates, one: VolumeGates| VolumeGates {
            volume_scheduling: all.volume_scheduling && one.volume_scheduling,
            csi_storage_capacity: all.csi_storage_capacity && one.csi_storage_capacity,
            claim_unused_since_time: all.claim_unused_since_time && one.claim_unused_since_time,
        };
        profiles.by_ref().fold(VolumeGates::default(), both)
    }
}
