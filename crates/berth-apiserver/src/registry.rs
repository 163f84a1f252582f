//! The resource types that the API serves, as plain data.
//!
//! Everything that depends on "which kinds are there" (routing, discovery, OpenAPI, tables) reads this
//! one list. Custom resources are added to it at run time by whoever stores CustomResourceDefinitions:
//! the entries own their strings, and nothing here keeps a global mutable registry.

use std::sync::LazyLock;

/// The verbs of a resource that is stored: all of them.
pub const STORED_VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// One kind of objects in one version, with the names it is served under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceType {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group, such as `v1`.
    pub version: String,
    /// Kind of one object, such as `PersistentVolumeClaim`.
    pub kind: String,
    /// Kind of a list of them, such as `PersistentVolumeClaimList`.
    pub list_kind: String,
    /// Name in the path, such as `persistentvolumeclaims`.
    pub plural: String,
    /// Name for one object, such as `persistentvolumeclaim`.
    pub singular: String,
    /// Abbreviations that kubectl understands, such as `pvc`.
    pub short_names: Vec<String>,
    /// Groups of resources that kubectl understands, such as `all`.
    pub categories: Vec<String>,
    /// Whether the objects live in a namespace.
    pub namespaced: bool,
    /// What may be asked of the resource, in alphabetical order.
    pub verbs: Vec<String>,
    /// The subresources, in alphabetical order.
    pub subresources: Vec<Subresource>,
}

/// A subresource and the kind of the object that is read from it or written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// Name in the path, such as `status`.
    pub name: String,
    /// Group of the object that is exchanged.
    pub group: String,
    /// Version of the object that is exchanged.
    pub version: String,
    /// Kind of the object that is exchanged.
    pub kind: String,
    /// What may be asked of the subresource, in alphabetical order.
    pub verbs: Vec<String>,
}

impl ResourceType {
    /// A stored resource type without short names, categories or subresources.
    pub fn stored(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        ResourceType {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced,
            verbs: owned(&STORED_VERBS),
            subresources: Vec::new(),
        }
    }

    /// A type that only takes in objects and answers them, such as an access review.
    fn review(group: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        ResourceType {
            verbs: owned(&["create"]),
            ..ResourceType::stored(group, "v1", kind, plural, namespaced)
        }
    }

    /// Adds abbreviations.
    #[must_use]
    pub fn short(mut self, names: &[&str]) -> Self {
        self.short_names = owned(names);
        self
    }

    /// Adds categories.
    #[must_use]
    pub fn category(mut self, names: &[&str]) -> Self {
        self.categories = owned(names);
        self
    }

    /// Adds the `status` subresource.
    #[must_use]
    pub fn with_status(self) -> Self {
        let (group, version, kind) = (self.group.clone(), self.version.clone(), self.kind.clone());
        self.with_subresource("status", &group, &version, &kind, &["get", "patch", "update"])
    }

    /// Adds the `scale` subresource.
    #[must_use]
    pub fn with_scale(self) -> Self {
        self.with_subresource("scale", "autoscaling", "v1", "Scale", &["get", "patch", "update"])
    }

    /// Adds any subresource.
    #[must_use]
    pub fn with_subresource(mut self, name: &str, group: &str, version: &str, kind: &str, verbs: &[&str]) -> Self {
        self.subresources.push(Subresource {
            name: name.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            verbs: owned(verbs),
        });
        self.subresources.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// `v1` or `apps/v1`: what objects of this type carry as `apiVersion`.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// `persistentvolumeclaims` or `deployments.apps`: what error messages call the resource.
    pub fn qualified_plural(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether the verb may be used on the resource itself.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// A name with its group behind it, unless that is the core group.
pub(crate) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

/// `v1` for the core group, `group/version` for the others.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&n| n.to_owned()).collect()
}

/// Every stored resource type that needs no CustomResourceDefinition.
pub fn builtin() -> &'static [ResourceType] {
    static BUILTIN: LazyLock<Vec<ResourceType>> = LazyLock::new(|| {
        let mut all = core();
        all.extend(workloads());
        all.extend(storage());
        all.extend(cluster());
        all.extend(network());
        all
    });
    &BUILTIN
}

/// The review types that `kubectl auth` posts to. They are answered, never stored, and so not in [`builtin`].
pub fn reviews() -> &'static [ResourceType] {
    static REVIEWS: LazyLock<Vec<ResourceType>> = LazyLock::new(|| {
        let authn = "authentication.k8s.io";
        let authz = "authorization.k8s.io";
        vec![
            ResourceType::review(authn, "SelfSubjectReview", "selfsubjectreviews", false),
            ResourceType::review(authn, "TokenReview", "tokenreviews", false),
            ResourceType::review(authz, "LocalSubjectAccessReview", "localsubjectaccessreviews", true),
            ResourceType::review(authz, "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
            ResourceType::review(authz, "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
            ResourceType::review(authz, "SubjectAccessReview", "subjectaccessreviews", false),
        ]
    });
    &REVIEWS
}

fn core() -> Vec<ResourceType> {
    let namespaced = |kind, plural| ResourceType::stored("", "v1", kind, plural, true);
    let cluster = |kind, plural| ResourceType::stored("", "v1", kind, plural, false);
    vec![
        namespaced("ConfigMap", "configmaps").short(&["cm"]),
        namespaced("Endpoints", "endpoints").short(&["ep"]),
        namespaced("Event", "events").short(&["ev"]),
        namespaced("LimitRange", "limitranges").short(&["limits"]),
        cluster("Namespace", "namespaces").short(&["ns"]).with_status(),
        cluster("Node", "nodes").short(&["no"]).with_status(),
        namespaced("PersistentVolumeClaim", "persistentvolumeclaims")
            .short(&["pvc"])
            .with_status(),
        cluster("PersistentVolume", "persistentvolumes")
            .short(&["pv"])
            .with_status(),
        namespaced("Pod", "pods")
            .short(&["po"])
            .category(&["all"])
            .with_status()
            .with_subresource("binding", "", "v1", "Binding", &["create"])
            .with_subresource("eviction", "policy", "v1", "Eviction", &["create"]),
        namespaced("PodTemplate", "podtemplates"),
        namespaced("ReplicationController", "replicationcontrollers")
            .short(&["rc"])
            .category(&["all"])
            .with_scale()
            .with_status(),
        namespaced("ResourceQuota", "resourcequotas")
            .short(&["quota"])
            .with_status(),
        namespaced("Secret", "secrets"),
        namespaced("ServiceAccount", "serviceaccounts").short(&["sa"]),
        namespaced("Service", "services")
            .short(&["svc"])
            .category(&["all"])
            .with_status(),
    ]
}

fn workloads() -> Vec<ResourceType> {
    let apps = |kind, plural| ResourceType::stored("apps", "v1", kind, plural, true);
    let all = ["all"];
    vec![
        apps("ControllerRevision", "controllerrevisions"),
        apps("DaemonSet", "daemonsets")
            .short(&["ds"])
            .category(&all)
            .with_status(),
        apps("Deployment", "deployments")
            .short(&["deploy"])
            .category(&all)
            .with_scale()
            .with_status(),
        apps("ReplicaSet", "replicasets")
            .short(&["rs"])
            .category(&all)
            .with_scale()
            .with_status(),
        apps("StatefulSet", "statefulsets")
            .short(&["sts"])
            .category(&all)
            .with_scale()
            .with_status(),
        ResourceType::stored("batch", "v1", "CronJob", "cronjobs", true)
            .short(&["cj"])
            .category(&all)
            .with_status(),
        ResourceType::stored("batch", "v1", "Job", "jobs", true)
            .category(&all)
            .with_status(),
    ]
}

fn storage() -> Vec<ResourceType> {
    let group = "storage.k8s.io";
    let cluster = |kind, plural| ResourceType::stored(group, "v1", kind, plural, false);
    vec![
        cluster("CSIDriver", "csidrivers").with_status(),
        cluster("CSINode", "csinodes"),
        ResourceType::stored(group, "v1", "CSIStorageCapacity", "csistoragecapacities", true),
        cluster("StorageClass", "storageclasses").short(&["sc"]),
        cluster("VolumeAttachment", "volumeattachments").with_status(),
        cluster("VolumeAttributesClass", "volumeattributesclasses").short(&["vac"]),
    ]
}

fn cluster() -> Vec<ResourceType> {
    let rbac = "rbac.authorization.k8s.io";
    vec![
        ResourceType::stored(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
        )
        .short(&["crd", "crds"])
        .category(&["api-extensions"])
        .with_status(),
        ResourceType::stored("coordination.k8s.io", "v1", "Lease", "leases", true),
        ResourceType::stored("events.k8s.io", "v1", "Event", "events", true).short(&["ev"]),
        ResourceType::stored("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true)
            .short(&["pdb"])
            .with_status(),
        ResourceType::stored(rbac, "v1", "ClusterRoleBinding", "clusterrolebindings", false),
        ResourceType::stored(rbac, "v1", "ClusterRole", "clusterroles", false),
        ResourceType::stored(rbac, "v1", "RoleBinding", "rolebindings", true),
        ResourceType::stored(rbac, "v1", "Role", "roles", true),
        ResourceType::stored("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false).short(&["pc"]),
    ]
}

/// Kinds that are stored for the sake of manifests that have them: nothing here routes, scales or limits.
fn network() -> Vec<ResourceType> {
    let networking = "networking.k8s.io";
    vec![
        ResourceType::stored(
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            true,
        )
        .short(&["hpa"])
        .category(&["all"])
        .with_status(),
        ResourceType::stored("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
        ResourceType::stored(networking, "v1", "IngressClass", "ingressclasses", false),
        ResourceType::stored(networking, "v1", "Ingress", "ingresses", true)
            .short(&["ing"])
            .with_status(),
        ResourceType::stored(networking, "v1", "NetworkPolicy", "networkpolicies", true).short(&["netpol"]),
        ResourceType::stored("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", false),
    ]
}

/// The type served at `(group, version, plural)`.
pub fn by_plural<'a>(types: &'a [ResourceType], group: &str, version: &str, plural: &str) -> Option<&'a ResourceType> {
    types
        .iter()
        .find(|t| t.plural == plural && t.group == group && t.version == version)
}

/// The type of objects that say `(group, version, kind)` of themselves.
pub fn by_kind<'a>(types: &'a [ResourceType], group: &str, version: &str, kind: &str) -> Option<&'a ResourceType> {
    types
        .iter()
        .find(|t| t.kind == kind && t.group == group && t.version == version)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn types_are_found_by_either_name() {
        fn check(group: &str, plural: &str, kind: &str, subresources: &[&str]) {
            let by_plural = by_plural(builtin(), group, "v1", plural).expect(plural);
            let by_kind = by_kind(builtin(), group, "v1", kind).expect(kind);
            assert_eq!(by_plural, by_kind);
            let names: Vec<_> = by_plural.subresources.iter().map(|s| s.name.as_str()).collect();
            assert_eq!(names, subresources, "{plural}");
        }
        check("", "pods", "Pod", &["binding", "eviction", "status"]);
        check("", "endpoints", "Endpoints", &[]);
        check("apps", "deployments", "Deployment", &["scale", "status"]);
        check("storage.k8s.io", "csidrivers", "CSIDriver", &["status"]);
        check("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", &[]);
        check("events.k8s.io", "events", "Event", &[]);
        assert!(by_plural(builtin(), "apps", "v1", "pods").is_none());
        assert!(by_kind(builtin(), "", "v2", "Pod").is_none());
    }

    #[test]
    fn names_are_unique_within_a_group() {
        let mut plurals = HashSet::new();
        for t in builtin().iter().chain(reviews()) {
            assert!(plurals.insert((t.group.as_str(), t.plural.as_str())), "{}", t.plural);
            assert!(t.verbs.is_sorted(), "{}", t.plural);
        }
    }
}
