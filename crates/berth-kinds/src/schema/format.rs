//! The `format` of strings and numbers in the schemas of custom resources.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::Value;

/// Formats that Kubernetes knows and that are not checked here.
const UNCHECKED: [&str; 22] = [
    "bsonobjectid",
    "creditcard",
    "datetime",
    "double",
    "float",
    "hexcolor",
    "int64",
    "isbn",
    "isbn10",
    "isbn13",
    "k8s-long-name",
    "k8s-short-name",
    "k8s-uuid",
    "mac",
    "password",
    "quantity",
    "rgbcolor",
    "ssn",
    "uint64",
    "uuid3",
    "uuid4",
    "uuid5",
];
const CHECKED: [&str; 12] = [
    "byte",
    "cidr",
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "int32",
    "ipv4",
    "ipv6",
    "uri",
    "uuid",
];

/// Whether Kubernetes knows a format.
pub(crate) fn is_known(format: &str) -> bool {
    UNCHECKED.contains(&format) || CHECKED.contains(&format)
}

/// Whether a text has a format. Unknown formats accept every text.
pub(super) fn has(text: &str, format: &str) -> bool {
    match format {
        "byte" => STANDARD.decode(text).is_ok(),
        "cidr" => is_network(text),
        "date" => text.len() == 10 && Date::strptime("%Y-%m-%d", text).is_ok(),
        "date-time" => text.parse::<Timestamp>().is_ok(),
        "duration" => is_duration(text),
        "email" => is_address(text),
        "hostname" => is_host(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "uri" => is_uri(text),
        "uuid" => uuid::Uuid::try_parse(text).is_ok(),
        _ => true,
    }
}

/// Whether a number has a format.
pub(super) fn fits(number: &Value, format: &str) -> bool {
    match number.as_i64() {
        Some(number) if format == "int32" => i32::try_from(number).is_ok(),
        None if format == "int32" => false,
        _ => true,
    }
}

fn is_network(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let bits = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= bits)
}

/// Numbers with units, for example `1h30m` or `3 days`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['+', '-']).trim();
    let mut parts = 0;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let after = unit.trim_start().trim_start_matches(char::is_alphabetic);
        if unit.len() == rest.len() || after.len() == unit.trim_start().len() {
            return rest == "0" && parts == 0;
        }
        parts += 1;
        rest = after.trim_start();
    }
    parts > 0
}

fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once('@');
    parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace))
}

fn is_host(text: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(is_letter);
    text.len() <= 255 && text.trim_end_matches('.').split('.').all(is_label)
}

fn is_uri(text: &str) -> bool {
    let has_scheme = text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || b"+-.".contains(&letter))
    });
    (text.starts_with('/') || has_scheme) && !text.contains(char::is_whitespace)
}
