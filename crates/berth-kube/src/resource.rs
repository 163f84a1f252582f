//! The API paths of the objects of a kind.

use berth_core::api::{Kind, Object, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A resource of the API: group, version, plural name and whether it is namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// API group, empty for the core one.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Name in the path.
    pub plural: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
}

impl Resource {
    /// Events of the core group.
    pub const EVENTS: Self = Self::core("events", "Event", true);
    /// Secrets. On a real cluster they are read one at a time by name, never listed or watched.
    pub const SECRETS: Self = Self::core("secrets", "Secret", true);
    /// Config maps. Only the node agents of `berth up` read them.
    pub const CONFIG_MAPS: Self = Self::core("configmaps", "ConfigMap", true);
    /// Leases.
    pub const LEASES: Self = Self {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        kind: "Lease",
        namespaced: true,
    };

    /// Deployments.
    pub const DEPLOYMENTS: Self = Self::grouped("apps", "deployments", "Deployment");
    /// Daemon sets.
    pub const DAEMON_SETS: Self = Self::grouped("apps", "daemonsets", "DaemonSet");
    /// Jobs.
    pub const JOBS: Self = Self::grouped("batch", "jobs", "Job");
    /// Cron jobs.
    pub const CRON_JOBS: Self = Self::grouped("batch", "cronjobs", "CronJob");
    /// Revisions of workloads.
    pub const CONTROLLER_REVISIONS: Self = Self::grouped("apps", "controllerrevisions", "ControllerRevision");

    /// Volume attributes classes.
    pub const VOLUME_ATTRIBUTES_CLASSES: Self = Self {
        namespaced: false,
        ..Self::grouped("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass")
    };

    /// Snapshots of volumes. The cluster has them if a snapshot controller is installed.
    pub const VOLUME_SNAPSHOTS: Self = Self::grouped("snapshot.storage.k8s.io", "volumesnapshots", "VolumeSnapshot");
    /// What snapshots are bound to.
    pub const VOLUME_SNAPSHOT_CONTENTS: Self = Self {
        namespaced: false,
        ..Self::grouped(
            "snapshot.storage.k8s.io",
            "volumesnapshotcontents",
            "VolumeSnapshotContent",
        )
    };
    /// Permissions to use objects of another namespace. The cluster has them if the Gateway API is installed.
    pub const REFERENCE_GRANTS: Self = Self {
        version: "v1beta1",
        ..Self::grouped("gateway.networking.k8s.io", "referencegrants", "ReferenceGrant")
    };

    const fn grouped(group: &'static str, plural: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            version: "v1",
            plural,
            kind,
            namespaced: true,
        }
    }

    const fn core(plural: &'static str, kind: &'static str, namespaced: bool) -> Self {
        Self {
            group: "",
            version: "v1",
            plural,
            kind,
            namespaced,
        }
    }

    /// The resource of a kind that Berth reads.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        let plural = match kind {
            Kind::Node => "nodes",
            Kind::Pod => "pods",
            Kind::PersistentVolume => "persistentvolumes",
            Kind::PersistentVolumeClaim => "persistentvolumeclaims",
            Kind::StorageClass => "storageclasses",
            Kind::CsiNode => "csinodes",
            Kind::CsiDriver => "csidrivers",
            Kind::CsiStorageCapacity => "csistoragecapacities",
            Kind::VolumeAttachment => "volumeattachments",
            Kind::Namespace => "namespaces",
            Kind::PriorityClass => "priorityclasses",
            Kind::Service => "services",
            Kind::ReplicationController => "replicationcontrollers",
            Kind::ReplicaSet => "replicasets",
            Kind::StatefulSet => "statefulsets",
            Kind::PodDisruptionBudget => "poddisruptionbudgets",
        };
        Self {
            group: kind.group(),
            version: "v1",
            plural,
            kind: kind.name(),
            namespaced: kind.is_namespaced(),
        }
    }

    /// The resource of a kind by its name, if Berth reads or writes it.
    #[must_use]
    pub fn named(kind: &str) -> Option<Self> {
        let others = [
            Self::DEPLOYMENTS,
            Self::DAEMON_SETS,
            Self::JOBS,
            Self::CRON_JOBS,
            Self::CONTROLLER_REVISIONS,
            Self::LEASES,
            Self::VOLUME_ATTRIBUTES_CLASSES,
            Self::VOLUME_SNAPSHOTS,
            Self::VOLUME_SNAPSHOT_CONTENTS,
            Self::REFERENCE_GRANTS,
        ];
        let other = || others.into_iter().find(|known| known.kind == kind);
        Kind::named(kind).map(Self::of).or_else(other)
    }

    /// `group/version`, or only the version for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether the kind is optional in a cluster. Every API server serves the kinds of Kubernetes itself.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.group == "storage.berth.dev"
    }

    /// The path of all objects, in one namespace or in all.
    #[must_use]
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let api_version = self.api_version();
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{api_version}/{}", self.plural),
        }
    }

    /// The path of one object.
    #[must_use]
    pub fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(Some(namespace)))
    }
}

/// An object that a watch can deliver.
pub trait Watchable: DeserializeOwned + Send + 'static {
    /// The object's metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Called with the resource when the object has been decoded, before the next one is: a list may hold many, so what is not needed
    /// of them can be dropped here.
    fn complete(&mut self, _resource: Resource) {}
}

/// An object of a kind that Berth reads.
pub trait Watched: Watchable + Into<Object> {
    /// The kind.
    const KIND: Kind;
}

macro_rules! watched {
    ($($kind:ident),* $(,)?) => {
        /// Decodes an object of a kind that Berth reads.
        pub(crate) fn decode(kind: Kind, bytes: &[u8]) -> serde_json::Result<Object> {
            match kind { $(Kind::$kind => serde_json::from_slice(bytes).map(Object::$kind),)* }
        }

        $(
            impl Watchable for berth_core::api::$kind {
                fn metadata(&self) -> &ObjectMeta {
                    &self.metadata
                }
            }

            impl Watched for berth_core::api::$kind {
                const KIND: Kind = Kind::$kind;
            }
        )*
    };
}

watched!(
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    StorageClass,
    VolumeAttachment,
);

/// An object of any kind with all of its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    metadata: ObjectMeta,
    /// The object, with kind and API version.
    pub value: Value,
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

impl Watchable for Whole {
    /// Name, namespace, UID and version; the rest is in the value.
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// Sets kind and API version, which the items of a list lack.
    fn complete(&mut self, resource: Resource) {
        if let Value::Object(fields) = &mut self.value {
            fields.insert("apiVersion".to_owned(), Value::String(resource.api_version()));
            fields.insert("kind".to_owned(), Value::String(resource.kind.to_owned()));
        }
    }
}

/// An object with an identity.
pub trait Identified: Send + 'static {
    /// Its metadata, at least name and namespace.
    fn identity(&self) -> &ObjectMeta;
}

impl Identified for Whole {
    fn identity(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Identified for Object {
    fn identity(&self) -> &ObjectMeta {
        self.metadata()
    }
}

#[cfg(test)]
mod tests {
    use super::Resource;
    use berth_core::api::Kind;

    #[test]
    fn paths_are_those_of_kubernetes() {
        let claims = Resource::of(Kind::PersistentVolumeClaim);
        assert_eq!(
            claims.object("ns", "c"),
            "/api/v1/namespaces/ns/persistentvolumeclaims/c"
        );
        assert_eq!(claims.collection(None), "/api/v1/persistentvolumeclaims");
        let classes = Resource::of(Kind::StorageClass);
        assert_eq!(
            classes.object("", "fast"),
            "/apis/storage.k8s.io/v1/storageclasses/fast"
        );
    }
}
