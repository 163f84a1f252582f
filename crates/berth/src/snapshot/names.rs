//! The originals of the pseudonyms in an anonymized snapshot, and the translation of answers back to them.

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// Pseudonyms and their originals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Creates it from pairs of a name and its pseudonym.
    pub(super) fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().map(|(name, pseudonym)| (pseudonym, name)).collect())
    }

    /// A text with pseudonyms replaced by their originals. Other words are kept.
    #[must_use]
    pub fn translate(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let word = self.leading(rest);
            match self.0.get(word) {
                Some(name) => out.push_str(name),
                None => out.push_str(word),
            }
            rest = &rest[word.len()..];
        }
        out
    }

    /// The longest pseudonym at the start of a text, or else its first run of letters, or of anything else.
    fn leading<'t>(&self, text: &'t str) -> &'t str {
        let end_of = |is_in: &dyn Fn(char) -> bool| text.find(|letter| !is_in(letter)).unwrap_or(text.len());
        // UIDs and addresses contain characters that end a word.
        let whole = &text[..end_of(&|letter| letter.is_ascii_hexdigit() || matches!(letter, '-' | '.' | ':'))];
        // A file may hold an empty pseudonym, which would be found again and again.
        if !whole.is_empty() && self.0.contains_key(whole) {
            return whole;
        }
        match end_of(&char::is_alphanumeric) {
            0 => &text[..end_of(&|letter| !letter.is_alphanumeric())],
            end => &text[..end],
        }
    }
}

/// Arguments of `berth translate`.
#[derive(Args, Debug)]
pub struct TranslateArgs {
    /// File that berth snapshot --anonymize --names wrote.
    #[arg(long, value_name = "FILE")]
    pub names: PathBuf,
    /// The answer to translate, or `-` for standard input.
    #[arg(value_name = "FILE|-", default_value = "-")]
    pub file: PathBuf,
}

/// Writes an answer about an anonymized snapshot with the names of the cluster.
///
/// # Errors
/// If a file cannot be read, or contains no names.
pub fn translate(args: &TranslateArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = &args.names;
    let names = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let names: Names = serde_json::from_slice(&names).with_context(|| {
        format!(
            "{}: expected what berth snapshot --anonymize --names wrote",
            path.display()
        )
    })?;
    let mut text = String::new();
    if args.file.as_os_str() == "-" {
        io::stdin()
            .lock()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    }
    out.write_all(names.translate(&text).as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn pseudonyms_become_names_wherever_they_stand() {
        let pair = |name: &str, pseudonym: &str| (name.to_owned(), pseudonym.to_owned());
        let names = Names::new([
            pair("db", "w1"),
            pair("data", "w10"),
            pair("10.0.1.23", "198.18.0.1"),
            pair(
                "5b1c9a86-0000-4000-8000-000000000001",
                "00000000-0000-4000-8000-000000000007",
            ),
        ]);
        for (text, expected) in [
            ("default/w10-w1-0 fits on none", "default/data-db-0 fits on none"),
            ("w100 w12 xw1 w1x", "w100 w12 xw1 w1x"),
            (
                "pvc-00000000-0000-4000-8000-000000000007 (10Gi)",
                "pvc-5b1c9a86-0000-4000-8000-000000000001 (10Gi)",
            ),
            (
                "{\"node\":\"w1\",\"ip\":\"198.18.0.1\"}",
                "{\"node\":\"db\",\"ip\":\"10.0.1.23\"}",
            ),
            ("", ""),
            ("é…w1…", "é…db…"),
        ] {
            assert_eq!(names.translate(text), expected);
        }
    }

    #[test]
    fn an_empty_pseudonym_stands_nowhere() {
        let names = Names::new([("everywhere".to_owned(), String::new())]);
        assert_eq!(names.translate("so it is -- left out"), "so it is -- left out");
    }
}
