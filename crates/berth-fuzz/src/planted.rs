//! Readers with bugs: a search that does not find these finds nothing.

use crate::{Shape, Target};
use serde_json::Value;

/// Targets with a bug each, which a run must report. No other run contains them.
pub const PLANTED: &[Target] = &[
    Target {
        name: "planted-panic",
        read: |input| {
            let value: Value = serde_json::from_slice(input).unwrap_or_default();
            assert!(value["spec"]["count"] != i64::MIN, "a count that cannot be negated");
            Shape::of("ok")
        },
    },
    Target {
        name: "planted-memory",
        read: |input| {
            let value: Value = serde_json::from_slice(input).unwrap_or_default();
            // A size from outside that is trusted.
            let size = value["spec"]["count"].as_u64().unwrap_or(0) >> 24;
            let room: Vec<u8> = vec![1; usize::try_from(size).unwrap_or(0)];
            Shape::of(&format!("ok {}", room.is_empty()))
        },
    },
    Target {
        name: "planted-stack",
        read: |input| {
            fn depth(input: &[u8]) -> usize {
                match input.split_first() {
                    Some((b'[', rest)) => 1 + depth(std::hint::black_box(rest)),
                    _ => 0,
                }
            }
            // Each level of the input is a level of the stack.
            let levels = depth(&input.repeat(1 + 40_000 * usize::from(input.starts_with(b"["))));
            Shape::of(&format!("ok {levels}"))
        },
    },
    Target {
        name: "planted-hang",
        read: |input| {
            let value: Value = serde_json::from_slice(input).unwrap_or_default();
            let mut left = value["spec"]["count"].as_u64().unwrap_or(0);
            while std::hint::black_box(left) > 1 << 60 {
                left = std::hint::black_box(left);
            }
            Shape::of("ok")
        },
    },
];
