//! Selects the objects of a list or a watch by namespace, labels and fields, prepared for repeated use.

use berth_kinds::SelectableField;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::selector::{FieldSelector, LabelSelector};
use crate::store::{Event, EventKind, Object};
use crate::types::Served;

/// A field requirement and the cheapest way to evaluate it.
#[derive(Debug)]
enum Field {
    Name,
    Namespace,
    /// A plain text at a path, found without decoding the rest.
    Path(Vec<String>),
}

/// The selectable fields of a built-in type.
fn selectable(served: &Served) -> &'static [SelectableField] {
    served.kind.map_or(&[], |kind| kind.selectable)
}

/// The conditions of one list or watch.
#[derive(Debug)]
pub(crate) struct Filter {
    /// `namespace/`, or empty for all.
    prefix: String,
    labels: LabelSelector,
    /// Requirements on plain texts.
    fields: Vec<(Field, bool, String)>,
    /// The other requirements, which need the whole object.
    whole: FieldSelector,
}

/// Whether a field is a text at its path whose absence means the empty text, so that a lookup is sufficient.
fn is_plain(field: &SelectableField) -> bool {
    field.path == field.name && field.other_path.is_empty() && field.unset.is_empty()
}

impl Filter {
    pub(crate) fn new(served: &Served, namespace: &str, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let bad = |error: crate::selector::SelectorError| ApiError::bad_request(error.to_string());
        let selector = FieldSelector::parse(fields).map_err(bad)?;
        match (served.kind, &served.custom) {
            (Some(kind), _) => selector.check_supported(kind),
            (None, Some(custom)) => selector.check_among(&custom.selectable),
            (None, None) => selector.check_among(&[]),
        }
        .map_err(bad)?;
        let selectable = selectable(served);
        let mut filter = Self {
            prefix: if namespace.is_empty() {
                String::new()
            } else {
                format!("{namespace}/")
            },
            labels: LabelSelector::parse(labels).map_err(bad)?,
            fields: Vec::new(),
            whole: FieldSelector::default(),
        };
        for requirement in selector.requirements {
            let field = match requirement.field.as_str() {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                name if !served.is_converted()
                    && selectable.iter().any(|field| field.name == name && is_plain(field)) =>
                {
                    Field::Path(name.split('.').map(str::to_owned).collect())
                }
                _ => {
                    filter.whole.requirements.push(requirement);
                    continue;
                }
            };
            filter.fields.push((field, requirement.equal, requirement.value));
        }
        Ok(filter)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether every object of the namespace matches.
    pub(crate) fn takes_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.whole.is_empty()
    }

    pub(crate) fn matches(&self, served: &Served, object: &Object) -> bool {
        object.key().starts_with(&self.prefix)
            && self.matches_labels(object)
            && self.fields.iter().all(|(field, equal, value)| {
                let found = match field {
                    Field::Name => object.name() == value,
                    Field::Namespace => object.namespace() == value,
                    Field::Path(path) => {
                        let path: Vec<_> = path.iter().map(String::as_str).collect();
                        object.field(&path).unwrap_or_default() == *value
                    }
                };
                found == *equal
            })
            && (self.whole.is_empty() || self.whole.matches(&served.present(object.value()), selectable(served)))
    }

    fn matches_labels(&self, object: &Object) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        let labels: Map<String, Value> = object
            .labels()
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        self.labels.matches_labels(&Value::Object(labels))
    }

    /// A change as seen by a watcher that selects objects.
    pub(crate) fn view<'e>(&self, served: &Served, event: &'e Event) -> Option<View<'e>> {
        let view = |kind, object: &'e Object| View {
            kind,
            object,
            version: event.version(),
        };
        if self.takes_all() {
            let matches = event.object.key().starts_with(&self.prefix);
            return matches.then(|| view(event.kind, &event.object));
        }
        let before = event.previous.as_deref().filter(|object| self.matches(served, object));
        if event.kind == EventKind::Deleted {
            return before.map(|_| view(EventKind::Deleted, &event.object));
        }
        match (before, self.matches(served, &event.object)) {
            (None, false) => None,
            (None, true) => Some(view(EventKind::Added, &event.object)),
            (Some(_), true) => Some(view(EventKind::Modified, &event.object)),
            // It no longer matches: deleted from the perspective of this watcher, in its last matching state.
            (Some(before), false) => Some(view(EventKind::Deleted, before)),
        }
    }
}

/// A change as one watcher sees it.
#[derive(Debug)]
pub(crate) struct View<'e> {
    pub(crate) kind: EventKind,
    /// The object to show.
    pub(crate) object: &'e Object,
    /// The version to show.
    pub(crate) version: u64,
}
