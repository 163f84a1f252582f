//! Writes into the cells of a screen: texts that end where their column ends, and bars.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/// Styles, without colours where those are not wanted. Nothing is told by a colour alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) colored: bool,
}

impl Paint {
    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn reversed(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn good(self) -> Style {
        self.colored(Color::Green)
    }

    pub(super) fn bad(self) -> Style {
        self.colored(Color::Red)
    }

    fn colored(self, color: Color) -> Style {
        match self.colored {
            true => self.strong().fg(color),
            false => self.strong(),
        }
    }
}

/// The cells of a screen.
pub(super) struct Cells<'a> {
    buffer: &'a mut Buffer,
    pub(super) paint: Paint,
}

impl<'a> Cells<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, paint: Paint) -> Self {
        Self { buffer, paint }
    }

    /// How many columns a text takes.
    pub(super) fn width(text: &str) -> u16 {
        u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
    }

    /// Writes a text into a column. What does not fit is cut off, and a sign says so.
    pub(super) fn text(&mut self, (x, y): (u16, u16), width: u16, text: &str, style: Style) {
        let area = self.buffer.area;
        if !area.contains((x, y).into()) || width == 0 {
            return;
        }
        let width = width.min(area.right() - x);
        if Self::width(text) <= width {
            self.buffer.set_stringn(x, y, text, width.into(), style);
        } else {
            let (end, _) = self.buffer.set_stringn(x, y, text, usize::from(width) - 1, style);
            self.buffer.set_stringn(end, y, "…", 1, style);
        }
    }

    /// Gives cells a style.
    pub(super) fn fill(&mut self, area: Rect, style: Style) {
        let area = area.intersection(self.buffer.area);
        self.buffer.set_style(area, style);
    }

    /// Draws parts of a whole, each with its sign. A part that is there is seen, however small it is.
    pub(super) fn bar(&mut self, (x, y): (u16, u16), width: u16, parts: &[(i64, char)], style: Style) {
        let mut bar = String::new();
        for (sign, length) in parts.iter().map(|(_, sign)| sign).zip(lengths(width, parts)) {
            bar.extend(std::iter::repeat_n(*sign, length.into()));
        }
        self.text((x, y), width, &bar, style);
    }
}

/// How many of so many cells each part takes. All of them together take all, if there is anything.
fn lengths(width: u16, parts: &[(i64, char)]) -> Vec<u16> {
    let total: i128 = parts.iter().map(|(amount, _)| i128::from(*amount).max(0)).sum();
    let mut lengths: Vec<u16> = Vec::with_capacity(parts.len());
    let mut end = 0_i128;
    let mut taken = 0_u16;
    for (index, (amount, _)) in parts.iter().enumerate() {
        let amount = i128::from(*amount).max(0);
        end += amount;
        let later = parts[index + 1..].iter().filter(|(amount, _)| *amount > 0).count();
        let later = u16::try_from(later).unwrap_or(u16::MAX);
        // Where the part ends, rounded; at least one cell for it, and for each that follows.
        let rounded = (end * i128::from(width) * 2 + total)
            .checked_div(total * 2)
            .unwrap_or(0);
        let rounded = u16::try_from(rounded).unwrap_or(width);
        let least = taken + u16::from(amount > 0);
        let to = rounded.min(width.saturating_sub(later)).max(least).min(width);
        let to = if amount > 0 { to } else { taken };
        lengths.push(to - taken);
        taken = to;
    }
    lengths
}

/// Bytes as people write them.
pub(super) fn bytes(amount: i64) -> String {
    let mut value = amount.max(0);
    let mut unit = 0;
    // With one digit behind the point where there is one in front of it.
    let mut tenths = value.saturating_mul(10);
    while value >= 1024 && unit < UNITS.len() - 1 {
        tenths = value.saturating_mul(10) / 1024;
        value /= 1024;
        unit += 1;
    }
    match (tenths % 10, value) {
        (1.., ..10) if unit > 0 => format!("{value}.{}{}", tenths % 10, UNITS[unit]),
        _ => format!("{value}{}", UNITS[unit]),
    }
}

/// Processor time from thousandths.
pub(super) fn cpu(milli: i64) -> String {
    match milli {
        0 => "0".to_owned(),
        1..1000 => format!("{milli}m"),
        1000..10_000 if milli % 1000 >= 100 => format!("{}.{}", milli / 1000, milli % 1000 / 100),
        _ => (milli / 1000).to_string(),
    }
}

/// A part of a whole, in percent.
pub(super) fn percent(part: i64, whole: i64) -> String {
    let percent = (i128::from(part) * 100).checked_div(i128::from(whole));
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts_are_short() {
        for (amount, words) in [
            (0, "0"),
            (1023, "1023"),
            (1536, "1.5Ki"),
            (12 << 30, "12Gi"),
            (1700 << 30, "1.6Ti"),
        ] {
            assert_eq!(bytes(amount), words);
        }
        for (milli, words) in [(0, "0"), (250, "250m"), (2000, "2"), (3500, "3.5"), (12_500, "12")] {
            assert_eq!(cpu(milli), words);
        }
        assert_eq!(percent(1, 3), "33%");
        assert_eq!(percent(1, 0), "-");
    }

    proptest! {
        #[test]
        fn a_bar_is_full_and_hides_nothing(width in 3..20_u16, amounts in prop::collection::vec(0..i64::MAX, 3)) {
            let parts: Vec<(i64, char)> = amounts.iter().map(|amount| (*amount, 'x')).collect();
            let lengths = lengths(width, &parts);
            let there = amounts.iter().any(|amount| *amount > 0);
            prop_assert_eq!(lengths.iter().sum::<u16>(), if there { width } else { 0 });
            for (amount, length) in amounts.iter().zip(&lengths) {
                prop_assert_eq!(*amount > 0, *length > 0);
            }
        }
    }
}
