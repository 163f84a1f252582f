//! Checks that a backend's topology is valid as node labels.

/// What is wrong with a label and its values.
#[must_use]
pub(crate) fn problem(key: &str, values: &[String]) -> Option<String> {
    if !is_key(key) {
        return Some(format!("{key:?} is no label key"));
    }
    if values.is_empty() {
        return Some(format!("label {key:?} has no value"));
    }
    let bad = values.iter().find(|value| !is_value(value))?;
    Some(format!("{bad:?} is no value of label {key:?}"))
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_domain(prefix) && is_name(name),
        None => is_name(key),
    }
}

fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Up to 63 letters, digits, `-`, `_` and `.`, a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 63
        && ends(text.as_bytes().first())
        && ends(text.as_bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_domain(text: &str) -> bool {
    let is_part = |part: &str| {
        let ends = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        ends(part.as_bytes().first())
            && ends(part.as_bytes().last())
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values() {
        let one = |key: &str, value: &str| problem(key, &[value.to_owned()]);
        for (key, value) in [
            ("zone", "a"),
            ("topology.kubernetes.io/zone", "us-central1-a"),
            ("x.io/a_b.c", ""),
        ] {
            assert_eq!(one(key, value), None);
        }
        for (key, value) in [
            ("", "a"),
            ("/zone", "a"),
            ("Zone.IO/zone", "a"),
            ("a/b/c", "a"),
            ("zone", "no spaces"),
            ("zone", "-a"),
            ("zone", "ä"),
        ] {
            assert!(one(key, value).is_some(), "{key} {value}");
        }
        assert!(one("zone", &"x".repeat(64)).is_some());
        assert!(problem("zone", &[]).is_some());
    }
}
