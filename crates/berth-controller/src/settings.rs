//! What an administrator can choose.

/// What to do with volumes that have zone labels and no node affinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneUpgrade {
    /// Leave them alone.
    #[default]
    Off,
    /// Say what would change, change nothing: see [`crate::zone::plan`].
    DryRun,
    /// Give them node affinity.
    On,
}

/// Which claims and volumes are kept from vanishing, by finalizer, while they are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// None: a real cluster has its own controllers for it.
    #[default]
    Off,
    /// Claims that a pod on a node uses, and the volumes of such claims. What no pod uses can be
    /// deleted at once, a bound volume too: its claim is then lost.
    UsedByPods,
    /// As in Kubernetes: claims that a pod on a node uses, and all bound volumes.
    Bound,
}

/// What users are told about claims that wait for a driver which may run nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverHint {
    /// The provisioners that certainly run.
    pub served: &'static [&'static str],
    /// What to do about the others.
    pub text: &'static str,
}

/// The choices that change what steps do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Feature gate `VolumeScheduling`. Off: every claim is bound at once, whatever its class says.
    pub volume_scheduling: bool,
    /// Delay a claim only while a scheduler announces that it can bind such claims
    /// ([`State::set_delay_announced`](crate::State::set_delay_announced)). Without one they are bound at once.
    pub require_delayed_binding_scheduler: bool,
    /// Bind or provision the delayed claims of pods that were given a node without a scheduler.
    pub bind_for_placed_pods: bool,
    /// Turn zone labels into node affinity.
    pub zone_upgrade: ZoneUpgrade,
    /// Keep claims and volumes in use from vanishing.
    pub protection: Protection,
    /// Make the claims of generic ephemeral volumes. A real cluster has its own controller for it.
    pub ephemeral_claims: bool,
    /// Ends the event of a claim that waits for its provisioner.
    pub driver_hint: Option<DriverHint>,
}

impl Settings {
    /// What is right where there are no other controllers: an embedded cluster or a simulation.
    #[must_use]
    pub fn embedded() -> Self {
        Self {
            protection: Protection::Bound,
            ephemeral_claims: true,
            ..Self::default()
        }
    }
}

impl Default for Settings {
    /// What is right beside a real cluster's other controllers.
    fn default() -> Self {
        Self {
            volume_scheduling: true,
            require_delayed_binding_scheduler: false,
            bind_for_placed_pods: true,
            zone_upgrade: ZoneUpgrade::Off,
            protection: Protection::Off,
            ephemeral_claims: false,
            driver_hint: None,
        }
    }
}
