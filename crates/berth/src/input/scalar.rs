//! The meaning of an unquoted YAML scalar, as in kubectl.
//!
//! kubectl reads YAML 1.1 with the conventions of its library: `yes`, `on` and `y` are booleans, `0777` is octal,
//! `1_000` is a number, and a date stays text. A manifest that kubectl refuses because a label is `on` must be refused
//! here too, and a quantity such as `1e3` must be the same amount.

use serde_json::{Number, Value};

/// The meaning of a plain scalar. `None` for a number that JSON cannot represent: infinity or not-a-number.
pub(super) fn plain(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        _ if is_not_finite(text) => return None,
        _ if begins_as_number(text) => match number(text)? {
            Some(number) => Value::Number(number),
            None => Value::String(text.to_owned()),
        },
        _ => Value::String(text.to_owned()),
    })
}

fn is_not_finite(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn begins_as_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.'))
}

/// `Some(None)` if the text is not a number, `None` if it is one that JSON cannot represent.
fn number(text: &str) -> Option<Option<Number>> {
    let digits: std::borrow::Cow<'_, str> = if text.contains('_') && !text.starts_with('.') {
        text.replace('_', "").into()
    } else {
        text.into()
    };
    if let Some(whole) = whole_number(&digits) {
        return Some(Some(whole));
    }
    if !is_decimal_fraction(&digits) {
        return Some(None);
    }
    match digits.parse::<f64>() {
        Ok(found) => Number::from_f64(found).map(Some),
        Err(_) => Some(None),
    }
}

fn whole_number(text: &str) -> Option<Number> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    // A sign here would be a second one.
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(Number::from);
    }
    Some(Number::from(magnitude))
}

/// Digits with an optional sign, point and exponent, and nothing else: not `1.2.3`, `1Gi` or `infinity`.
fn is_decimal_fraction(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_is_whole = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    !(whole.is_empty() && fraction.is_empty()) && all_digits(whole) && all_digits(fraction) && exponent_is_whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        for (text, expected) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("yes", json!(true)),
            ("On", json!(true)),
            ("n", json!(false)),
            ("OFF", json!(false)),
            ("oN", json!("oN")),
            ("5", json!(5)),
            ("+5", json!(5)),
            ("-5", json!(-5)),
            ("--5", json!("--5")),
            ("0", json!(0)),
            ("0777", json!(511)),
            ("0o17", json!(15)),
            ("08", json!(8.0)),
            ("0x1F", json!(31)),
            ("0x", json!("0x")),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("1e3", json!(1000.0)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("5.", json!(5.0)),
            ("1.2.3", json!("1.2.3")),
            ("1Gi", json!("1Gi")),
            ("100m", json!("100m")),
            ("1e", json!("1e")),
            ("12:30:45", json!("12:30:45")),
            ("2024-01-02", json!("2024-01-02")),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(18446744073709551616.0)),
            ("-9223372036854775808", json!(i64::MIN)),
            (".", json!(".")),
            ("-", json!("-")),
            ("...", json!("...")),
            ("infinity", json!("infinity")),
        ] {
            assert_eq!(plain(text), Some(expected), "{text:?}");
        }
        for text in [".inf", "-.INF", "+.Inf", ".nan", "1e999"] {
            assert_eq!(plain(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_means_something(text in "\\PC{0,12}|[-+0-9._xXobeEinf]{0,20}") {
            let _ = plain(&text);
        }
    }
}
