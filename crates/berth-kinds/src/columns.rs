//! What `kubectl get` prints for a kind: columns as data, and formatting that several kinds share.
//!
//! Names and wording are those of kube-apiserver, because people and scripts rely on them. Ages are relative to a `now`
//! parameter.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::age;
use crate::meta;

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its title.
    pub name: &'static str,
    /// JSON type of its cells.
    pub cell_type: &'static str,
    /// Whether it is shown only with `-o wide`.
    pub wide: bool,
    /// Where its cells come from.
    pub source: Source,
}

/// Where the cells of a column come from.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// The object's name.
    Name,
    /// The time since the object was created.
    Age,
    /// The text at a path, or a default.
    Text(&'static [&'static str], &'static str),
    /// The number at a path; 0 by default.
    Count(&'static [&'static str]),
    /// The flag at a path, or a default.
    Flag(&'static [&'static str], bool),
    /// The length of the list at a path.
    Length(&'static [&'static str]),
    /// The labels at a path, for example `a=1,b=2`.
    Labels(&'static [&'static str]),
    /// The field of each container at a path, joined by commas.
    EachOf(&'static [&'static str], &'static str),
    /// The label selector at a path, in its text form.
    Selector(&'static [&'static str]),
    /// The result of a function.
    Made(fn(&Value, Timestamp) -> Value),
}

impl Column {
    const fn new(name: &'static str, cell_type: &'static str, source: Source) -> Self {
        Self {
            name,
            cell_type,
            wide: false,
            source,
        }
    }

    /// This column, shown only with `-o wide`.
    pub(crate) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    /// This column with cells of another JSON type.
    pub(crate) const fn of_type(self, cell_type: &'static str) -> Self {
        Self { cell_type, ..self }
    }

    /// The cell of an object.
    #[must_use]
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.source {
            Source::Name => meta::name(object).into(),
            Source::Age => age::of(object, now),
            Source::Text(path, other) => text_or(meta::at(object, path), other),
            Source::Count(path) => json!(count(meta::at(object, path))),
            Source::Flag(path, other) => json!(meta::at(object, path).as_bool().unwrap_or(other)),
            Source::Length(path) => json!(meta::items(object, path).len()),
            Source::Labels(path) => json!(labels(meta::at(object, path))),
            Source::EachOf(path, field) => {
                let found = meta::items(object, path).iter();
                json!(joined(found.map(|item| item[field].as_str().unwrap_or_default())))
            }
            Source::Selector(path) => json!(selector(meta::at(object, path))),
            Source::Made(make) => make(object, now),
        }
    }
}

/// The object's name.
pub(crate) const NAME: Column = Column::new("Name", "string", Source::Name);
/// The time since the object was created.
pub(crate) const AGE: Column = Column::new("Age", "string", Source::Age);

/// Default columns of kinds for which Kubernetes defines none.
pub const NAME_AND_AGE: &[Column] = &[NAME, AGE];

/// Columns of kinds for which Kubernetes defines few.
pub(crate) const NAME_AND_TIME: &[Column] = &[
    NAME,
    text("Created At", &["metadata", "creationTimestamp"], "").of_type("date"),
];

/// A column of text at a path.
pub(crate) const fn text(name: &'static str, path: &'static [&'static str], other: &'static str) -> Column {
    Column::new(name, "string", Source::Text(path, other))
}

/// A column of numbers at a path.
pub(crate) const fn integer(name: &'static str, path: &'static [&'static str]) -> Column {
    Column::new(name, "integer", Source::Count(path))
}

/// A column of booleans.
pub(crate) const fn flag(name: &'static str, path: &'static [&'static str], other: bool) -> Column {
    Column::new(name, "boolean", Source::Flag(path, other))
}

/// A column of list lengths.
pub(crate) const fn length(name: &'static str, path: &'static [&'static str]) -> Column {
    Column::new(name, "string", Source::Length(path))
}

/// A column of labels.
pub(crate) const fn labelled(name: &'static str, path: &'static [&'static str]) -> Column {
    Column::new(name, "string", Source::Labels(path))
}

/// A column of one field of all containers.
pub(crate) const fn each_of(name: &'static str, path: &'static [&'static str], field: &'static str) -> Column {
    Column::new(name, "string", Source::EachOf(path, field))
}

/// A column of label selectors.
pub(crate) const fn selecting(name: &'static str, path: &'static [&'static str]) -> Column {
    Column::new(name, "string", Source::Selector(path))
}

/// A column with the result of a function.
pub(crate) const fn made(name: &'static str, make: fn(&Value, Timestamp) -> Value) -> Column {
    Column::new(name, "string", Source::Made(make))
}

/// The cell for an empty value.
pub(crate) const NONE: &str = "<none>";
/// The cell for an unknown value.
pub(crate) const UNKNOWN: &str = "<unknown>";
/// The cell for an unset field.
pub(crate) const UNSET: &str = "<unset>";
/// Maximum number of addresses or hosts in a cell; the rest are counted.
const SHOWN_MAX: usize = 3;

/// The text of a field, or `None` if it is empty.
pub(crate) fn text_of(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// The text of a field, or a default.
pub(crate) fn text_or(value: &Value, other: &str) -> Value {
    json!(text_of(value).unwrap_or(other))
}

/// A count; 0 if not set.
pub(crate) fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// The elements of a list.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Texts joined with commas.
pub(crate) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// The first few texts and the number of further ones; a default if there are none.
pub(crate) fn first_few(texts: &[String], none: &str) -> String {
    match texts.get(..SHOWN_MAX) {
        _ if texts.is_empty() => none.to_owned(),
        Some(shown) if texts.len() > SHOWN_MAX => {
            format!("{} + {} more...", shown.join(","), texts.len() - SHOWN_MAX)
        }
        _ => texts.join(","),
    }
}

/// `a=1,b=2`, or `<none>`.
pub(crate) fn labels(value: &Value) -> String {
    let labels: Vec<_> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if labels.is_empty() {
        NONE.to_owned()
    } else {
        labels.join(",")
    }
}

/// Whether a condition of a status is true.
pub(crate) fn has_condition(status: &Value, condition: &str) -> bool {
    items(&status["conditions"])
        .iter()
        .any(|c| c["type"] == condition && c["status"] == "True")
}

/// The string form of a label selector, its requirements in order.
fn selector(selector: &Value) -> String {
    let mut requirements = crate::selector::requirements(selector);
    requirements.sort();
    if requirements.is_empty() {
        NONE.to_owned()
    } else {
        requirements.join(",")
    }
}
