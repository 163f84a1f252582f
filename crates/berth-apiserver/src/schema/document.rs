//! The fields of a JSON document in written order, including duplicates.
//!
//! A decoded object has neither, and Kubernetes reports both.

use std::collections::HashSet;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Whether any field is written twice. Cheap: nothing is kept.
pub(crate) fn has_duplicates(document: &[u8], decoded: &Value) -> bool {
    let mut counter = Counter(0);
    let mut deserializer = serde_json::Deserializer::from_slice(document);
    (&mut counter).deserialize(&mut deserializer).is_ok() && counter.0 > count(decoded)
}

fn count(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.len() + fields.values().map(count).sum::<usize>(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

struct Counter(usize);

impl<'de> DeserializeSeed<'de> for &mut Counter {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A value without parts is skipped.
macro_rules! skip_scalars {
    () => {
        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("any JSON")
        }

        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }

        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }

        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }

        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }

        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }
    };
}

impl<'de> Visitor<'de> for &mut Counter {
    type Value = ();

    skip_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_key::<IgnoredAny>()?.is_some() {
            self.0 += 1;
            fields.next_value_seed(&mut *self)?;
        }
        Ok(())
    }
}

/// The paths of all fields, in order. The flag is whether the field is a duplicate.
pub(crate) fn fields(document: &[u8]) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let walker = Walker {
        path: String::new(),
        found: &mut found,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(document);
    match walker.deserialize(&mut deserializer) {
        Ok(()) => found,
        Err(_) => Vec::new(),
    }
}

struct Walker<'f> {
    path: String,
    found: &'f mut Vec<(String, bool)>,
}

impl<'de> DeserializeSeed<'de> for Walker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walker<'_> {
    type Value = ();

    skip_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            let below = Walker {
                path: format!("{}[{index}]", self.path),
                found: self.found,
            };
            if items.next_element_seed(below)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = super::check::join(&self.path, &name);
            self.found.push((path.clone(), !seen.insert(name)));
            fields.next_value_seed(Walker {
                path,
                found: self.found,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_twice() {
        let document = br#"{"b": [{"x": 1}, {"y": {"z": null}}], "a": "t", "b": 2}"#;
        let decoded: Value = serde_json::from_slice(document).unwrap();
        assert!(has_duplicates(document, &decoded));
        let found = fields(document);
        let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["b", "b[0].x", "b[1].y", "b[1].y.z", "a", "b"]);
        let twice: Vec<_> = found
            .iter()
            .filter(|(_, twice)| *twice)
            .map(|(path, _)| path.as_str())
            .collect();
        assert_eq!(twice, ["b"]);
        for good in [&b"{\"a\": {\"b\": 1.5}, \"c\": [true, -1]}"[..], b"nonsense", b"[1]"] {
            let decoded = serde_json::from_slice(good).unwrap_or_default();
            assert!(!has_duplicates(good, &decoded));
        }
    }
}
