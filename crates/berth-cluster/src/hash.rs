//! Hashes and name suffixes that are the same on every machine and in every run.

use serde_json::Value;

/// Letters and digits that form no words: those that Kubernetes uses in generated names.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of the suffix of a generated name.
const SUFFIX_LETTERS: usize = 5;
/// A name may have 63 characters, including the generated suffix.
const MAX_BASE: usize = 63 - SUFFIX_LETTERS;

/// FNV-1a over 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

/// The hash of a text.
pub(crate) fn of_text(text: &str) -> u64 {
    of_bytes(text.as_bytes())
}

/// The hash of bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::new();
    hash.write(bytes);
    hash.finish()
}

/// The hash of a value, independent of the order of its keys.
pub(crate) fn of_value(value: &Value) -> u64 {
    let mut hash = Fnv::new();
    write_value(&mut hash, value);
    hash.finish()
}

fn write_value(hash: &mut Fnv, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.keys().collect();
            keys.sort_unstable();
            hash.write(b"{");
            for key in keys {
                hash.write(key.as_bytes());
                hash.write(b"\0");
                write_value(hash, &fields[key]);
            }
            hash.write(b"}");
        }
        Value::Array(items) => {
            hash.write(b"[");
            items.iter().for_each(|item| write_value(hash, item));
            hash.write(b"]");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            hash.write(value.to_string().as_bytes());
            hash.write(b"\0");
        }
    }
}

/// A template's hash as used in names and labels: up to ten safe letters, as in Kubernetes.
pub(crate) fn template_hash(template: &Value, collisions: i64) -> String {
    let mut hash = Fnv::new();
    hash.write(&of_value(template).to_le_bytes());
    hash.write(&collisions.to_le_bytes());
    let folded = hash.finish() >> 32;
    let letter = |digit: u8| char::from(SAFE[usize::from(digit) % SAFE.len()]);
    folded.to_string().bytes().map(letter).collect()
}

/// Suffixes of generated names, from a seed and a counter: the same run gives the same names.
#[derive(Clone, Debug)]
pub(crate) struct Suffixes {
    seed: u64,
    used: u64,
}

impl Suffixes {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, used: 0 }
    }

    /// `base` with a five-letter suffix for which `is_taken` is false.
    pub(crate) fn name(&mut self, base: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let base: String = base.chars().take(MAX_BASE).collect();
        loop {
            let name = format!("{base}{}", self.next());
            if !is_taken(&name) {
                return name;
            }
        }
    }

    fn next(&mut self) -> String {
        self.used = self.used.wrapping_add(1);
        let mut bits = mix(self.seed ^ mix(self.used));
        (0..SUFFIX_LETTERS)
            .map(|_| {
                // Five letters use less than 24 of the 64 bits, so every letter is about equally likely.
                let letter = (bits % 27) as usize;
                bits /= 27;
                char::from(SAFE[letter])
            })
            .collect()
    }
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_the_same_for_the_same_seed_and_avoid_what_is_taken() {
        let mut first = Suffixes::new(7);
        let mut second = Suffixes::new(7);
        let name = first.name("web-", |_| false);
        assert_eq!(second.name("web-", |_| false), name);
        assert_ne!(Suffixes::new(8).name("web-", |_| false), name);
        let other = Suffixes::new(7).name("web-", |found| found == name);
        assert_ne!(other, name);
        assert_eq!(name.len(), "web-".len() + 5);
        assert!(name.bytes().skip(4).all(|letter| SAFE.contains(&letter)), "{name}");
    }

    #[test]
    fn long_names_are_cut_to_what_a_label_may_hold() {
        let name = Suffixes::new(0).name(&"x".repeat(100), |_| false);
        assert_eq!(name.len(), 63);
    }

    #[test]
    fn a_template_has_one_hash_whatever_the_order_of_its_keys() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":[2,{"c":3}]}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b":[2,{"c":3}],"a":1}"#).unwrap();
        assert_eq!(template_hash(&one, 0), template_hash(&two, 0));
        assert_ne!(template_hash(&one, 0), template_hash(&one, 1));
        assert_ne!(template_hash(&one, 0), template_hash(&json!({"a": 1, "b": [2]}), 0));
    }
}
