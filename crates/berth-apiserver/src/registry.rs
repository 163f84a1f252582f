//! The resource types that the API serves, as plain data.
//!
//! Routing, discovery, OpenAPI and tables read this one list. The built-in types come from the table of `berth-kinds`.
//! Custom resources are added at run time by the code that stores CustomResourceDefinitions: the entries own their
//! strings, and there is no global mutable registry.

use std::sync::LazyLock;

use berth_kinds::Kind;

/// The verbs of a stored resource: all of them.
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

/// One kind of object in one version, with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceType {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group, for example `v1`.
    pub version: String,
    /// Kind of one object, for example `PersistentVolumeClaim`.
    pub kind: String,
    /// Kind of a list of them, for example `PersistentVolumeClaimList`.
    pub list_kind: String,
    /// Name in the path, for example `persistentvolumeclaims`.
    pub plural: String,
    /// Singular name, for example `persistentvolumeclaim`.
    pub singular: String,
    /// Short names that kubectl understands, for example `pvc`.
    pub short_names: Vec<String>,
    /// Categories that kubectl understands, for example `all`.
    pub categories: Vec<String>,
    /// Whether the objects are namespaced.
    pub namespaced: bool,
    /// The supported verbs, in alphabetical order.
    pub verbs: Vec<String>,
    /// The subresources, in alphabetical order.
    pub subresources: Vec<Subresource>,
}

/// A subresource and the kind of the object that is exchanged through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// Name in the path, for example `status`.
    pub name: String,
    /// Group of the exchanged object.
    pub group: String,
    /// Version of the exchanged object.
    pub version: String,
    /// Kind of the exchanged object.
    pub kind: String,
    /// The supported verbs, in alphabetical order.
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

    /// `v1` or `apps/v1`: the `apiVersion` of objects of this type.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// `persistentvolumeclaims` or `deployments.apps`: the name of the resource in error messages.
    pub fn qualified_plural(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// The subresource with that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether the resource itself supports the verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// A name with its group appended, unless that is the core group.
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

impl From<&Kind> for ResourceType {
    fn from(kind: &Kind) -> Self {
        let own = (kind.group, kind.version, kind.name);
        let subresource = |found: &berth_kinds::Subresource| {
            let (group, version, kind) = found.exchanged.unwrap_or(own);
            Subresource {
                name: found.name.to_owned(),
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                verbs: owned(found.verbs),
            }
        };
        ResourceType {
            short_names: owned(kind.short_names),
            categories: owned(kind.categories),
            verbs: if kind.stored {
                owned(&STORED_VERBS)
            } else {
                owned(&["create"])
            },
            subresources: kind.subresources.iter().map(subresource).collect(),
            ..ResourceType::stored(kind.group, kind.version, kind.name, kind.plural, kind.namespaced)
        }
    }
}

/// Every stored built-in resource type.
pub fn builtin() -> &'static [ResourceType] {
    static BUILTIN: LazyLock<Vec<ResourceType>> = LazyLock::new(|| types_of(berth_kinds::KINDS));
    &BUILTIN
}

/// The review types that `kubectl auth` posts to. They are answered, never stored, and so not in [`builtin`].
pub fn reviews() -> &'static [ResourceType] {
    static REVIEWS: LazyLock<Vec<ResourceType>> = LazyLock::new(|| types_of(berth_kinds::REVIEWS));
    &REVIEWS
}

fn types_of(kinds: &[&Kind]) -> Vec<ResourceType> {
    kinds.iter().map(|kind| ResourceType::from(*kind)).collect()
}

/// The type served at `(group, version, plural)`.
pub fn by_plural<'a>(types: &'a [ResourceType], group: &str, version: &str, plural: &str) -> Option<&'a ResourceType> {
    types
        .iter()
        .find(|t| t.plural == plural && t.group == group && t.version == version)
}

/// The type of objects with this `(group, version, kind)`.
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
