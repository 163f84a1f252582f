//! The flags of kube-controller-manager that `berth controller` supports in addition to its own, and those that it accepts: the generic
//! ones and those of the volume controllers.

use super::accepted::{Accepted, Flag, Table};
use super::generic::{self, GenericArgs};
use super::logging;
use clap::Args;

/// Flags of kube-controller-manager.
#[derive(Args, Debug)]
#[command(next_help_heading = "Flags of kube-controller-manager")]
pub struct KubeControllerManagerArgs {
    /// Flags that kube-scheduler has, too.
    #[command(flatten)]
    pub generic: GenericArgs,
    /// Flags that have no effect.
    #[command(flatten)]
    pub unused: Accepted<Unused>,
}

/// Flags of kube-controller-manager that have no effect here.
#[derive(Clone, Copy, Debug)]
pub struct Unused;

const ONE_CONTROLLER: &str = "the configuration file selects what this controller does";
const NO_IN_TREE: &str = "no volume plugin of this controller connects to a host";
const NO_RECYCLING: &str = "volumes with the policy Recycle are not scrubbed: use dynamic provisioning";
const NO_ATTACHING: &str = "Berth does not attach volumes: the attach/detach controller of Kubernetes does";

impl Table for Unused {
    const FLAGS: &'static [&'static [Flag]] = &[
        generic::FLAGS,
        logging::FLAGS,
        &[
            Flag::value("controllers", ONE_CONTROLLER),
            Flag::value("controller-start-interval", ONE_CONTROLLER),
            Flag::value(
                "controller-shutdown-timeout",
                "writes under way are finished, however long they take",
            ),
            Flag::value("min-resync-period", "see resyncSeconds of the configuration file"),
            Flag::switch("volume-host-allow-local-loopback", NO_IN_TREE),
            Flag::value("volume-host-cidr-denylist", NO_IN_TREE),
            Flag::value("attach-detach-reconcile-sync-period", NO_ATTACHING),
            Flag::value(
                "concurrent-ephemeralvolume-syncs",
                "see workers of the configuration file",
            ),
            Flag::switch("disable-attach-detach-reconcile-sync", NO_ATTACHING),
            Flag::switch("disable-force-detach-on-timeout", NO_ATTACHING),
            Flag::switch(
                "enable-dynamic-provisioning",
                "claims are always assigned to the provisioner of their class",
            ),
            Flag::switch(
                "enable-hostpath-provisioner",
                "there is none: use berth.dev/local for tests",
            ),
            Flag::value("flex-volume-plugin-dir", "there are no flex volumes"),
            Flag::value("pv-recycler-increment-timeout-nfs", NO_RECYCLING),
            Flag::value("pv-recycler-minimum-timeout-hostpath", NO_RECYCLING),
            Flag::value("pv-recycler-minimum-timeout-nfs", NO_RECYCLING),
            Flag::value("pv-recycler-pod-template-filepath-hostpath", NO_RECYCLING),
            Flag::value("pv-recycler-pod-template-filepath-nfs", NO_RECYCLING),
            Flag::value("pv-recycler-timeout-increment-hostpath", NO_RECYCLING),
            Flag::value(
                "pvclaimbinder-sync-period",
                "see resyncSeconds of the configuration file",
            ),
        ],
    ];
}
