//! Settings for administrators.

/// What to do with volumes that have zone labels and no node affinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneUpgrade {
    /// Leave them alone.
    #[default]
    Off,
    /// Report what would change, change nothing: see [`crate::zone::plan`].
    DryRun,
    /// Add node affinity to them.
    On,
}

/// Which claims and volumes are protected from deletion, by finalizer, while they are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// None: a real cluster has its own controllers for this.
    #[default]
    Off,
    /// Claims used by a pod on a node, and their volumes. Anything that no pod uses can be deleted at once, including a
    /// bound volume: its claim is then lost.
    UsedByPods,
    /// As in Kubernetes: claims used by a pod on a node, and all bound volumes.
    Bound,
}

/// A hint for users about claims that wait for a driver that may not be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverHint {
    /// The provisioners that certainly run.
    pub served: &'static [&'static str],
    /// What to do about the others.
    pub text: &'static str,
}

/// Settings that change what steps do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Feature gate `VolumeScheduling`. Off: every claim is bound immediately, whatever its class says.
    pub volume_scheduling: bool,
    /// Delay a claim only while a scheduler announces that it can bind such claims
    /// ([`State::set_delay_announced`](crate::State::set_delay_announced)). Without one they are bound immediately.
    pub require_delayed_binding_scheduler: bool,
    /// Bind or provision the delayed claims of pods whose node was set without a scheduler.
    pub bind_for_placed_pods: bool,
    /// Turn zone labels into node affinity.
    pub zone_upgrade: ZoneUpgrade,
    /// Protect claims and volumes in use from deletion.
    pub protection: Protection,
    /// Feature gate `PersistentVolumeClaimUnusedSinceTime`: report on bound claims whether a pod uses them. A part of protection: without
    /// it, nothing is reported.
    pub claim_unused_since_time: bool,
    /// Create the claims of generic ephemeral volumes. A real cluster has its own controller for this.
    pub ephemeral_claims: bool,
    /// Appended to the event of a claim that waits for its provisioner.
    pub driver_hint: Option<DriverHint>,
}

impl Settings {
    /// Settings without other controllers: for an embedded cluster or a simulation.
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
    /// Settings next to a real cluster's other controllers.
    fn default() -> Self {
        Self {
            volume_scheduling: true,
            require_delayed_binding_scheduler: false,
            bind_for_placed_pods: true,
            zone_upgrade: ZoneUpgrade::Off,
            protection: Protection::Off,
            claim_unused_since_time: true,
            ephemeral_claims: false,
            driver_hint: None,
        }
    }
}
