//! Wraps sentences into lines.

use super::one_line;

/// Wraps a text at spaces. A word that is too long for a line gets its own. Line ends in the text count as spaces: an
/// untrusted name cannot start a new line.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in one_line(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_begins_no_line_and_sets_no_color() {
        let text = "claim \"data\nAll pods run.\x1b[30m\" not found";
        assert_eq!(wrapped(text, 80), ["claim \"data All pods run.\\u{1b}[30m\" not found"]);
    }

    proptest! {
        #[test]
        fn wrapping_keeps_the_words_and_the_width(text in "[a-z]{1,8}( [a-z]{1,8}){0,20}", width in 8..40_usize) {
            let lines = wrapped(&text, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width));
            prop_assert_eq!(lines.join(" "), text);
        }
    }
}
