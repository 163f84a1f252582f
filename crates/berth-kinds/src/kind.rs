//! Everything an API server needs to know about one kind of object, as one value.

use serde_json::Value;

use crate::admission::Admission;
use crate::columns::{self, Column};
use crate::error::{FieldError, Refusal};
use crate::metadata::NameRule;

/// A kind: its names and the rules for its objects. Each is declared in its own file in `kinds`.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version within the group, for example `v1`.
    pub version: &'static str,
    /// Name of the kind, for example `PersistentVolumeClaim`.
    pub name: &'static str,
    /// Name in paths, for example `persistentvolumeclaims`.
    pub plural: &'static str,
    /// Short names that kubectl understands, for example `pvc`.
    pub short_names: &'static [&'static str],
    /// Categories that kubectl understands, for example `all`.
    pub categories: &'static [&'static str],
    /// Whether the objects are namespaced.
    pub namespaced: bool,
    /// Whether objects are stored. An access review, for example, is only answered.
    pub stored: bool,
    /// The subresources, in alphabetical order.
    pub subresources: &'static [Subresource],
    /// Which names are valid.
    pub name_rule: NameRule,
    /// How `metadata.generation` is counted.
    pub generation: Generation,
    /// Special rules for writes.
    pub writes: Writes,
    /// How objects are stored, if that differs from how they are served.
    pub stored_form: Option<StoredForm>,
    /// What `kubectl get` prints.
    pub columns: &'static [Column],
    /// The fields that objects can be selected by, in addition to name and namespace.
    pub selectable: &'static [SelectableField],
    /// Fills in unset fields that do not depend on other objects. Fields that are set are kept.
    pub defaults: fn(&mut Value),
    /// Completes a new object with what depends on other objects, or refuses it.
    pub admit: fn(&Admission<'_>, &mut Value) -> Result<(), Refusal>,
    /// Completes a changed object, or refuses the change. The first object is the previous one.
    pub admit_update: fn(&Admission<'_>, &Value, &mut Value) -> Result<(), Refusal>,
    /// Whether `admit_update` reads the previous object.
    pub compares_updates: bool,
    /// Validates an object.
    pub validate: fn(&Value) -> Vec<FieldError>,
    /// Validates an object whose status is written.
    pub validate_status: fn(&Value) -> Vec<FieldError>,
    /// Validates a change, in addition to its result.
    pub validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// Warnings for the user about an otherwise valid object.
    pub warnings: fn(&Value) -> Vec<String>,
}

/// A subresource and the kind of the object that is exchanged through it.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    /// Name in the path, for example `status`.
    pub name: &'static str,
    /// Group, version and kind of the object that is exchanged; `None` for the kind itself.
    pub exchanged: Option<(&'static str, &'static str, &'static str)>,
    /// The supported verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
}

/// The `status` subresource.
pub(crate) const STATUS: Subresource = Subresource {
    name: "status",
    exchanged: None,
    verbs: &["get", "patch", "update"],
};

/// The `scale` subresource.
pub(crate) const SCALE: Subresource = Subresource {
    name: "scale",
    exchanged: Some(("autoscaling", "v1", "Scale")),
    verbs: &["get", "patch", "update"],
};

/// How `metadata.generation` of a kind behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Not set.
    Absent,
    /// Starts at 1 and counts changes of the desired state.
    Counted,
    /// Always 1.
    Fixed,
    /// Set on the first change.
    CountedLater,
}

/// Special rules for writing objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writes {
    /// A PUT to a nonexistent name creates the object.
    pub put_creates: bool,
    /// A PUT must specify the version it is based on.
    pub put_needs_version: bool,
    /// A new object keeps its status, although there is a subresource for it.
    pub creates_with_status: bool,
    /// An object takes a resource that must be unique, such as an address: writes are serialized.
    pub takes_what_is_unique: bool,
}

impl Writes {
    /// No special rules.
    pub const USUAL: Self = Self {
        put_creates: false,
        put_needs_version: false,
        creates_with_status: false,
        takes_what_is_unique: false,
    };
}

/// The stored form of objects that are served under other field names.
#[derive(Debug, Clone, Copy)]
pub struct StoredForm {
    /// Plural of the kind that they are stored as, with its group.
    pub table: &'static str,
    /// Converts the stored form to the served one.
    pub to_shown: fn(Value) -> Value,
    /// Converts the served form to the stored one.
    pub to_stored: fn(Value) -> Value,
}

/// A field that objects can be selected by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectableField {
    /// Its name in selectors, for example `spec.nodeName`.
    pub name: &'static str,
    /// The dotted path of its value.
    pub path: &'static str,
    /// An alternative path of its value.
    pub other_path: &'static str,
    /// Its value if unset.
    pub unset: &'static str,
}

impl SelectableField {
    /// A field whose name is its path.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            path: name,
            other_path: "",
            unset: "",
        }
    }

    /// Sets a path that differs from the name.
    pub(crate) const fn at(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    /// Sets an alternative path.
    pub(crate) const fn or_at(self, other_path: &'static str) -> Self {
        Self { other_path, ..self }
    }

    /// Sets the value of an unset field: false for a flag, 0 for a counter.
    pub(crate) const fn unset(self, unset: &'static str) -> Self {
        Self { unset, ..self }
    }
}

impl Kind {
    /// A namespaced kind without special rules.
    pub(crate) const fn namespaced(
        group: &'static str,
        version: &'static str,
        name: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            name,
            plural,
            short_names: &[],
            categories: &[],
            namespaced: true,
            stored: true,
            subresources: &[],
            name_rule: NameRule::Subdomain,
            generation: Generation::Absent,
            writes: Writes::USUAL,
            stored_form: None,
            columns: columns::NAME_AND_AGE,
            selectable: &[],
            defaults: |_| {},
            admit: |_, _| Ok(()),
            admit_update: |_, _, _| Ok(()),
            compares_updates: false,
            validate: |_| Vec::new(),
            validate_status: |_| Vec::new(),
            validate_update: |_, _| Vec::new(),
            warnings: |_| Vec::new(),
        }
    }

    /// A cluster-scoped kind without special rules.
    pub(crate) const fn cluster(
        group: &'static str,
        version: &'static str,
        name: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            namespaced: false,
            ..Self::namespaced(group, version, name, plural)
        }
    }

    /// `v1` or `apps/v1`: the `apiVersion` of the kind's objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `persistentvolumeclaims` or `deployments.apps`: the name of the kind's table in the store.
    #[must_use]
    pub fn table(&self) -> String {
        match (&self.stored_form, self.group) {
            (Some(form), _) => form.table.to_owned(),
            (None, "") => self.plural.to_owned(),
            (None, group) => format!("{}.{group}", self.plural),
        }
    }

    /// Whether objects of the kind have a status subresource.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresources.iter().any(|found| found.name == STATUS.name)
    }
}
