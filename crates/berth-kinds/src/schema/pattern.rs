//! Go regular expressions in schemas, translated for the `regex` crate.
//!
//! The two dialects are related but differ: in Go, `\d`, `\w`, `\s` and `\b` are ASCII only, `[` in a class is a
//! literal bracket, and `\Q…\E` quotes. A pattern is rewritten to have the same meaning here.

use regex::{Regex, RegexBuilder};

/// Maximum length of a pattern. Practical ones have some hundred bytes.
const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Maximum size of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    /// It is not a regular expression.
    #[error("must be a valid regular expression, but isn't: error parsing regexp: {0}")]
    Syntax(String),
    /// It would take too much memory or time.
    #[error(
        "is too large: a pattern may have {PATTERN_BYTES_MAX} bytes, and {COMPILED_BYTES_MAX} with its repetitions written out"
    )]
    TooLarge,
}

/// Compiles a pattern.
pub(crate) fn compile(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLarge);
    }
    let built = RegexBuilder::new(&translated(pattern))
        .size_limit(COMPILED_BYTES_MAX)
        .build();
    built.map_err(|error| match error {
        regex::Error::Syntax(text) => {
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            PatternError::Syntax(why.to_owned())
        }
        _ => PatternError::TooLarge,
    })
}

/// A Go pattern in the syntax of the crate.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(letter) = rest.chars().next() {
        if letter == '\\' {
            rest = escape(&rest[1..], in_class, &mut out);
            continue;
        }
        if in_class && let Some(end) = rest.strip_prefix("[:").and_then(|name| name.find(":]")) {
            let length = 2 + end + 2;
            out.push_str(&rest[..length]);
            rest = &rest[length..];
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match (letter, in_class) {
            ('[', false) => {
                in_class = true;
                out.push('[');
                for literal_first in ["^", "]"] {
                    if let Some(after) = rest.strip_prefix(literal_first) {
                        out.push_str(if literal_first == "]" { "\\]" } else { "^" });
                        rest = after;
                    }
                }
            }
            (']', true) => {
                in_class = false;
                out.push(']');
            }
            // Set brackets and operators, which Go does not have.
            ('[' | '&' | '~', true) => out.extend(['\\', letter]),
            ('-', true) if out.ends_with('-') && !out.ends_with("\\-") => out.push_str("\\-"),
            _ => out.push(letter),
        }
    }
    out
}

/// Translates an escape sequence and returns the rest.
fn escape<'p>(rest: &'p str, in_class: bool, out: &mut String) -> &'p str {
    let Some(letter) = rest.chars().next() else {
        out.push('\\');
        return rest;
    };
    let after = &rest[letter.len_utf8()..];
    let class = match letter {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        's' => "[\\t\\n\\x0c\\r ]",
        'S' => "[^\\t\\n\\x0c\\r ]",
        'b' if !in_class => "(?-u:\\b)",
        '<' | '>' => {
            out.push(letter);
            return after;
        }
        'Q' => {
            let (quoted, after) = after.split_once("\\E").unwrap_or((after, ""));
            out.push_str(&regex::escape(quoted));
            return after;
        }
        _ => {
            out.extend(['\\', letter]);
            return after;
        }
    };
    out.push_str(class);
    after
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_to_go() {
        for (pattern, matching, other) in [
            (r"^\d+$", "123", "١٢٣"),
            (r"^\w+$", "a_1", "ä"),
            (r"^\W$", "ä", "a"),
            (r"^a\sb$", "a b", "a\u{a0}b"),
            (r"^[\d.]+$", "1.2", "١"),
            (r"^[^\d]$", "١", "1"),
            (r"^[a[]$", "[", "b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[+--]$", ",", "a"),
            (r"^[]a]$", "]", "b"),
            (r"^[^]a]$", "b", "]"),
            (r"^[[:alpha:]-]+$", "a-b", "ä"),
            (r"^\Qa.b\E$", "a.b", "axb"),
            (r"^\<a\>$", "<a>", "a"),
            (r"^(\/[a-z0-9-_]+)*\/?$", "/a/b", "a b"),
            (r"^.$", "猫", "ab"),
            (r"\bcat\b", "a cat", "cats"),
        ] {
            let regex = compile(pattern).unwrap();
            assert!(regex.is_match(matching), "{pattern} {matching}");
            assert!(!regex.is_match(other), "{pattern} {other}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        for pattern in ["(a{999}){999}", r"(\pL{500}){100}", &"a".repeat(20_000)] {
            assert_eq!(
                compile(pattern).map(|_| ()),
                Err(PatternError::TooLarge),
                "{pattern:.20}"
            );
        }
        let syntax = compile("a(").map(|_| ());
        assert!(matches!(syntax, Err(PatternError::Syntax(_))), "{syntax:?}");
    }

    proptest! {
        #[test]
        fn any_pattern_is_taken_or_refused(pattern in r"(\\?[a-z\[\]^&~:{}(){}0-9QEdDwWsSb|*+?.-]){0,20}", text in ".{0,20}") {
            if let Ok(regex) = compile(&pattern) {
                regex.is_match(&text);
            }
        }
    }
}
