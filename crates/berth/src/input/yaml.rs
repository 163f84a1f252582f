//! YAML documents as JSON values.
//!
//! The values are built here from the events of `granit-parser`, not by a serde YAML crate, because the reader has to
//! control four things: the meaning of a plain scalar (kubectl's YAML 1.1, see [`scalar`](super::scalar)), that a
//! duplicate key is an error, how far aliases may expand, and that the items of a long List are delivered one by one
//! with their line numbers. `granit-parser` is the parser under `serde-saphyr`: maintained and fuzzed, without unsafe
//! code, it bounds nesting, and it keeps byte and line positions. Of the serde crates, `serde_yaml` and `serde_yml` are
//! unmaintained, `serde_norway` and `serde_yaml_ng` wrap a translated C library, and `serde-saphyr` took three times as
//! long on a file of sixty thousand volumes.

use super::gather::Gather;
use super::place::{Place, Problem};
use super::scalar;
use granit_parser::{Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of values that the aliases of one document may expand to. A manifest uses aliases to repeat a label
/// set or a pod template a few times, some thousand values at most; "a billion laughs" needs millions.
const ALIASED_VALUES_MAX: usize = 200_000;

/// Maximum depth of a document, with its aliases unfolded: the limit for JSON. Whatever walks an object uses the stack for each level.
const DEPTH_MAX: usize = 128;

/// An error that ends the reading of a document.
struct Fault {
    line: usize,
    column: usize,
    problem: String,
}

impl Fault {
    fn at(marker: Marker, problem: impl Into<String>) -> Self {
        Self {
            line: marker.line(),
            column: marker.col() + 1,
            problem: problem.into(),
        }
    }
}

impl From<ScanError> for Fault {
    fn from(error: ScanError) -> Self {
        Self::at(
            *error.marker(),
            format!("not YAML: {}; check the indentation and quotes there", error.info()),
        )
    }
}

/// Reads all documents of a text and passes their objects to `gather`.
pub(super) fn read(file: &Arc<str>, text: &str, gather: &mut Gather<'_>) {
    let mut composer = Composer::new(text);
    let mut document = 0;
    loop {
        let place = match composer.next_document() {
            Ok(Some(marker)) => {
                document += 1;
                Place::document(file, document, marker.line())
            }
            Ok(None) => return,
            Err(fault) => {
                gather.problem(fault.in_document(Place::document(file, document + 1, 1)));
                return;
            }
        };
        if let Err(fault) = composer.document(&place, gather) {
            gather.broken_document(fault.in_document(place));
            return;
        }
    }
}

/// Reads a text of one document as a value: for configuration files.
///
/// # Errors
/// If it is not YAML, or more than one document.
pub(crate) fn value_of(file: &Arc<str>, text: &str) -> Result<Value, Box<Problem>> {
    let mut composer = Composer::new(text);
    let place = |marker: Marker, document| Place::document(file, document, marker.line());
    let first = composer
        .next_document()
        .map_err(|fault| Box::new(fault.in_document(Place::document(file, 1, 1))))?;
    let Some(first) = first else {
        return Ok(Value::Null);
    };
    let value = composer
        .value()
        .and_then(|value| composer.end_of_document().map(|()| value))
        .map_err(|fault| Box::new(fault.in_document(place(first, 1))))?;
    let problem = match composer.next_document() {
        Ok(None) => return Ok(value),
        Ok(Some(second)) => {
            Fault::at(second, "found a second document, expected one alone").in_document(place(second, 2))
        }
        Err(fault) => fault.in_document(Place::document(file, 2, 1)),
    };
    Err(Box::new(problem))
}

impl Fault {
    fn in_document(self, place: Place) -> Problem {
        Problem::Syntax {
            place,
            line: self.line,
            column: self.column,
            problem: self.problem,
        }
    }
}

/// A value that aliases can refer to, with the number of values in it, and their depth.
struct Anchored {
    value: Value,
    size: usize,
    depth: usize,
}

struct Composer<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Anchored>,
    aliased_values: usize,
    /// The number of lists and maps around the current value.
    depth: usize,
}

impl<'t> Composer<'t> {
    fn new(text: &'t str) -> Self {
        // Comments are delivered as events if another crate enables that feature of the parser.
        let mut options = Options::default();
        options.set_emit_comments(false);
        Self {
            parser: Parser::new_from_str_with_options(text, options),
            anchors: HashMap::new(),
            aliased_values: 0,
            depth: 0,
        }
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Fault> {
        self.parser.next_event().transpose().map_err(Fault::from)
    }

    /// The next event inside a document, where the text cannot end.
    fn expect(&mut self) -> Result<(Event<'t>, Span), Fault> {
        self.next()?.ok_or_else(|| Fault {
            line: 1,
            column: 1,
            problem: "not YAML: the document ends within a value".to_owned(),
        })
    }

    /// Advances to the start of the next document.
    fn next_document(&mut self) -> Result<Option<Marker>, Fault> {
        while let Some((event, span)) = self.next()? {
            match event {
                Event::DocumentStart(..) => {
                    self.anchors.clear();
                    (self.aliased_values, self.depth) = (0, 0);
                    return Ok(Some(span.start));
                }
                Event::StreamEnd => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    fn end_of_document(&mut self) -> Result<(), Fault> {
        match self.expect()? {
            (Event::DocumentEnd, _) => Ok(()),
            (_, span) => Err(Fault::at(span.start, "not YAML: expected the end of the document")),
        }
    }

    /// Reads one document. A top-level map is read key by key, so that the items of a List need not be in memory all at
    /// once.
    fn document(&mut self, place: &Place, gather: &mut Gather<'_>) -> Result<(), Fault> {
        let (event, span) = self.expect()?;
        let Event::MappingStart(_, anchor, _) = event else {
            let value = self.node(event, span)?;
            gather.document(place, value);
            return self.end_of_document();
        };
        // This map is the first level, and the list of items the second.
        self.depth = 1;
        let mut keys = MapBuilder::default();
        let mut list = false;
        let mut place = place.clone();
        place.line = span.start.line();
        loop {
            let (event, span) = self.expect()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.key(event, span)?;
            let (event, value_span) = self.expect()?;
            let is_items = matches!(&key, Key::Name(name) if name == "items");
            if is_items && anchor == 0 && matches!(event, Event::SequenceStart(_, 0, _)) {
                if std::mem::replace(&mut list, true) {
                    return Err(Fault::at(span.start, "the key \"items\" appears twice; keep one"));
                }
                self.items(&place, gather)?;
            } else {
                let value = self.node(event, value_span)?;
                keys.insert(key, value, span)?;
            }
        }
        let value = Value::Object(keys.finish());
        if anchor > 0 {
            self.remember(anchor, &value);
        }
        if list {
            gather.end_of_list(&place, &value);
        } else {
            gather.document(&place, value);
        }
        self.end_of_document()
    }

    fn items(&mut self, place: &Place, gather: &mut Gather<'_>) -> Result<(), Fault> {
        for item in 1.. {
            let (event, span) = self.expect()?;
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            let value = self.node(event, span)?;
            gather.item(place.item(item, span.start.line()), value);
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Value, Fault> {
        let (event, span) = self.expect()?;
        self.node(event, span)
    }

    /// The value that starts with `event`.
    fn node(&mut self, event: Event<'t>, span: Span) -> Result<Value, Fault> {
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (scalar_value(text, style, tag.as_deref(), span)?, anchor),
            Event::SequenceStart(_, anchor, _) => (self.deeper(span, Self::sequence)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.deeper(span, Self::mapping)?, anchor),
            Event::Alias(anchor) => return self.alias(anchor, span),
            _ => return Err(Fault::at(span.start, "not YAML: expected a value")),
        };
        if anchor > 0 {
            self.remember(anchor, &value);
        }
        Ok(value)
    }

    /// Reads what is inside a list or map, which bounds the recursion.
    fn deeper(&mut self, span: Span, read: fn(&mut Self) -> Result<Value, Fault>) -> Result<Value, Fault> {
        if self.depth >= DEPTH_MAX {
            return Err(too_deep(span));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn sequence(&mut self) -> Result<Value, Fault> {
        let mut values = Vec::new();
        loop {
            let (event, span) = self.expect()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::Array(values));
            }
            values.push(self.node(event, span)?);
        }
    }

    fn mapping(&mut self) -> Result<Value, Fault> {
        let mut keys = MapBuilder::default();
        loop {
            let (event, span) = self.expect()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Value::Object(keys.finish()));
            }
            let key = self.key(event, span)?;
            let value = self.value()?;
            keys.insert(key, value, span)?;
        }
    }

    fn key(&mut self, event: Event<'t>, span: Span) -> Result<Key, Fault> {
        if let Event::Scalar(text, ScalarStyle::Plain, 0, None) = &event
            && text == "<<"
        {
            return Ok(Key::Merge);
        }
        match self.node(event, span)? {
            Value::String(name) => Ok(Key::Name(name)),
            Value::Number(number) => Ok(Key::Name(number.to_string())),
            Value::Bool(value) => Ok(Key::Name(value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                Err(Fault::at(span.start, "expected a text as the key of a map"))
            }
        }
    }

    fn remember(&mut self, anchor: usize, value: &Value) {
        let anchored = Anchored {
            value: value.clone(),
            size: size_of_value(value),
            depth: depth_of_value(value),
        };
        self.anchors.insert(anchor, anchored);
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<Value, Fault> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(Fault::at(span.start, "the alias refers to a value that it is part of"));
        };
        if self.depth + anchored.depth > DEPTH_MAX {
            return Err(too_deep(span));
        }
        self.aliased_values = self.aliased_values.saturating_add(anchored.size);
        if self.aliased_values > ALIASED_VALUES_MAX {
            return Err(Fault::at(
                span.start,
                format!(
                    "the aliases of this document unfold to more than {ALIASED_VALUES_MAX} values; write them out or split it"
                ),
            ));
        }
        Ok(anchored.value.clone())
    }
}

fn too_deep(span: Span) -> Fault {
    let problem = format!("lists and maps are nested more than {DEPTH_MAX} levels deep");
    Fault::at(span.start, problem)
}

/// The number of lists and maps around the innermost value.
fn depth_of_value(value: &Value) -> usize {
    let below = match value {
        Value::Array(values) => values.iter().map(depth_of_value).max(),
        Value::Object(values) => values.values().map(depth_of_value).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
    };
    1 + below.unwrap_or(0)
}

fn size_of_value(value: &Value) -> usize {
    match value {
        Value::Array(values) => values
            .iter()
            .fold(1, |sum: usize, value| sum.saturating_add(size_of_value(value))),
        Value::Object(values) => values
            .values()
            .fold(1, |sum: usize, value| sum.saturating_add(size_of_value(value))),
        // A long text counts by its length, so that copies of it are bounded too.
        Value::String(text) => 1 + text.len() / 32,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

fn scalar_value(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<Value, Fault> {
    let wanted = ["null", "bool", "int", "float"]
        .into_iter()
        .find(|suffix| tag.is_some_and(|tag| tag.is_yaml_core_schema_tag(suffix)));
    if wanted.is_none() && (tag.is_some() || style != ScalarStyle::Plain) {
        return Ok(Value::String(text.into_owned()));
    }
    let Some(value) = scalar::plain(&text) else {
        return Err(Fault::at(
            span.start,
            format!("found {text}, expected a finite number (or a text in quotes)"),
        ));
    };
    let agrees = match (wanted, &value) {
        (None, _)
        | (Some("null"), Value::Null)
        | (Some("bool"), Value::Bool(_))
        | (Some("float"), Value::Number(_)) => true,
        (Some("int"), Value::Number(number)) => !number.is_f64(),
        _ => false,
    };
    if agrees {
        return Ok(value);
    }
    Err(Fault::at(
        span.start,
        format!(
            "found {text:?}, expected what its tag !!{} says",
            wanted.unwrap_or_default()
        ),
    ))
}

enum Key {
    Name(String),
    /// `<<`: the entries of another map, unless this one has the key.
    Merge,
}

#[derive(Default)]
struct MapBuilder {
    own: Map<String, Value>,
    merged: Map<String, Value>,
}

impl MapBuilder {
    fn insert(&mut self, key: Key, value: Value, span: Span) -> Result<(), Fault> {
        match (key, value) {
            (Key::Name(name), value) => match self.own.entry(name) {
                serde_json::map::Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                serde_json::map::Entry::Occupied(entry) => {
                    return Err(Fault::at(
                        span.start,
                        format!("the key {:?} appears twice; keep one", entry.key()),
                    ));
                }
            },
            (Key::Merge, Value::Object(entries)) => self.merge(entries),
            (Key::Merge, Value::Array(maps)) => {
                for map in maps {
                    let Value::Object(entries) = map else {
                        return Err(merge_fault(span));
                    };
                    self.merge(entries);
                }
            }
            (Key::Merge, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                return Err(merge_fault(span));
            }
        }
        Ok(())
    }

    fn merge(&mut self, entries: Map<String, Value>) {
        for (name, value) in entries {
            self.merged.entry(name).or_insert(value);
        }
    }

    fn finish(mut self) -> Map<String, Value> {
        for (name, value) in self.merged {
            self.own.entry(name).or_insert(value);
        }
        self.own
    }
}

fn merge_fault(span: Span) -> Fault {
    Fault::at(span.start, "expected a map, or a list of maps, to merge at `<<`")
}
