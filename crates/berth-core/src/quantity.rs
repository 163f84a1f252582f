//! Kubernetes resource quantities: `100Gi`, `250m`, `1e3`, `0.5`.
//!
//! A quantity is kept exactly, in nano-units. As in Kubernetes, a finer fraction is rounded away
//! from zero when it is read, and a value beyond 2^63-1 is capped. Decisions work on whole units
//! (bytes, pods) or milli-units (cpu), both rounded up; see [`Quantity::value`] and
//! [`Quantity::milli_value`].

use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use std::str::FromStr;

const NANOS: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// The cap that Kubernetes puts on every quantity, in nano-units.
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS;
/// More decimal digits than [`MAX_NANOS`] has: anything longer is beyond the cap.
const MAX_DIGITS: usize = 30;

/// An exact amount of a resource.
///
/// ```
/// use berth_core::quantity::Quantity;
/// let size: Quantity = "1.5Gi".parse()?;
/// assert_eq!(size.value(), 1_610_612_736);
/// let cpu: Quantity = "100m".parse()?;
/// assert_eq!(cpu.milli_value(), 100);
/// assert_eq!(cpu.value(), 1, "fractions are rounded up");
/// # Ok::<(), berth_core::quantity::ParseQuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a quantity: expected a number with an optional suffix (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent), such as 100Gi, 250m or 1e3"
)]
pub struct ParseQuantityError {
    text: String,
}

impl Quantity {
    /// A quantity of whole units.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANOS,
        }
    }

    /// A quantity of thousandths.
    #[must_use]
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nanos: i128::from(milli) * NANOS_PER_MILLI,
        }
    }

    /// Whole units, rounded away from zero and saturating.
    #[must_use]
    pub fn value(self) -> i64 {
        round_away(self.nanos, NANOS)
    }

    /// Thousandths, rounded away from zero and saturating.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        round_away(self.nanos, NANOS_PER_MILLI)
    }

    /// Whether the quantity is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// The exact sum; it saturates far beyond what any quantity can be read as.
    fn add(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
        }
    }
}

fn round_away(nanos: i128, unit: i128) -> i64 {
    let whole = nanos / unit;
    let rounded = match nanos % unit {
        0 => whole,
        rest if rest > 0 => whole + 1,
        _ => whole - 1,
    };
    i64::try_from(rounded).unwrap_or(if rounded > 0 { i64::MAX } else { i64::MIN })
}

/// What a suffix multiplies a number by.
enum Scale {
    Decimal(i64),
    Binary(u32),
}

fn scale_of(suffix: &str) -> Option<Scale> {
    Some(match suffix {
        "" => Scale::Decimal(0),
        "n" => Scale::Decimal(-9),
        "u" => Scale::Decimal(-6),
        "m" => Scale::Decimal(-3),
        "k" => Scale::Decimal(3),
        "M" => Scale::Decimal(6),
        "G" => Scale::Decimal(9),
        "T" => Scale::Decimal(12),
        "P" => Scale::Decimal(15),
        "E" => Scale::Decimal(18),
        "Ki" => Scale::Binary(10),
        "Mi" => Scale::Binary(20),
        "Gi" => Scale::Binary(30),
        "Ti" => Scale::Binary(40),
        "Pi" => Scale::Binary(50),
        "Ei" => Scale::Binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Scale::Decimal(exponent.parse::<i32>().ok()?.into())
        }
    })
}

/// A magnitude as decimal digits, most significant first, times a power of ten.
struct Decimal {
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    fn multiply_by_power_of_two(&mut self, power: u32) {
        for _ in 0..power {
            let mut carry = 0;
            for digit in self.digits.iter_mut().rev() {
                let doubled = *digit * 2 + carry;
                *digit = doubled % 10;
                carry = doubled / 10;
            }
            if carry > 0 {
                self.digits.insert(0, carry);
            }
        }
    }

    /// The magnitude in nano-units, rounded up and capped.
    fn nanos(mut self) -> i128 {
        let leading_zeros = self.digits.iter().take_while(|d| **d == 0).count();
        self.digits.drain(..leading_zeros);
        if self.digits.is_empty() {
            return 0;
        }
        let shift = self.exponent + 9;
        let Ok(length) = i64::try_from(self.digits.len()) else {
            return MAX_NANOS;
        };
        if length.saturating_add(shift) > MAX_DIGITS as i64 {
            return MAX_NANOS;
        }
        let kept = usize::try_from(length.saturating_add(shift.min(0)).max(0)).unwrap_or(0);
        let (whole, fraction) = self.digits.split_at(kept);
        let mut nanos = whole.iter().fold(0_i128, |sum, digit| sum * 10 + i128::from(*digit));
        for _ in 0..shift.max(0) {
            nanos *= 10;
        }
        if fraction.iter().any(|digit| *digit > 0) {
            nanos += 1;
        }
        nanos.min(MAX_NANOS)
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseQuantityError { text: text.to_owned() };
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_length = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(error());
        }
        let mut decimal = Decimal {
            digits: whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect(),
            exponent: -i64::try_from(fraction.len()).map_err(|_| error())?,
        };
        match scale_of(suffix).ok_or_else(error)? {
            Scale::Decimal(exponent) => decimal.exponent += exponent,
            Scale::Binary(power) => decimal.multiply_by_power_of_two(power),
        }
        let nanos = decimal.nanos();
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
        })
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;

        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 100Gi, 250m or 3")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(units))
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(i64::try_from(units).unwrap_or(i64::MAX)))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
                Ok(Quantity::default())
            }
        }

        deserializer.deserialize_any(QuantityVisitor)
    }
}

/// The canonical form of a quantity in Kubernetes: without a fraction, with the largest suffix of the same family. `None`
/// if the text is not a quantity, or is capped.
///
/// ```
/// use berth_core::quantity::canonical;
/// assert_eq!(canonical("1.5Gi").as_deref(), Some("1536Mi"));
/// assert_eq!(canonical("0.1").as_deref(), Some("100m"));
/// assert_eq!(canonical("10GB"), None);
/// ```
#[must_use]
pub fn canonical(text: &str) -> Option<String> {
    let Quantity { nanos } = text.parse().ok()?;
    if nanos.abs() >= MAX_NANOS {
        return None;
    }
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    // A binary suffix would lose the fraction of a byte.
    if suffix.ends_with('i') && nanos.abs() >= 1024 * NANOS && nanos % NANOS == 0 {
        let (number, power) = largest_power(nanos / NANOS, 1024, 6);
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(power)?;
        return Some(format!("{number}{suffix}"));
    }
    let (number, power) = largest_power(nanos, 1000, 9);
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

/// Divides a number by a base as often as possible. Zero has no suffix.
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

/// Formats a number of bytes as Kubernetes users write sizes: `100Gi`, `512Mi`, `1500`.
///
/// ```
/// use berth_core::quantity::Bytes;
/// assert_eq!(Bytes(100 << 30).to_string(), "100Gi");
/// assert_eq!(Bytes(1500).to_string(), "1500");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub i64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        for (suffix, power) in [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
            let unit = 1_i64 << power;
            if bytes != 0 && bytes % unit == 0 {
                return write!(f, "{}{suffix}", bytes / unit);
            }
        }
        write!(f, "{bytes}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, value: i64, milli_value: i64) {
        let quantity: Quantity = text.parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(quantity.value(), value, "value of {text}");
        assert_eq!(quantity.milli_value(), milli_value, "milli-value of {text}");
    }

    #[test]
    fn every_suffix_and_exponent() {
        check("0", 0, 0);
        check("12", 12, 12_000);
        check("+12", 12, 12_000);
        check("-12", -12, -12_000);
        check("1n", 1, 1);
        check("1u", 1, 1);
        check("100m", 1, 100);
        check("1500m", 2, 1500);
        check("2k", 2000, 2_000_000);
        check("2M", 2_000_000, 2_000_000_000);
        check("2G", 2_000_000_000, 2_000_000_000_000);
        check("2T", 2_000_000_000_000, 2_000_000_000_000_000);
        check("2P", 2_000_000_000_000_000, 2_000_000_000_000_000_000);
        check("2E", 2_000_000_000_000_000_000, i64::MAX);
        check("1Ki", 1024, 1_024_000);
        check("1.5Mi", 1_572_864, 1_572_864_000);
        check("3Gi", 3 << 30, (3 << 30) * 1000);
        check("3Ti", 3 << 40, (3 << 40) * 1000);
        check("3Pi", 3 << 50, (3 << 50) * 1000);
        check("3Ei", 3 << 60, i64::MAX);
        check("1e3", 1000, 1_000_000);
        check("1E3", 1000, 1_000_000);
        check("12e-1", 2, 1200);
        check(".5", 1, 500);
        check("5.", 5, 5000);
        check("0.0001", 1, 1);
        check("0.0000000001", 1, 1);
        check("-0.5", -1, -500);
        check("0.9999999999", 1, 1000);
        check("0.000000000931322574615478515625Gi", 1, 1000);
    }

    #[test]
    fn quantities_are_kept_in_one_form() {
        for (text, expected) in [
            ("1.5Gi", "1536Mi"),
            ("1073741824", "1073741824"),
            ("0.5Ki", "512"),
            ("13.14Ki", "13455360m"),
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
        assert_eq!(canonical("1e99"), None, "beyond the cap");
    }

    #[test]
    fn overflow_saturates() {
        check("9223372036854775807", i64::MAX, i64::MAX);
        check("9223372036854775808", i64::MAX, i64::MAX);
        check("100E", i64::MAX, i64::MAX);
        check("8Ei", i64::MAX, i64::MAX);
        check("-100E", -i64::MAX, i64::MIN);
        check("1e400", i64::MAX, i64::MAX);
        check("1e2147483647", i64::MAX, i64::MAX);
        check("1e-2147483648", 1, 1);
        check("0e2147483647", 0, 0);
    }

    #[test]
    fn texts_that_are_no_quantity() {
        for text in [
            "",
            " ",
            ".",
            "-",
            "1 Gi",
            "1gi",
            "1KI",
            "Gi",
            "1.2.3",
            "1e",
            "1e1.5",
            "0x10",
            "1Gi ",
            "--1",
            "1e99999999999",
            "ten",
            "1K",
            "∞",
            "1\u{0660}",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?} was taken for a quantity");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_whole_unit() {
        for (bytes, text) in [
            (0, "0"),
            (1 << 30, "1Gi"),
            (1536 << 20, "1536Mi"),
            (1000, "1000"),
            (-1024, "-1Ki"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_the_same_quantity(
            text in "-?[0-9]{1,6}(\\.[0-9]{1,6})?(m|k|M|G|T|Ki|Mi|Gi|Ti|e3|e-3)?"
        ) {
            let value = |text: &str| text.parse::<Quantity>().unwrap().value();
            let form = canonical(&text).unwrap();
            prop_assert_eq!(value(&form), value(&text));
            // A binary form without a suffix is read as a decimal one, which then gets a suffix. After that it is
            // stable.
            let read = canonical(&form).unwrap();
            prop_assert_eq!(value(&read), value(&text));
            prop_assert_eq!(canonical(&read), Some(read));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.eEinumkKMGTPi ]{0,40}") {
            let _ = (text.parse::<Quantity>(), canonical(&text));
        }

        #[test]
        fn whole_units_survive(units: i64) {
            let expected = units.max(-i64::MAX);
            prop_assert_eq!(units.to_string().parse::<Quantity>().unwrap().value(), expected);
        }

        #[test]
        fn binary_sizes_read_back(bytes in 0_i64..) {
            prop_assert_eq!(Bytes(bytes).to_string().parse::<Quantity>().unwrap().value(), bytes);
        }
    }
}
