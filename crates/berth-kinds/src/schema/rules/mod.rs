//! CEL rules of definitions (`x-kubernetes-validations`).
//!
//! They are compiled when a definition is admitted. A rule that is not supported here is refused at that point, because
//! it would be silently ignored later. Rules are evaluated on every new or changed object. Their length, nesting and run
//! time are bounded, since the author of a definition could otherwise keep the server busy forever.

mod program;

use cel::objects::{Key, Map};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

pub use program::RuleError;
use program::{Input, Language, Program};

use crate::error::FieldError;

/// The schema key of rules.
const RULES: &str = "x-kubernetes-validations";

/// What is wrong with the rules of one schema, without those below it: each with its index.
#[must_use]
pub fn check(schema: &Value) -> Vec<(usize, RuleError)> {
    let Some(rules) = schema[RULES].as_array() else {
        return Vec::new();
    };
    let language = Language::new();
    let mut wrong = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let message = rule.get("messageExpression").and_then(Value::as_str);
        let compiled = language.compile(rule["rule"].as_str().unwrap_or_default());
        let message = message.map(|message| language.compile(message));
        wrong.extend(
            [Some(compiled), message]
                .into_iter()
                .flatten()
                .filter_map(Result::err)
                .map(|error| (index, error)),
        );
        if rule["optionalOldSelf"] == true {
            wrong.push((index, RuleError::OptionalOldSelf));
        }
    }
    wrong
}

/// Evaluates all rules of a schema on an object. `old` is the previous object, if it is not new.
#[must_use]
pub fn validate(object: &Value, old: Option<&Value>, schema: &Value) -> Vec<FieldError> {
    if !has_rules(schema) {
        return Vec::new();
    }
    let mut evaluation = Evaluation {
        language: Language::new(),
        errors: Vec::new(),
        programs: HashMap::new(),
    };
    evaluation.visit(&visible(object), old.map(visible).as_ref(), schema, "");
    evaluation.errors
}

/// Whether there are rules to evaluate.
fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key(RULES) || fields.values().any(has_rules),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// An object as rules see it: its metadata is reduced to its name.
fn visible(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| name == "name" || name == "generateName");
    }
    object
}

struct Evaluation<'s> {
    language: Language,
    errors: Vec<FieldError>,
    programs: HashMap<&'s str, Result<Program, RuleError>>,
}

impl<'s> Evaluation<'s> {
    fn visit(&mut self, value: &Value, old: Option<&Value>, schema: &'s Value, path: &str) {
        if value.is_null() {
            return;
        }
        for rule in schema[RULES].as_array().into_iter().flatten() {
            self.evaluate(rule, value, old, schema, path);
        }
        match value {
            Value::Object(fields) => {
                let elements = schema
                    .get("additionalProperties")
                    .filter(|elements| elements.is_object());
                for (name, field) in fields {
                    if let Some(schema) = schema["properties"].get(name).or(elements) {
                        let path = if path.is_empty() {
                            name.clone()
                        } else {
                            format!("{path}.{name}")
                        };
                        self.visit(field, old.and_then(|old| old.get(name)), schema, &path);
                    }
                }
            }
            Value::Array(items) => {
                let before = before(old, schema);
                for (index, item) in items.iter().enumerate() {
                    let old = identity(item, schema).and_then(|identity| before.get(&identity).copied());
                    self.visit(item, old, &schema["items"], &format!("{path}[{index}]"));
                }
            }
            _ => {}
        }
    }

    /// The value of an expression. `None` if it compares with the previous object, and there is none.
    fn work_out(&mut self, text: &'s str, own: &Input) -> Option<Result<cel::Value, RuleError>> {
        let language = &self.language;
        let program = self.programs.entry(text).or_insert_with(|| language.compile(text));
        match program {
            Ok(program) if program.compares && own.old.is_none() => None,
            Ok(program) => Some(language.evaluate(program, own)),
            Err(error) => Some(Err(error.clone())),
        }
    }

    fn evaluate(&mut self, rule: &'s Value, value: &Value, old: Option<&Value>, schema: &Value, path: &str) {
        let text = rule["rule"].as_str().unwrap_or_default();
        let own = Input {
            value: converted(value, schema),
            longest: longest(value).max(old.map_or(0, longest)),
            old: old.map(|old| converted(old, schema)),
        };
        // A rule about a change is satisfied by anything new.
        let Some(outcome) = self.work_out(text, &own) else {
            return;
        };
        let why = match outcome {
            Ok(cel::Value::Bool(true)) => return,
            Ok(cel::Value::Bool(false)) => self.message(rule, &own),
            Ok(_) => format!("rule evaluation error: {text} is neither true nor false"),
            Err(error) => format!("rule evaluation error: {error}"),
        };
        let shown = match value {
            Value::Object(_) => "\"object\"".to_owned(),
            Value::Array(_) => "\"array\"".to_owned(),
            scalar => scalar.to_string(),
        };
        let below = rule["fieldPath"].as_str().unwrap_or_default();
        let field = format!("{path}{below}");
        let field = field.trim_start_matches('.');
        self.errors.push(match rule["reason"].as_str() {
            Some("FieldValueRequired") => FieldError::required(field, &why),
            Some("FieldValueForbidden") => FieldError::forbidden(field, &why),
            Some("FieldValueDuplicate") => FieldError::duplicate_text(field, &shown),
            _ => FieldError::invalid_text(field, &shown, &why),
        });
    }

    /// The message of a violated rule: its message expression, its message, or the rule itself.
    fn message(&mut self, rule: &'s Value, own: &Input) -> String {
        let worked_out = rule["messageExpression"]
            .as_str()
            .and_then(|text| match self.work_out(text, own)? {
                Ok(cel::Value::String(text)) if !text.trim().is_empty() => Some(text.trim().to_owned()),
                _ => None,
            });
        let given = || rule["message"].as_str().map(str::to_owned);
        worked_out
            .or_else(given)
            .unwrap_or_else(|| format!("failed rule: {}", rule["rule"].as_str().unwrap_or_default().trim()))
    }
}

/// The previous elements of a list, by key. Only lists of type map have keys.
fn before<'v>(old: Option<&'v Value>, schema: &Value) -> HashMap<Vec<Value>, &'v Value> {
    let items = old.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| Some((identity(item, schema)?, item))).collect()
}

fn identity(item: &Value, schema: &Value) -> Option<Vec<Value>> {
    let keys = schema["x-kubernetes-list-map-keys"].as_array()?;
    let key = |key: &Value| item.get(key.as_str().unwrap_or_default()).cloned();
    (schema["x-kubernetes-list-type"] == "map").then(|| keys.iter().map(key).collect())?
}

/// The length of the longest list, map or text in a value: an upper bound for loops over any part of it.
fn longest(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(longest).max().unwrap_or(0).max(items.len()),
        Value::Object(fields) => fields.values().map(longest).max().unwrap_or(0).max(fields.len()),
        Value::String(text) => text.len(),
        _ => 0,
    }
}

/// A value as CEL sees it: numbers have the type in the schema, and field names are escaped.
fn converted(value: &Value, schema: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) if schema["type"] != "number" => cel::Value::Int(number),
            _ => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let items = items.iter().map(|item| converted(item, &schema["items"]));
            cel::Value::List(Arc::new(items.collect()))
        }
        Value::Object(fields) => {
            let entries = fields.iter().map(|(name, value)| match schema["properties"].get(name) {
                Some(schema) => (readable(name), converted(value, schema)),
                None => (name.clone(), converted(value, &schema["additionalProperties"])),
            });
            let entries = entries.map(|(name, value)| (Key::String(Arc::new(name)), value));
            cel::Value::Map(Map {
                map: Arc::new(entries.collect()),
            })
        }
    }
}

/// The name of a field in rules: CEL keywords and characters that are invalid in names are escaped.
fn readable(name: &str) -> String {
    const WORDS: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if WORDS.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests;
