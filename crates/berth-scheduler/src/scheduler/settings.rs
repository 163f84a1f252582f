//! What a scheduler is set up with: all of a configuration that bears on decisions.

use super::{DEFAULT_SCHEDULER_NAME, scheduler_name};
use crate::profile::Profile;
use crate::queue::QueueTimes;
use berth_core::api;
use berth_core::binder::VolumeGates;
use std::collections::BTreeMap;

/// The settings of a scheduler. Whoever decides takes them whole, so that no part of a configuration is lost on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The profiles by the names that pods choose them by.
    pub profiles: BTreeMap<String, Profile>,
    /// How long pods wait between attempts.
    pub times: QueueTimes,
    /// How pods that wait are looked at together.
    pub together: Together,
    /// Hold the volumes of a pod until all of them are there. Right only beside a volume controller that binds no claim which is
    /// held, and gives back what an attempt leaves behind.
    pub hold_volumes: bool,
}

/// How pods that wait are looked at together, before they are decided one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// How many placements are tried for each pod if some of those that wait would be left out; 0 looks at none together. A
    /// number and not a time, so that the same pods come to the same nodes on every machine: a try takes some microseconds.
    pub tries_per_pod: usize,
}

impl Default for Together {
    fn default() -> Self {
        Self { tries_per_pod: 200 }
    }
}

impl Default for Settings {
    /// The default profile, in kube-scheduler's place.
    fn default() -> Self {
        Self {
            profiles: BTreeMap::from([(DEFAULT_SCHEDULER_NAME.to_owned(), Profile::default())]),
            times: QueueTimes::default(),
            together: Together::default(),
            hold_volumes: false,
        }
    }
}

impl Settings {
    /// Who speaks in events. Those of a cluster's own scheduler come from the name of its profile; so do those of one in its place.
    #[must_use]
    pub fn event_source(&self) -> &str {
        self.profiles
            .keys()
            .next()
            .map_or(DEFAULT_SCHEDULER_NAME, String::as_str)
    }

    /// The profile of a pod; none if the pod names a scheduler that has no profile here.
    #[must_use]
    pub fn profile_of(&self, pod: &api::Pod) -> Option<&Profile> {
        self.profiles.get(scheduler_name(pod))
    }

    /// The feature gates of decisions about volumes. Profiles share the volumes, and so the gates: off for one is off for all.
    #[must_use]
    pub fn volume_gates(&self) -> VolumeGates {
        let mut profiles = self.profiles.values().map(|profile| profile.gates.volumes);
        let both = |all: VolumeGates, one: VolumeGates| VolumeGates {
            volume_scheduling: all.volume_scheduling && one.volume_scheduling,
            csi_storage_capacity: all.csi_storage_capacity && one.csi_storage_capacity,
        };
        profiles.by_ref().fold(VolumeGates::default(), both)
    }
}
