//! What an API server knows of one kind of object, as one value.

use serde_json::Value;

use crate::admission::Admission;
use crate::columns::{self, Column};
use crate::error::{FieldError, Refusal};
use crate::metadata::NameRule;

/// A kind: its names, and the rules that hold for its objects. Each is declared in a file of its own in `kinds`.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version within the group, such as `v1`.
    pub version: &'static str,
    /// Name of the kind, such as `PersistentVolumeClaim`.
    pub name: &'static str,
    /// Name in paths, such as `persistentvolumeclaims`.
    pub plural: &'static str,
    /// Abbreviations that kubectl understands, such as `pvc`.
    pub short_names: &'static [&'static str],
    /// Groups of resources that kubectl understands, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether the objects live in a namespace.
    pub namespaced: bool,
    /// Whether objects are kept. What is not kept is only answered, such as an access review.
    pub stored: bool,
    /// The subresources, in alphabetical order.
    pub subresources: &'static [Subresource],
    /// How objects may be called.
    pub name_rule: NameRule,
    /// What a generation counts.
    pub generation: Generation,
    /// What is special about writing objects of the kind.
    pub writes: Writes,
    /// How objects are stored, if that differs from how they are shown.
    pub stored_form: Option<StoredForm>,
    /// What `kubectl get` prints.
    pub columns: &'static [Column],
    /// The fields that objects can be selected by, besides their name and namespace.
    pub selectable: &'static [SelectableField],
    /// Fills in what is not set and does not depend on other objects. Whatever is set stays.
    pub defaults: fn(&mut Value),
    /// Completes a new object with what depends on other objects, or refuses it.
    pub admit: fn(&Admission<'_>, &mut Value) -> Result<(), Refusal>,
    /// Completes a changed object, or refuses the change. The first object is the one before the change.
    pub admit_update: fn(&Admission<'_>, &Value, &mut Value) -> Result<(), Refusal>,
    /// Whether that looks at the object before the change.
    pub compares_updates: bool,
    /// What is wrong with an object.
    pub validate: fn(&Value) -> Vec<FieldError>,
    /// What is wrong with an object whose status is written.
    pub validate_status: fn(&Value) -> Vec<FieldError>,
    /// What is wrong with a change, besides what is wrong with its result.
    pub validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// What the user should be told of an object that is otherwise fine.
    pub warnings: fn(&Value) -> Vec<String>,
}

/// A subresource and the kind of the object that is read from it or written to it.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    /// Name in the path, such as `status`.
    pub name: &'static str,
    /// Group, version and kind of the object that is exchanged; `None` for the kind itself.
    pub exchanged: Option<(&'static str, &'static str, &'static str)>,
    /// What may be asked of the subresource, in alphabetical order.
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

/// What `metadata.generation` of a kind does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// There is none.
    Absent,
    /// It begins with 1 and counts changes of what the user asks for.
    Counted,
    /// It begins with 1 and stays.
    Fixed,
    /// It appears with the first change.
    CountedLater,
}

/// What is special about writing objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writes {
    /// A PUT to a name that is not there creates the object.
    pub put_creates: bool,
    /// A PUT must say which version it is based on.
    pub put_needs_version: bool,
    /// A new object keeps the status it comes with, although there is a subresource for it.
    pub creates_with_status: bool,
    /// An object takes something that only one object can have, such as an address: writes come one after the other.
    pub takes_what_is_unique: bool,
}

impl Writes {
    /// Nothing special.
    pub const USUAL: Self = Self {
        put_creates: false,
        put_needs_version: false,
        creates_with_status: false,
        takes_what_is_unique: false,
    };
}

/// How objects are stored that another kind shows under other names.
#[derive(Debug, Clone, Copy)]
pub struct StoredForm {
    /// Plural of the kind that they are stored as, with its group.
    pub table: &'static str,
    /// The form that is shown, from the stored one.
    pub to_shown: fn(Value) -> Value,
    /// The stored form, from the one that is shown.
    pub to_stored: fn(Value) -> Value,
}

/// A field that objects can be selected by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectableField {
    /// What selectors call it, such as `spec.nodeName`.
    pub name: &'static str,
    /// Where its value is, as a dotted path.
    pub path: &'static str,
    /// Where its value is if it is not there.
    pub other_path: &'static str,
    /// What it reads as if it is not set.
    pub unset: &'static str,
}

impl SelectableField {
    /// A field that is called as its path.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            path: name,
            other_path: "",
            unset: "",
        }
    }

    /// A field that is elsewhere than its name says.
    pub(crate) const fn at(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    /// A field that may be in a second place.
    pub(crate) const fn or_at(self, other_path: &'static str) -> Self {
        Self { other_path, ..self }
    }

    /// A field that reads as something if it is not set: a flag as false, a counter as 0.
    pub(crate) const fn unset(self, unset: &'static str) -> Self {
        Self { unset, ..self }
    }
}

impl Kind {
    /// A kind whose objects live in a namespace, without rules of its own.
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

    /// A kind whose objects belong to the whole cluster, without rules of its own.
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

    /// `v1` or `apps/v1`: what objects of the kind carry as `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `persistentvolumeclaims` or `deployments.apps`: what the store calls the objects together.
    #[must_use]
    pub fn table(&self) -> String {
        match (&self.stored_form, self.group) {
            (Some(form), _) => form.table.to_owned(),
            (None, "") => self.plural.to_owned(),
            (None, group) => format!("{}.{group}", self.plural),
        }
    }

    /// Whether objects of the kind have a status that is written apart from the rest.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresources.iter().any(|found| found.name == STATUS.name)
    }
}
