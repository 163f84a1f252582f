//! Quantities such as `10Gi`: whether a text is one, which of two is larger, and in which form Kubernetes keeps it.

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
const DIGITS_MAX: usize = 19;

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
        Some(Self { nanos: sign * nanos })
    }

    /// The whole number that the quantity is, rounded away from zero.
    pub(crate) fn whole(self) -> i128 {
        let whole = self.nanos.unsigned_abs().div_ceil(NANO.unsigned_abs());
        i128::try_from(whole).unwrap_or(i128::MAX) * self.nanos.signum()
    }

    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub(crate) fn is_positive(self) -> bool {
        self.nanos > 0
    }
}

/// The form in which Kubernetes keeps a quantity: without a fraction, with the largest suffix of the family that was
/// used. `None` if the text is not a quantity that can be held exactly.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let quantity = Quantity::parse(text)?;
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let is_small = quantity.nanos.abs() < 1024 * NANO;
    if suffix.ends_with('i') && !is_small {
        let (number, power) = largest_power(quantity.whole(), 1024, 6);
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(power)?;
        return Some(format!("{number}{suffix}"));
    }
    let (number, power) = largest_power(quantity.nanos, 1000, 9);
    if suffix.len() > 1 && suffix.starts_with(['e', 'E']) {
        let exponent = i32::try_from(power).ok()? * 3 - 9;
        return Some(match exponent {
            0 => number.to_string(),
            exponent => format!("{number}e{exponent}"),
        });
    }
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(power)?;
    Some(format!("{number}{suffix}"))
}

/// Takes a base out of a number as often as it is in there. Nothing is the same as nothing ones.
fn largest_power(mut number: i128, base: i128, power_max: usize) -> (i128, usize) {
    if number == 0 {
        return (0, if base == 1000 { 3 } else { 0 });
    }
    let mut power = 0;
    while power < power_max && number % base == 0 {
        number /= base;
        power += 1;
    }
    (number, power)
}

/// The suffix as a fraction.
fn multiplier(suffix: &str) -> Option<(i128, i128)> {
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']).filter(|rest| !rest.is_empty()) {
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

    #[test]
    fn quantities_are_kept_in_one_form() {
        for (text, expected) in [
            ("1.5Gi", "1536Mi"),
            ("1073741824", "1073741824"),
            ("0.5Ki", "512"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("5000", "5k"),
            ("1e3", "1e3"),
            ("12000e3", "12e6"),
            ("-1Gi", "-1Gi"),
            ("1024Ki", "1Mi"),
            ("0", "0"),
            ("0Gi", "0"),
            ("+5G", "5G"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            let _ = (Quantity::parse(&text), canonical(&text));
        }

        #[test]
        fn the_canonical_form_is_the_same_quantity(text in "-?[0-9]{1,6}(\\.[0-9]{1,6})?(m|k|M|G|T|Ki|Mi|Gi|Ti|e3|e-3)?") {
            let form = canonical(&text).unwrap();
            proptest::prop_assert_eq!(canonical(&form), Some(form));
        }
    }
}
