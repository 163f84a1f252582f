//! How large and how deep an object may be: one measure for bodies, for what patches make, and for what is stored.
//!
//! Everything that walks an object does so by recursion, so that depth is stack; and everything that is stored is kept,
//! listed and sent again, so that size is memory many times over.

use serde_json::Value;

use crate::error::ApiError;

/// The most bytes of an object that is stored: what etcd takes in one request, and so the limit of Kubernetes.
pub(crate) const STORED_BYTES_MAX: usize = 3 << 19;

/// The most levels of an object that is stored. Readers in Rust take 127. A list adds two of them, a table three, and a
/// watch one more.
pub(crate) const DEPTH_MAX: usize = 120;

/// The most values of one object. Each costs its share of memory however short it is: 250,000 of them are 6 bytes each in
/// the largest object, and no object of use is so dense.
const VALUES_MAX: usize = 250_000;

/// How large a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Measure {
    /// Bytes as JSON, but for what has to be escaped: a text counts as long as it is.
    pub(crate) bytes: usize,
    /// Objects and lists around the innermost value.
    pub(crate) depth: usize,
    /// Fields and elements at all levels.
    pub(crate) values: usize,
}

impl Measure {
    /// The measure of a value. Its depth must be bounded already, as that of everything parsed is.
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
            // Numbers have no length of their own in memory; this is that of most.
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
        /// `true` is one byte shorter than `false`, for which it counts.
        #[test]
        fn bytes_are_those_of_the_json(value in value()) {
            let text = value.to_string();
            prop_assert_eq!(Measure::of(&value).bytes, text.len() + text.matches("true").count());
        }
    }
}
