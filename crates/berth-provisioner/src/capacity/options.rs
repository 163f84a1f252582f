//! Where capacity is published, and how.

use super::Owner;
use std::time::Duration;

/// Where capacity is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityForm {
    /// `CSIStorageCapacity` objects, which every cluster has.
    Objects,
    /// Pools in the status of the `CSIDriver`, if the server supports it.
    DriverStatus,
    /// Pools in Berth's custom resource.
    CustomResource,
}

/// How capacity is published.
#[derive(Clone, Debug)]
pub struct CapacityOptions {
    /// The form.
    pub form: CapacityForm,
    /// Pools only: also publish for inline volumes, without parameters.
    pub ephemeral: bool,
    /// Pools only: publish once for all classes, without parameters, instead of for each. For storage that does not
    /// depend on the class.
    pub fallback: bool,
    /// Segments are the node labels with this prefix, instead of those that the driver registered.
    pub label_prefix: Option<String>,
    /// For built-in provisioners, which have no `CSIDriver`: create it if missing, publish only classes with a limit,
    /// and report that all others have space.
    pub announce: bool,
    /// Pools only: a report that was not renewed for this long expires. Without this it counts until it is replaced: for a
    /// backend that is deleted with the cluster.
    pub expiry: Option<Duration>,
    /// The namespace of the objects.
    pub namespace: String,
    /// The manager of the objects. Objects that another program published under this name are adopted.
    pub keeper: &'static str,
    /// Their owner.
    pub owner: Option<Owner>,
    /// Also publish for classes with immediate binding.
    pub immediate: bool,
    /// How often everything is queried again.
    pub poll: Duration,
    /// Number of concurrent queries and writes.
    pub workers: usize,
}

impl CapacityOptions {
    /// Objects in a namespace, queried every minute.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            form: CapacityForm::Objects,
            ephemeral: false,
            fallback: false,
            label_prefix: None,
            announce: false,
            // Five consecutive queries may fail before the last report expires.
            expiry: Some(Duration::from_secs(300)),
            namespace: namespace.into(),
            keeper: "berth-provisioner",
            owner: None,
            immediate: false,
            poll: Duration::from_secs(60),
            workers: 8,
        }
    }

    /// Pools of the built-in provisioners of an embedded or simulated cluster. Most of their classes have no limit: only those
    /// with one are published, and what others publish about the rest counts.
    #[must_use]
    pub fn builtin() -> Self {
        Self {
            form: CapacityForm::DriverStatus,
            announce: true,
            expiry: None,
            ..Self::new("default")
        }
    }
}
