//! Sanitizes text for a terminal.
//!
//! Names, messages and addresses come from anyone who can write to a cluster or a file, and Kubernetes validates few of
//! them: a claim name in a pod may be any text. A terminal interprets such a text: it may clear the screen, rename the
//! window, or type for the user. Every stream that people read therefore goes through here, and everything except text and
//! the plain styles of tables and logs is escaped. Such a text has no styles and line ends of its own either: sentences and
//! tables insert it as [`one_line`].

use std::fmt::Write as _;
use std::io::{self, Write};

/// A stream that writes no control characters except line ends, tabs and plain styles.
#[derive(Debug)]
pub struct Clean<W> {
    inner: W,
}

impl<W> Clean<W> {
    /// Writes to this stream.
    pub fn new(inner: W) -> Self {
        Self { inner }
    }

    /// The stream behind it.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.inner.write_all(clean_text(&text).as_bytes())?;
        Ok(bytes.len())
    }

    /// A line is cleaned as a whole: its parts may split a sequence.
    fn write_fmt(&mut self, arguments: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.write_all(arguments.to_string().as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// JSON with the same meaning and without characters that a terminal interprets.
#[must_use]
pub fn clean_json(json: &str) -> String {
    clean(json, Escape::Json)
}

/// An untrusted text of several lines: line ends, tabs and plain styles stay, other control characters are escaped.
#[must_use]
pub fn clean_text(text: &str) -> String {
    clean(text, Escape::Text)
}

/// An untrusted text as one line without styles: part of a sentence, or a cell of a table.
#[must_use]
pub fn one_line(text: &str) -> String {
    clean(&text.replace(['\n', '\t', '\r'], " "), Escape::Foreign)
}

/// How a character is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// As in Rust. Styles are kept.
    Text,
    /// As in Rust, including styles.
    Foreign,
    /// As in JSON. All such characters are in strings, where this has the same meaning.
    Json,
}

fn clean(text: &str, escape: Escape) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let style = (escape == Escape::Text).then(|| style(rest)).flatten();
        if let Some(style) = style {
            cleaned.push_str(style);
            rest = &rest[style.len()..];
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        if !is_obeyed(letter) {
            cleaned.push(letter);
        } else if escape == Escape::Json {
            let _ = write!(cleaned, "\\u{:04x}", u32::from(letter));
        } else {
            cleaned.extend(letter.escape_unicode());
        }
    }
    cleaned
}

/// Whether a terminal interprets this character instead of displaying it: control characters of both sets, and those
/// that change the text direction.
fn is_obeyed(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}' | '\u{2029}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => letter.is_control(),
    }
}

/// The style at the start of a text: bold, dim, italic, underlined, or a text colour, and the reset. None of them hides
/// text or moves anything.
fn style(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let (parameters, _) = parameters.split_at_checked(parameters.find(|letter: char| !is_parameter(letter))?)?;
    let end = 2 + parameters.len();
    let is_plain = |parameter: &str| {
        matches!(parameter, "" | "0" | "1" | "2" | "3" | "4" | "22" | "23" | "24" | "39") || is_color(parameter)
    };
    (text[end..].starts_with('m') && parameters.split(';').all(is_plain)).then(|| &text[..=end])
}

fn is_parameter(letter: char) -> bool {
    letter.is_ascii_digit() || letter == ';'
}

fn is_color(parameter: &str) -> bool {
    let number: Option<u8> = (parameter.len() == 2).then(|| parameter.parse().ok()).flatten();
    number.is_some_and(|number| (30..=37).contains(&number) || (90..=97).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cleaned(text: &str) -> String {
        let mut out = Clean::new(Vec::new());
        write!(out, "{text}").unwrap();
        String::from_utf8(out.inner).unwrap()
    }

    #[test]
    fn styles_and_text_stay_and_the_rest_is_shown_in_letters() {
        for (text, expected) in [
            ("a\tb\nü 猫", "a\tb\nü 猫"),
            ("\x1b[1m\x1b[32mgood\x1b[0m", "\x1b[1m\x1b[32mgood\x1b[0m"),
            ("\x1b[2J", "\\u{1b}[2J"),
            ("\x1b]0;name\x07", "\\u{1b}]0;name\\u{7}"),
            ("\x1b[8mhidden", "\\u{1b}[8mhidden"),
            ("\x1b[38;5;1m", "\\u{1b}[38;5;1m"),
            ("\x1b[", "\\u{1b}["),
            ("\x1b", "\\u{1b}"),
            ("\u{9b}2J\r\x7f", "\\u{9b}2J\\u{d}\\u{7f}"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(cleaned(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_sequence_in_pieces_is_one() {
        let mut out = Clean::new(Vec::new());
        let style = anstyle::AnsiColor::Yellow.on_default().bold();
        write!(out, "{style}warning{style:#}").unwrap();
        assert_eq!(out.inner, b"\x1b[1m\x1b[33mwarning\x1b[0m");
    }

    proptest! {
        #[test]
        fn nothing_is_obeyed_and_json_means_the_same(text in "[\\PC\\x00-\\x1f\\x7f-\\x9f\u{202a}-\u{202e}a-f0-9;m\\[]{0,40}") {
            let text = cleaned(&text);
            let without_styles = text.replace("\x1b[", "");
            prop_assert!(!without_styles.contains(is_obeyed), "{:?}", text);

            let json = serde_json::to_string(&text).unwrap();
            let clean = clean_json(&json);
            prop_assert!(!clean.contains(is_obeyed), "{:?}", clean);
            prop_assert_eq!(serde_json::from_str::<String>(&clean).unwrap(), text);
        }
    }
}
