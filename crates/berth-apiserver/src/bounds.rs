//! Limits on the size and depth of objects: one measure for bodies, for the results of patches, and for stored objects.
//!
//! All code that walks an object is recursive, so depth uses stack. Everything stored is kept, listed and sent again,
//! so size uses memory many times over.

use serde_json::Value;

use crate::error::ApiError;

/// Maximum size of a stored object: what etcd accepts in one request, and so the limit of Kubernetes.
pub(crate) const STORED_BYTES_MAX: usize = 3 << 19;

/// Maximum depth of a stored object. Rust parsers accept 127. A list adds two levels, a table three, and a watch one
/// more.
pub(crate) const DEPTH_MAX: usize = 120;

/// Maximum number of values in one object. Each has a memory overhead however short it is. With 250,000 values the
/// largest object has 6 bytes per value, and no practical object is that dense.
const VALUES_MAX: usize = 250_000;

/// The size of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Measure {
    /// Bytes as JSON, without escaping: a string counts with its length.
    pub(crate) bytes: usize,
    /// Depth of nested objects and lists.
    pub(crate) depth: usize,
    /// Fields and elements at all levels.
    pub(crate) values: usize,
}

impl Measure {
    /// The measure of a value. Its depth must already be bounded, as that of everything parsed is.
    pub(crate) fn of(value: &Value) -> Self {
        let mut measure = Self::default();
        measure.add(value, 0);
        measure
    }

    fn add(&mut self, value: &Value, depth: usize) {
        self.values += 1;
        match value {
            Value::Null => self.bytes += 4,
            Value::Bool(_) => self.bytes += 5,
            // Numbers have no length in memory; this is a typical one.
            Value::Number(_) => self.bytes += 8,
            Value::String(text) => self.bytes += text.len() + 2,
            Value::Array(items) => {
                self.enter(depth, items.len());
                items.iter().for_each(|item| self.add(item, depth + 1));
            }
            Value::Object(fields) => {
                self.enter(depth, fields.len());
                for (name, value) in fields {
                    self.bytes += name.len() + 3;
                    self.add(value, depth + 1);
                }
            }
        }
    }

    fn enter(&mut self, depth: usize, values: usize) {
        self.bytes += 2 + values.saturating_sub(1);
        self.depth = self.depth.max(depth + 1);
    }
}

/// Refuses a body that is deeper or denser than any object can be.
pub(crate) fn check_body(body: &Value) -> Result<(), ApiError> {
    let measure = Measure::of(body);
    check_depth(measure)?;
    if measure.values > VALUES_MAX {
        return Err(ApiError::too_large(format_args!(
            "the body has {} values, at most {VALUES_MAX} are allowed",
            measure.values
        )));
    }
    Ok(())
}

/// Refuses an object that is too large or too deep to be stored.
pub(crate) fn check_stored(object: &Value) -> Result<(), ApiError> {
    let measure = Measure::of(object);
    check_depth(measure)?;
    if measure.bytes > STORED_BYTES_MAX {
        return Err(ApiError::too_large(format_args!(
            "the object would have {} bytes, at most {STORED_BYTES_MAX} are stored",
            measure.bytes
        )));
    }
    Ok(())
}

fn check_depth(measure: Measure) -> Result<(), ApiError> {
    if measure.depth > DEPTH_MAX {
        return Err(ApiError::bad_request(format!(
            "the object is nested {} levels deep: at most {DEPTH_MAX} are allowed",
            measure.depth
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_counts_containers() {
        for (value, depth) in [
            (json!(1), 0),
            (json!([]), 1),
            (json!({"a": [1]}), 2),
            (json!([[[]], {}]), 3),
        ] {
            assert_eq!(Measure::of(&value).depth, depth, "{value}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (10_000_000..99_999_999_u64).prop_map(Value::from),
            "[a-z]{0,9}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{0,4}", inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// `true` is one byte shorter than `false`, but counts the same.
        #[test]
        fn bytes_are_those_of_the_json(value in value()) {
            let text = value.to_string();
            prop_assert_eq!(Measure::of(&value).bytes, text.len() + text.matches("true").count());
        }
    }
}
