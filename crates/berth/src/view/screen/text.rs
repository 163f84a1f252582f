//! Texts with styles as lines of a screen.

use crate::terminal::clean_text;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The colours of a terminal, as codes from 30 on.
const COLORS: [Color; 8] = [
    Color::Black,
    Color::Red,
    Color::Green,
    Color::Yellow,
    Color::Blue,
    Color::Magenta,
    Color::Cyan,
    Color::Gray,
];

/// The lines of an answer as `berth explain` prints it. Whatever a terminal would obey comes out in letters; styles are kept, and
/// colours where they are wanted.
pub(super) fn styled(text: &str, colored: bool) -> Vec<Line<'static>> {
    let mut style = Style::new();
    let mut lines = Vec::new();
    for line in clean_text(text).lines() {
        let mut spans = Vec::new();
        // What `clean_text` leaves of escapes are styles.
        for (index, part) in line.split("\x1b[").enumerate() {
            let (codes, words) = match (index, part.split_once('m')) {
                (0, _) | (_, None) => (None, part),
                (_, Some((codes, words))) => (Some(codes), words),
            };
            for code in codes.into_iter().flat_map(|codes| codes.split(';')) {
                style = with(style, code, colored);
            }
            if !words.is_empty() {
                spans.push(Span::styled(words.replace('\t', "    "), style));
            }
        }
        lines.push(Line::from(spans));
    }
    lines
}

fn with(style: Style, code: &str, colored: bool) -> Style {
    match code {
        "" | "0" => Style::new(),
        "1" => style.add_modifier(Modifier::BOLD),
        "2" => style.add_modifier(Modifier::DIM),
        "3" => style.add_modifier(Modifier::ITALIC),
        "4" => style.add_modifier(Modifier::UNDERLINED),
        "22" => style.remove_modifier(Modifier::BOLD | Modifier::DIM),
        "23" => style.remove_modifier(Modifier::ITALIC),
        "24" => style.remove_modifier(Modifier::UNDERLINED),
        "39" => style.fg(Color::Reset),
        color => match color.parse::<usize>() {
            // The bright ones, from 90 on, are shown as the others.
            Ok(color) if colored => style.fg(COLORS[color % 10 % COLORS.len()]),
            _ => style,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_become_spans_and_the_rest_letters() {
        let text = "\x1b[1mdata\x1b[0m: \x1b[31mlost\x1b[39m\nnext\x1b[2J";
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let red = Style::new().fg(Color::Red);
        let plain = Style::new();
        let expected = |red| {
            vec![
                Line::from(vec![
                    Span::styled("data", bold),
                    Span::styled(": ", plain),
                    Span::styled("lost", red),
                ]),
                Line::from(vec![Span::styled("next\\u{1b}[2J", plain.fg(Color::Reset))]),
            ]
        };
        assert_eq!(styled(text, true), expected(red));
        assert_eq!(styled(text, false), expected(plain));
    }
}
