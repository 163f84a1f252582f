//! JSON documents as values.
//!
//! The text is split into documents and List items without copying (`RawValue` borrows from it), and each item becomes
//! a value only when it is processed: a List of a million volumes is never in memory as values all at once.

use super::gather::Gather;
use super::place::{Place, Problem};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// Splits a text into its JSON documents.
///
/// # Errors
/// If it is not valid JSON: the number of valid documents before the error, and the error.
pub(super) fn split(text: &str) -> Result<Vec<&RawValue>, (usize, serde_json::Error)> {
    let mut documents = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        match document {
            Ok(document) => documents.push(document),
            Err(error) => return Err((documents.len(), error)),
        }
    }
    Ok(documents)
}

/// The problem of a text that is not JSON.
pub(super) fn syntax_problem(file: &Arc<str>, good_documents: usize, error: &serde_json::Error) -> Problem {
    Problem::Syntax {
        place: Place::document(file, good_documents + 1, error.line()),
        line: error.line(),
        column: error.column(),
        problem: format!("not JSON: {}", without_position(error)),
    }
}

/// Reads the documents of a text, and passes their objects to `gather`.
pub(super) fn read(file: &Arc<str>, text: &str, documents: &[&RawValue], gather: &mut Gather<'_>) {
    let mut lines = Lines::new(text);
    for (number, document) in (1..).zip(documents) {
        let start = lines.position_of(document.get());
        let place = Place::document(file, number, start.line);
        match serde_json::from_str::<TopLevel<'_>>(document.get()) {
            Ok(TopLevel {
                fields,
                items: Some(items),
            }) => {
                for (item, raw) in (1..).zip(items) {
                    let start = lines.position_of(raw.get());
                    let place = place.item(item, start.line);
                    match serde_json::from_str::<Strict>(raw.get()) {
                        Ok(Strict(value)) => gather.item(place, value),
                        Err(error) => gather.problem(start.problem(place, &error)),
                    }
                }
                gather.end_of_list(&place, &Value::Object(fields));
            }
            Ok(TopLevel { fields, items: None }) => gather.document(&place, Value::Object(fields)),
            Err(error) if error.is_data() && !document.get().starts_with('{') => {
                match serde_json::from_str::<Strict>(document.get()) {
                    Ok(Strict(value)) => gather.document(&place, value),
                    Err(error) => gather.problem(start.problem(place, &error)),
                }
            }
            Err(error) => gather.problem(start.problem(place, &error)),
        }
    }
}

/// A position in the text: line and column, starting at 1.
#[derive(Clone, Copy)]
struct Position {
    line: usize,
    column: usize,
}

impl Position {
    /// The problem for an error whose position is relative to this one.
    fn problem(self, place: Place, error: &serde_json::Error) -> Problem {
        let column = if error.line() == 1 {
            self.column + error.column().saturating_sub(1)
        } else {
            error.column()
        };
        Problem::Syntax {
            place,
            line: self.line + error.line().saturating_sub(1),
            column,
            problem: without_position(error),
        }
    }
}

/// The message of an error without its relative position.
fn without_position(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.rfind(" at line ") {
        Some(end) => words[..end].to_owned(),
        None => words,
    }
}

/// Finds the lines of parts of a text, which must be queried in order.
struct Lines<'t> {
    text: &'t str,
    offset: usize,
    at: Position,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            offset: 0,
            at: Position { line: 1, column: 1 },
        }
    }

    fn position_of(&mut self, piece: &str) -> Position {
        let offset = (piece.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let passed = self.text.get(self.offset..offset).unwrap_or_default().as_bytes();
        match passed.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => {
                self.at.line += passed.iter().filter(|byte| **byte == b'\n').count();
                self.at.column = passed.len() - last;
            }
            None => self.at.column += passed.len(),
        }
        self.offset = self.offset.max(offset);
        self.at
    }
}

/// A document that is a map: its fields, with the items of a List separated.
struct TopLevel<'t> {
    fields: Map<String, Value>,
    items: Option<Vec<&'t RawValue>>,
}

impl<'de: 't, 't> Deserialize<'de> for TopLevel<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TopLevelVisitor;

        impl<'de> Visitor<'de> for TopLevelVisitor {
            type Value = TopLevel<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<TopLevel<'de>, A::Error> {
                let mut fields = Map::new();
                let mut items = None;
                while let Some(key) = access.next_key::<String>()? {
                    if fields.contains_key(&key) || (key == "items" && items.is_some()) {
                        return Err(twice(&key));
                    }
                    if key != "items" {
                        fields.insert(key, access.next_value::<Strict>()?.0);
                        continue;
                    }
                    let raw = access.next_value::<&RawValue>()?;
                    if raw.get().starts_with('[') {
                        items = Some(serde_json::from_str(raw.get()).map_err(de::Error::custom)?);
                    } else {
                        let Strict(value) = serde_json::from_str(raw.get()).map_err(de::Error::custom)?;
                        fields.insert(key, value);
                    }
                }
                Ok(TopLevel { fields, items })
            }
        }

        deserializer.deserialize_map(TopLevelVisitor)
    }
}

fn twice<E: de::Error>(key: &str) -> E {
    E::custom(format_args!("the key {key:?} appears twice; keep one"))
}

/// A value without duplicate keys.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StrictVisitor;

        impl<'de> Visitor<'de> for StrictVisitor {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(Value::from(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::String(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Value, E> {
                Ok(Value::String(value))
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
                let mut values = Vec::new();
                while let Some(Strict(value)) = access.next_element()? {
                    values.push(value);
                }
                Ok(Value::Array(values))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
                let mut fields = Map::new();
                while let Some(key) = access.next_key::<String>()? {
                    if fields.contains_key(&key) {
                        return Err(twice(&key));
                    }
                    fields.insert(key, access.next_value::<Strict>()?.0);
                }
                Ok(Value::Object(fields))
            }
        }

        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}
