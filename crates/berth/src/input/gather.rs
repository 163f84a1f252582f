//! Converts documents and List items to objects, and tracks skipped, invalid and duplicate ones.

use super::fields::UnknownFields;
use super::head::Head;
use super::place::{Place, Problem, ReadError};
use super::{Progress, Summary};
use berth_cluster::check;
use berth_core::api::{DecodeError, Kind, Object};
use berth_core::reported::{Reported, is_report};
use berth_kinds::admission;
use berth_kinds::kinds::{self, persistent_volume};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum number of problems reported. Beyond that, the reader needs the pattern, not the rest.
const PROBLEMS_MAX: usize = 20;

/// Number of objects between two checks of the clock.
const PROGRESS_EVERY: usize = 1000;

/// The identity of an object within a cluster.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    kind: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
}

/// The receiver of the objects.
pub(super) enum Sink<'a> {
    /// Decoded objects of the kinds that decisions read.
    Objects(&'a mut dyn FnMut(Object)),
    /// Unmodified objects, of those kinds (validated) and of the workloads that create pods.
    Values(&'a mut dyn FnMut(Value)),
}

/// The default namespace, unless another one is requested.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

pub(super) struct Gather<'a> {
    sink: Sink<'a>,
    progress: &'a mut dyn Progress,
    /// The namespace of objects that set none.
    namespace: &'a str,
    /// Also deliver objects of other kinds.
    keeps_others: bool,
    /// Receives objects of kinds that decisions do not read.
    besides: Option<&'a mut dyn FnMut(&Value) -> bool>,
    /// Complete objects as an API server would.
    completes: bool,
    /// Objects may be partial, to be merged into complete ones.
    allows_parts: bool,
    /// Look for fields that Kubernetes does not have.
    pub(super) checks_fields: bool,
    unknown_fields: UnknownFields,
    places: HashMap<Identity, Place>,
    /// Drivers and their separate capacity reports.
    reported: Reported,
    /// Items of the current list without a kind, until the kind of the list is known.
    untyped: Vec<(Place, Value)>,
    summary: Summary,
    problems: Vec<Problem>,
    more_problems: usize,
}

impl<'a> Gather<'a> {
    pub(super) fn new(sink: Sink<'a>, progress: &'a mut dyn Progress) -> Self {
        Self {
            sink,
            progress,
            namespace: DEFAULT_NAMESPACE,
            keeps_others: false,
            besides: None,
            completes: false,
            allows_parts: false,
            checks_fields: false,
            unknown_fields: UnknownFields::default(),
            places: HashMap::new(),
            reported: Reported::default(),
            untyped: Vec::new(),
            summary: Summary::default(),
            problems: Vec::new(),
            more_problems: 0,
        }
    }

    pub(super) fn in_namespace(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    pub(super) fn with_others(self) -> Self {
        Self {
            keeps_others: true,
            ..self
        }
    }

    pub(super) fn showing(self, besides: &'a mut dyn FnMut(&Value) -> bool) -> Self {
        Self {
            besides: Some(besides),
            ..self
        }
    }

    pub(super) fn completing(self) -> Self {
        Self {
            completes: true,
            ..self
        }
    }

    pub(super) fn allowing_parts(self) -> Self {
        Self {
            allows_parts: true,
            ..self
        }
    }

    pub(super) fn finish(mut self) -> Result<Summary, ReadError> {
        self.progress.done();
        if self.problems.is_empty() {
            self.summary.warnings = self.unknown_fields.warnings();
            if let Sink::Objects(sink) = &mut self.sink {
                self.reported.all().for_each(|driver| sink(driver.into()));
            }
            return Ok(self.summary);
        }
        Err(ReadError {
            problems: self.problems,
            more: self.more_problems,
        })
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.more_problems += 1;
        }
    }

    /// Records that something could not be read.
    pub(super) fn gap(&mut self, gap: &str) {
        self.summary.gaps.add(gap);
    }

    /// Records the time of the cluster state.
    pub(super) fn taken_at(&mut self, time: Timestamp) {
        self.summary.taken_at = self.summary.taken_at.max(Some(time));
    }

    /// Records that all objects of a kind were listed.
    pub(super) fn listed(&mut self, plural: &str) {
        self.summary.listed.insert(plural.to_owned());
    }

    /// Reads the comments at the top of a text.
    pub(super) fn comments(&mut self, text: &str) {
        let head = Head::of(text);
        head.gaps.iter().for_each(|gap| self.summary.gaps.add(*gap));
        self.summary.taken_at = self.summary.taken_at.max(head.taken_at);
        head.listed.into_iter().for_each(|plural| self.listed(plural));
    }

    /// Records that the current document is invalid from here on.
    pub(super) fn broken_document(&mut self, problem: Problem) {
        // Items that wait for the kind of their list have lost it.
        self.untyped.clear();
        self.problem(problem);
    }

    /// Handles a document that is not a List with a sequence of items. An empty one is skipped.
    pub(super) fn document(&mut self, place: &Place, value: Value) {
        if !value.is_null() {
            self.object(place.clone(), value);
        }
    }

    /// Handles an item of the current list.
    pub(super) fn item(&mut self, place: Place, value: Value) {
        if is_untyped(&value) {
            self.untyped.push((place, value));
        } else {
            self.object(place, value);
        }
    }

    /// Handles the end of the current list, with its other fields.
    pub(super) fn end_of_list(&mut self, place: &Place, list: &Value) {
        let text = |key: &str| list.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
        let untyped = std::mem::take(&mut self.untyped);
        match kind.strip_suffix("List") {
            Some(item_kind) if !item_kind.is_empty() && !api_version.is_empty() => {
                for (place, mut item) in untyped {
                    if let Value::Object(fields) = &mut item {
                        fields
                            .entry("apiVersion")
                            .or_insert_with(|| Value::String(api_version.clone()));
                        fields
                            .entry("kind")
                            .or_insert_with(|| Value::String(item_kind.to_owned()));
                    }
                    self.object(place, item);
                }
            }
            // Not a list of objects but an object with a field of that name.
            None if !kind.is_empty() && !api_version.is_empty() => {
                if !untyped.is_empty() {
                    self.object(place.clone(), list.clone());
                }
            }
            _ => {
                for (place, _) in untyped {
                    let list = kind.clone();
                    self.problem(Problem::UntypedItem { place, list });
                }
            }
        }
    }

    fn object(&mut self, place: Place, mut value: Value) {
        if is_list(&value)
            && let Some(Value::Array(items)) = value.get_mut("items").map(Value::take)
        {
            // The items of an outer list that wait for its kind do not belong to this list.
            let waiting = std::mem::take(&mut self.untyped);
            for (item, value) in (1..).zip(items) {
                self.item(place.item(item, place.line), value);
            }
            self.end_of_list(&place, &value);
            self.untyped = waiting;
            return;
        }
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if is_list_of_ours(&kind) && value.get("items").is_none_or(Value::is_null) {
            return;
        }
        if self.namespace != DEFAULT_NAMESPACE && is_namespaced(&kind) {
            name_namespace(&mut value, self.namespace);
        }
        if self.completes {
            let completed = admission::apply_defaults(&mut value);
            // There is no controller to process a new volume first.
            if completed.is_some_and(|kind| kind.name == persistent_volume::KIND.name) {
                persistent_volume::settle(&mut value);
            }
        }
        if is_report(&value) {
            return self.report(value);
        }
        if let Some(besides) = &mut self.besides
            && besides(&value)
        {
            return;
        }
        let raw = matches!(self.sink, Sink::Values(_)).then(|| value.clone());
        if let Some(raw) = raw.as_ref().filter(|_| !self.allows_parts)
            && let Err(check::Wrong { field, problem }) = check::workload(raw)
        {
            let hint = hint(&problem);
            let name = full_name(raw);
            return self.problem(Problem::Workload {
                place,
                kind,
                name,
                field,
                problem,
                hint,
            });
        }
        if self.checks_fields {
            self.unknown_fields.look(&place, &value);
        }
        let is_workload = check::is_workload(&value);
        match (Object::decode(&value), raw) {
            (Ok(Some(object)), raw) => match name_problem(&object) {
                None => self.accept(place, object, raw),
                Some(error) => self.problem(Problem::Object { place, error, hint: "" }),
            },
            (Ok(None), Some(raw)) if is_workload || admission::reads(&kind) => self.accept_other(place, kind, raw),
            // Whether it is namespaced is up to the server.
            (Ok(None), Some(raw)) if self.keeps_others => self.hand_on(raw, ""),
            // What `berth snapshot` writes for simulations is not a mistake where only decisions are made.
            (Ok(None), None) if is_workload || kind == "ControllerRevision" => {}
            (Ok(None), _) => *self.summary.skipped.entry(kind).or_default() += 1,
            (Err(error), _) => {
                let hint = match &error {
                    DecodeError::Field { problem, .. } => hint(problem),
                    DecodeError::NotAnObject { .. } => "",
                };
                self.problem(Problem::Object { place, error, hint });
            }
        }
    }

    /// Handles an object that decisions do not read: one that creates pods, or that affects new pods.
    fn accept_other(&mut self, place: Place, kind: String, mut value: Value) {
        let namespace = if is_namespaced(&kind) { DEFAULT_NAMESPACE } else { "" };
        name_namespace(&mut value, namespace);
        let name = full_name(&value);
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let identity = Identity {
            kind: kind.as_str().into(),
            namespace: text("/metadata/namespace").into(),
            name: text("/metadata/name").into(),
        };
        if self.is_first(identity, &kind, name, place) {
            self.hand_on(value, namespace);
        }
    }

    /// Whether an object is not a duplicate; a duplicate is a problem.
    fn is_first(&mut self, identity: Identity, kind: &str, name: String, place: Place) -> bool {
        match self.places.entry(identity) {
            Entry::Occupied(first) => {
                let problem = Problem::Twice {
                    kind: kind.to_owned(),
                    name,
                    first: first.get().clone(),
                    second: place,
                };
                self.problem(problem);
                false
            }
            Entry::Vacant(entry) => {
                entry.insert(place);
                true
            }
        }
    }

    /// Handles the capacity report of a driver. An unreadable one is ignored, as in the scheduler.
    fn report(&mut self, report: Value) {
        if matches!(self.sink, Sink::Values(_)) {
            return self.hand_on(report, "");
        }
        match self.reported.report(&report) {
            Ok(_) => self.summary.objects += 1,
            Err(problem) => self.summary.gaps.add(format!("csidrivercapacities: {problem}")),
        }
    }

    /// Delivers an unmodified object, except for a missing namespace.
    fn hand_on(&mut self, mut value: Value, namespace: &str) {
        if let Sink::Values(sink) = &mut self.sink {
            name_namespace(&mut value, namespace);
            self.summary.objects += 1;
            sink(value);
        }
    }

    fn accept(&mut self, place: Place, object: Object, raw: Option<Value>) {
        let metadata = object.metadata();
        let identity = Identity {
            kind: object.kind().name().into(),
            namespace: metadata.namespace.as_str().into(),
            name: metadata.name.as_str().into(),
        };
        if !self.is_first(identity, object.kind().name(), metadata.full_name(), place) {
            return;
        }
        self.summary.objects += 1;
        if self.summary.objects.is_multiple_of(PROGRESS_EVERY) {
            self.progress.step("read", self.summary.objects, "objects");
        }
        match (&mut self.sink, raw) {
            (Sink::Objects(_), _) if matches!(object, Object::CsiDriver(_)) => {
                if let Object::CsiDriver(driver) = object {
                    self.reported.driver(*driver);
                }
            }
            (Sink::Objects(sink), _) => sink(object),
            (Sink::Values(_), Some(raw)) => {
                self.summary.objects -= 1;
                self.hand_on(raw, &object.metadata().namespace);
            }
            (Sink::Values(_), None) => {}
        }
    }
}

/// Whether objects of a kind live in namespaces.
fn is_namespaced(kind: &str) -> bool {
    kinds::KINDS.iter().any(|known| known.name == kind && known.namespaced)
}

/// The object, in the default namespace if its kind needs one and it names none.
pub(crate) fn in_some_namespace(object: &Value) -> Value {
    let mut object = object.clone();
    if is_namespaced(object["kind"].as_str().unwrap_or_default()) {
        name_namespace(&mut object, DEFAULT_NAMESPACE);
    }
    object
}

/// Sets the namespace of an object that has none.
fn name_namespace(value: &mut Value, namespace: &str) {
    let Some(Value::Object(metadata)) = value.get_mut("metadata") else {
        return;
    };
    let named = metadata.get("namespace").and_then(Value::as_str);
    if !namespace.is_empty() && named.is_none_or(str::is_empty) {
        metadata.insert("namespace".to_owned(), Value::String(namespace.to_owned()));
    }
}

fn is_untyped(value: &Value) -> bool {
    value.is_object() && (value.get("kind").is_none() || value.get("apiVersion").is_none())
}

fn is_list(value: &Value) -> bool {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    kind.ends_with("List") && value.get("items").is_some_and(Value::is_array)
}

/// Whether a kind is that of a list that may contain objects for decisions.
fn is_list_of_ours(kind: &str) -> bool {
    kind.strip_suffix("List")
        .is_some_and(|item| item.is_empty() || Kind::ALL.iter().any(|kind| kind.name() == item))
}

/// The name of an object, with its namespace if it has one.
fn full_name(value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match (text("/metadata/namespace"), text("/metadata/name")) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// What is wrong with the name of an object, or of its namespace.
fn name_problem(object: &Object) -> Option<DecodeError> {
    let metadata = object.metadata();
    let is_word = |word: &str, length| {
        let is_edge = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let is_inner = |letter: char| is_edge(letter) || letter == '-';
        word.len() <= length && word.starts_with(is_edge) && word.ends_with(is_edge) && word.chars().all(is_inner)
    };
    let is_name = metadata.name.len() <= 253 && metadata.name.split('.').all(|word| is_word(word, 253));
    if !is_name {
        let problem = format!(
            "found {:?}, expected at most 253 lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
            metadata.name
        );
        return Some(object.field_error("metadata.name", problem));
    }
    if !metadata.namespace.is_empty() && !is_word(&metadata.namespace, 63) {
        let problem = format!(
            "found {:?}, expected at most 63 lower-case letters, digits and '-', with a letter or digit at both ends",
            metadata.namespace
        );
        return Some(object.field_error("metadata.namespace", problem));
    }
    None
}

/// What to do about a problem whose cause is not obvious.
fn hint(problem: &str) -> &'static str {
    if !problem.contains("expected a string") {
        ""
    } else if problem.contains("invalid type: boolean") {
        "; put the value in quotes: without them, yes, no, on, off, y, n, true and false are booleans"
    } else if problem.contains("invalid type: integer") || problem.contains("invalid type: floating point") {
        "; put the value in quotes: without them it is a number"
    } else {
        ""
    }
}
