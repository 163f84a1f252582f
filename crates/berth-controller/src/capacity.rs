//! A volume's size as text.

use berth_core::quantity::{Bytes, Quantity};

/// Formats a size the way a user most likely wrote it: with the suffix that makes it shortest.
///
/// Quantities are stored as numbers, and both `8G` and `7812500Ki` are the same number.
pub(crate) fn text(size: Quantity) -> String {
    let bytes = size.value();
    let binary = Bytes(bytes).to_string();
    let decimal = decimal(bytes);
    if decimal.len() < binary.len() { decimal } else { binary }
}

fn decimal(bytes: i64) -> String {
    for (suffix, unit) in [
        ("E", 1_000_000_000_000_000_000_i64),
        ("P", 1_000_000_000_000_000),
        ("T", 1_000_000_000_000),
        ("G", 1_000_000_000),
        ("M", 1_000_000),
        ("k", 1_000),
    ] {
        if bytes != 0 && bytes % unit == 0 {
            return format!("{}{suffix}", bytes / unit);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn sizes_keep_the_suffix_they_were_written_with() {
        for size in ["10Gi", "8G", "1536Mi", "500M", "1500", "0", "3Ti"] {
            assert_eq!(text(size.parse().unwrap()), size);
        }
        assert_eq!(text("1.5Gi".parse().unwrap()), "1536Mi");
    }
}
