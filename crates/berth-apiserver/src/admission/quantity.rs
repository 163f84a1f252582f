//! Quantities such as `10Gi`: whether a text is one, and which of two is larger.

/// A quantity, exact to a billionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity {
    nanos: i128,
}

/// What Kubernetes says of a text that is not a quantity.
pub(crate) const NOT_A_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

const NANO: i128 = 1_000_000_000;
/// Digits beyond this cannot be held exactly, and no disk has as many bytes.
const DIGITS_MAX: usize = 18;

impl Quantity {
    /// Reads the text form. `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (sign, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        if whole.len() > DIGITS_MAX || fraction.len() > DIGITS_MAX {
            return None;
        }
        let (numerator, denominator) = multiplier(suffix)?;
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let scaled = digits
            .checked_mul(numerator)?
            .checked_mul(NANO / denominator.min(NANO))?;
        // Kubernetes rounds up to the next billionth.
        let nanos = scaled.checked_add(scale - 1)? / scale;
        Some(Self {
            nanos: sign * nanos,
        })
    }

    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub(crate) fn is_positive(self) -> bool {
        self.nanos > 0
    }
}

/// The suffix as a fraction.
fn multiplier(suffix: &str) -> Option<(i128, i128)> {
    if let Some(exponent) = suffix
        .strip_prefix(['e', 'E'])
        .filter(|rest| !rest.is_empty())
    {
        let exponent: i32 = exponent.parse().ok()?;
        return match exponent {
            0..=18 => Some((10_i128.pow(exponent.unsigned_abs()), 1)),
            -9..=-1 => Some((1, 10_i128.pow(exponent.unsigned_abs()))),
            _ => None,
        };
    }
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, NANO),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (NANO, 1),
        "T" => (1000 * NANO, 1),
        "P" => (1_000_000 * NANO, 1),
        "E" => (NANO * NANO, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_value() {
        let of = |text: &str| Quantity::parse(text).unwrap();
        assert!(of("1Gi") > of("1G"));
        assert_eq!(of("1024Mi"), of("1Gi"));
        assert_eq!(of("1.5Ki"), of("1536"));
        assert_eq!(of("100m"), of("0.1"));
        assert_eq!(of("1e3"), of("1k"));
        assert!(of("-1").is_negative() && !of("0").is_positive());
        for bad in ["", "x", "1.2.3", "10GB", "1 Gi", "--1", "1e99", ".", "Gi"] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            let _ = Quantity::parse(&text);
        }
    }
}
