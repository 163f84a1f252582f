//! What somebody has chosen to see, and what the keys do. No input or output: keys come in as values, wishes go out.

use super::lines::{self, MapLine, Place, matches};
use super::text::styled;
use crate::view::answers::About;
use berth_view::{Overview, WaitingPod};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::text::Line;
use std::collections::BTreeMap;

/// What is not part of the answer: two lines above, one below, and the border.
const AROUND_ANSWER: u16 = 5;

/// Which list the arrow keys move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Waiting,
    Map,
}

/// What a key asks for beyond the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    /// What `berth explain` says about an object.
    Explain(About),
}

/// The line that is selected: what it is about, so that it stays selected when others come and go, and where it was.
#[derive(Clone, Debug)]
struct Cursor<T> {
    on: Option<T>,
    index: usize,
}

impl<T> Default for Cursor<T> {
    fn default() -> Self {
        Self { on: None, index: 0 }
    }
}

impl<T: PartialEq> Cursor<T> {
    fn at(&self, mut all: impl ExactSizeIterator<Item = T>) -> usize {
        let last = all.len().saturating_sub(1);
        let found = self.on.as_ref().and_then(|on| all.position(|one| one == *on));
        found.unwrap_or(self.index).min(last)
    }
}

/// The text of an answer for a number of columns.
pub(super) type Rendering = Box<dyn Fn(usize) -> String + Send>;

/// What is known of what was asked.
enum Known {
    Asked,
    Answer(Rendering),
    Problem(String),
}

/// An answer that is open.
pub(super) struct Opened {
    pub(super) about: About,
    known: Known,
    pub(super) lines: Vec<Line<'static>>,
    pub(super) top: usize,
}

/// What somebody has chosen to see.
#[derive(Default)]
pub(super) struct Screen {
    pub(super) pane: Pane,
    waiting: Cursor<String>,
    map: Cursor<Place>,
    /// Zones and racks that were opened or closed.
    open: BTreeMap<Place, bool>,
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) typing: bool,
    pub(super) opened: Option<Opened>,
    /// Columns and rows.
    size: (u16, u16),
    pub(super) colored: bool,
}

impl Screen {
    pub(super) fn new(size: (u16, u16), colored: bool) -> Self {
        Self {
            size,
            colored,
            ..Self::default()
        }
    }

    /// The pods that wait and match the filter, and which one is selected.
    pub(super) fn waiting<'a>(&self, overview: &'a Overview) -> (Vec<&'a WaitingPod>, usize) {
        let all = overview.waiting.iter();
        let shown: Vec<&WaitingPod> = all
            .filter(|pod| matches(&pod.name, &self.filter) || matches(&pod.reason, &self.filter))
            .collect();
        let at = self.waiting.at(shown.iter().map(|pod| pod.name.clone()));
        (shown, at)
    }

    /// The lines of the map, and which one is selected.
    pub(super) fn map(&self, overview: &Overview) -> (Vec<MapLine>, usize) {
        let lines = lines::of(overview, &self.open, &self.filter);
        let at = self.map.at(lines.iter().map(|line| line.place.clone()));
        (lines, at)
    }

    /// The window has another size.
    pub(super) fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        self.lay_out();
    }

    /// An answer has come. It may be to something that is no longer open.
    pub(super) fn answered(&mut self, about: &About, answer: Result<Rendering, String>) {
        let Some(opened) = self.opened.as_mut().filter(|opened| opened.about == *about) else {
            return;
        };
        opened.known = match answer {
            Ok(rendering) => Known::Answer(rendering),
            Err(problem) => Known::Problem(problem),
        };
        self.lay_out();
    }

    /// Does what a key stands for.
    pub(super) fn press(&mut self, key: KeyEvent, overview: &Overview) -> Option<Wish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Some(Wish::Quit);
        }
        if self.typing {
            self.type_filter(key.code);
            return None;
        }
        match key.code {
            KeyCode::Char('q') => Some(Wish::Quit),
            _ if self.opened.is_some() => self.press_in_answer(key.code),
            code => self.press_in_lists(code, overview),
        }
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
    }

    fn press_in_answer(&mut self, key: KeyCode) -> Option<Wish> {
        let height = usize::from(self.size.1.saturating_sub(AROUND_ANSWER)).max(1);
        let opened = self.opened.as_mut()?;
        let last = opened.lines.len().saturating_sub(height);
        if let KeyCode::Esc | KeyCode::Backspace | KeyCode::Left = key {
            self.opened = None;
            return None;
        }
        if key == KeyCode::Char('r') {
            opened.known = Known::Asked;
            return Some(Wish::Explain(opened.about.clone()));
        }
        let key = if key == KeyCode::Char(' ') {
            KeyCode::PageDown
        } else {
            key
        };
        opened.top = moved(opened.top.min(last), last, height, key)?;
        None
    }

    fn press_in_lists(&mut self, key: KeyCode, overview: &Overview) -> Option<Wish> {
        match key {
            KeyCode::Tab | KeyCode::BackTab => {
                self.pane = match self.pane {
                    Pane::Waiting => Pane::Map,
                    Pane::Map => Pane::Waiting,
                };
            }
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter => return self.open_selected(overview),
            _ => self.move_selection(key, overview),
        }
        None
    }

    fn move_selection(&mut self, key: KeyCode, overview: &Overview) {
        let page = usize::from(self.size.1 / 2).max(1);
        match self.pane {
            Pane::Waiting => {
                let (pods, at) = self.waiting(overview);
                if let Some(index) = moved(at, pods.len().saturating_sub(1), page, key) {
                    let on = pods.get(index).map(|pod| pod.name.clone());
                    self.waiting = Cursor { on, index };
                }
            }
            Pane::Map => {
                let (lines, at) = self.map(overview);
                if let Some(index) = moved(at, lines.len().saturating_sub(1), page, key) {
                    let on = lines.get(index).map(|line| line.place.clone());
                    self.map = Cursor { on, index };
                } else if let (Some(line), Some(open)) = (lines.get(at), opens(key)) {
                    self.set_open(line, open);
                }
            }
        }
    }

    fn set_open(&mut self, line: &MapLine, open: bool) {
        if line.open.is_some() {
            self.map.on = Some(line.place.clone());
            self.open.insert(line.place.clone(), open);
        }
    }

    fn open_selected(&mut self, overview: &Overview) -> Option<Wish> {
        let about = match self.pane {
            Pane::Waiting => {
                let (pods, at) = self.waiting(overview);
                let (namespace, name) = pods.get(at)?.name.split_once('/')?;
                About {
                    kind: "pod".to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                }
            }
            Pane::Map => {
                let (lines, at) = self.map(overview);
                let line = lines.get(at)?;
                if let Some(open) = line.open {
                    self.set_open(line, !open);
                }
                let Place::Node(name) = &line.place else { return None };
                About {
                    kind: "node".to_owned(),
                    namespace: String::new(),
                    name: name.clone(),
                }
            }
        };
        self.opened = Some(Opened {
            about: about.clone(),
            known: Known::Asked,
            lines: Vec::new(),
            top: 0,
        });
        self.lay_out();
        Some(Wish::Explain(about))
    }

    /// Puts the answer into lines as wide as the window.
    fn lay_out(&mut self) {
        let width = usize::from(self.size.0.saturating_sub(2));
        let Some(opened) = &mut self.opened else { return };
        let (text, colored) = match &opened.known {
            Known::Asked => ("Working it out...".to_owned(), false),
            Known::Problem(problem) => (crate::terminal::wrapped(problem, width).join("\n"), false),
            Known::Answer(render) => (render(width), self.colored),
        };
        opened.lines = styled(&text, colored);
    }
}

/// Where a key leads in a list; nothing if it is no key to move with.
fn moved(at: usize, last: usize, page: usize, key: KeyCode) -> Option<usize> {
    let to = match key {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => at + 1,
        KeyCode::PageUp => at.saturating_sub(page),
        KeyCode::PageDown => at + page,
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => last,
        _ => return None,
    };
    Some(to.min(last))
}

/// Whether a key opens or closes a zone or rack.
fn opens(key: KeyCode) -> Option<bool> {
    match key {
        KeyCode::Right | KeyCode::Char('l') => Some(true),
        KeyCode::Left | KeyCode::Char('h') => Some(false),
        _ => None,
    }
}
