//! Draws the screen: what is known of the cluster and what somebody chose to see in, cells out.

use super::cells::{Cells, Paint, bytes, cpu, percent};
use super::lines::{MapLine, Place};
use super::state::{Opened, Pane, Screen};
use crate::terminal::{one_line, wrapped};
use crate::view::watching::Failing;
use berth_kinds::age::human_duration;
use berth_view::{Amount, Overview, Storage, WaitingPod};
use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, BorderType, Paragraph};

/// Lines above the panes.
const HEAD: u16 = 2;
/// Lines below the panes.
const FOOT: u16 = 1;
/// The lines for the whole reason of the selected pod.
const REASON: u16 = 2;
/// From this width of a pane on, amounts are shown beside bars, and not only percentages.
const WIDE: u16 = 76;

/// What is known of the cluster.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) server: String,
    pub(super) overview: Overview,
    /// Whether all kinds were listed, as far as that is possible.
    pub(super) complete: bool,
    pub(super) failing: Vec<Failing>,
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, shown: &Shown, screen: &Screen, now: Timestamp) {
    let area = frame.area();
    let mut cells = Cells::new(
        frame.buffer_mut(),
        Paint {
            colored: screen.colored,
        },
    );
    let body = Rect {
        y: area.y + HEAD.min(area.height),
        height: area.height.saturating_sub(HEAD + FOOT),
        ..area
    };
    head(&mut cells, area, shown);
    foot(&mut cells, area, screen);
    if let Some(opened) = &screen.opened {
        answer(frame, body, opened, screen);
        return;
    }
    let (pods, at) = screen.waiting(&shown.overview);
    let wanted = match pods.len() {
        0 => 3,
        some => u16::try_from(some).unwrap_or(u16::MAX).saturating_add(3 + REASON),
    };
    let height = wanted.min(body.height / 2);
    let upper = Rect { height, ..body };
    let lower = Rect {
        y: body.y + height,
        height: body.height - height,
        ..body
    };
    let title = match screen.filter.as_str() {
        "" => format!("Pending pods ({})", pods.len()),
        filter => format!("Pending pods ({} with {:?})", pods.len(), one_line(filter)),
    };
    let inner = pane(frame, upper, &title, screen, Pane::Waiting);
    let mut cells = Cells::new(
        frame.buffer_mut(),
        Paint {
            colored: screen.colored,
        },
    );
    waiting(&mut cells, inner, &pods, at, screen.pane == Pane::Waiting, now);
    let (lines, at) = screen.map(&shown.overview);
    let total = &shown.overview.total;
    let title = format!(
        "Zones and nodes ({}, {})",
        counted(shown.overview.zones.len(), "zone"),
        counted(total.nodes, "node")
    );
    let inner = pane(frame, lower, &title, screen, Pane::Map);
    let mut cells = Cells::new(
        frame.buffer_mut(),
        Paint {
            colored: screen.colored,
        },
    );
    map(&mut cells, inner, &lines, at, screen.pane == Pane::Map);
}

/// A border with a title, thick where the keys go. Gives what is inside.
fn pane(frame: &mut Frame<'_>, area: Rect, title: &str, screen: &Screen, pane: Pane) -> Rect {
    let paint = Paint {
        colored: screen.colored,
    };
    let (border, style) = match screen.pane == pane {
        true => (BorderType::Thick, paint.strong()),
        false => (BorderType::Plain, paint.plain()),
    };
    let block = Block::bordered()
        .border_type(border)
        .title(format!(" {title} "))
        .title_style(style);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

fn head(cells: &mut Cells<'_>, area: Rect, shown: &Shown) {
    let paint = cells.paint;
    let (state, style) = match shown.failing.first() {
        None if shown.complete => ("Live".to_owned(), paint.good()),
        None => ("Reading the cluster...".to_owned(), paint.plain()),
        Some(failing) => {
            let why = if failing.denied {
                "not allowed"
            } else {
                failing.problem.as_str()
            };
            let others = match shown.failing.len() - 1 {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            (format!("Cannot read {}{others}: {why}", failing.kind), paint.bad())
        }
    };
    cells.text((area.x, area.y), 10, "berth view", paint.strong());
    let state = one_line(&state);
    let server = one_line(&shown.server);
    let room = area.width.saturating_sub(12);
    let server_width = Cells::width(&server).min(room / 2);
    cells.text((area.x + 12, area.y), server_width, &server, paint.plain());
    let rest = room.saturating_sub(server_width + 2);
    let x = area.right().saturating_sub(Cells::width(&state).min(rest));
    cells.text((x, area.y), rest, &state, style);

    let overview = &shown.overview;
    let (all, bound) = overview.claims;
    let (verdict, style) = match (overview.waiting.len(), overview.not_running) {
        (0, 0) => ("No pods pending".to_owned(), paint.good()),
        (0, 1) => ("1 pod does not run on its node".to_owned(), paint.bad()),
        (0, many) => (format!("{many} pods do not run on their nodes"), paint.bad()),
        (1, _) => ("1 pod pending".to_owned(), paint.bad()),
        (many, _) => (format!("{many} pods pending"), paint.bad()),
    };
    let verdict_width = Cells::width(&verdict);
    cells.text((area.x, area.y + 1), area.width, &verdict, style);
    let total = &overview.total;
    let figures = |is_bound: &str, is_ready: &str| {
        format!(
            "Pods {}  Claims {bound}/{all}{is_bound}  Nodes {}/{}{is_ready}  Free volumes {}",
            overview.placed, total.ready, total.nodes, total.volumes.free_volumes
        )
    };
    let x = area.x.saturating_add(verdict_width + 3);
    let room = area.right().saturating_sub(x);
    let whole = figures(" bound", " ready");
    let figures = match Cells::width(&whole) <= room {
        true => whole,
        false => figures("", ""),
    };
    cells.text((x, area.y + 1), room, &figures, paint.plain());
}

/// A reason without the words that all of them begin with. It stands whole below the list.
fn gist(reason: &str) -> &str {
    reason
        .split_once(" nodes are available: ")
        .map_or(reason, |(_, gist)| gist)
}

fn foot(cells: &mut Cells<'_>, area: Rect, screen: &Screen) {
    let paint = cells.paint;
    let y = area.bottom().saturating_sub(1);
    let keys = match (&screen.opened, screen.typing, screen.pane) {
        (Some(_), _, _) => "↑↓ scroll  r ask again  Esc back  q quit",
        (None, true, _) => {
            let filter = format!("/{}", one_line(&screen.filter));
            cells.text((area.x, y), area.width, &filter, paint.strong());
            let x = area.x.saturating_add(Cells::width(&filter) + 3);
            let help = "Enter keeps it  Esc clears it";
            cells.text((x, y), area.right().saturating_sub(x), help, paint.plain());
            return;
        }
        (None, false, Pane::Waiting) => "↑↓ select  Enter why  Tab zones  / filter  q quit",
        (None, false, Pane::Map) => "↑↓ select  Enter open  Tab waiting  / filter  q quit",
    };
    cells.text((area.x, y), area.width, keys, paint.reversed());
}

fn answer(frame: &mut Frame<'_>, area: Rect, opened: &Opened, screen: &Screen) {
    let about = &opened.about;
    let title = match about.namespace.as_str() {
        "" => format!(" {} {} ", about.kind, one_line(&about.name)),
        namespace => format!(" Why: {}/{} ", one_line(namespace), one_line(&about.name)),
    };
    let block = Block::bordered().border_type(BorderType::Thick).title(title);
    let block = block.title_style(
        Paint {
            colored: screen.colored,
        }
        .strong(),
    );
    let inner = block.inner(area);
    let height = usize::from(inner.height);
    let top = opened.top.min(opened.lines.len().saturating_sub(height));
    let lines: Vec<_> = opened.lines.iter().skip(top).take(height).cloned().collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn waiting(cells: &mut Cells<'_>, area: Rect, pods: &[&WaitingPod], at: usize, focused: bool, now: Timestamp) {
    let paint = cells.paint;
    let Some(selected) = pods.get(at) else {
        cells.text((area.x, area.y), area.width, "None.", paint.plain());
        return;
    };
    let name_width = (area.width * 2 / 5).min(pods.iter().map(|pod| Cells::width(&pod.name)).max().unwrap_or(0).max(8));
    let age_x = area.x + name_width + 1;
    let why_x = age_x + 7;
    let why_width = area.right().saturating_sub(why_x);
    for (x, width, title) in [
        (area.x, name_width, "POD"),
        (age_x, 6, "WAITS"),
        (why_x, why_width, "WHY"),
    ] {
        cells.text((x, area.y), width, title, paint.dim());
    }
    let list = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1 + REASON),
        ..area
    };
    for (y, (index, pod)) in (list.y..list.bottom()).zip(window(pods, at, list.height)) {
        let style = if index == at && focused {
            paint.reversed()
        } else {
            paint.plain()
        };
        cells.fill(Rect { y, height: 1, ..list }, style);
        cells.text((area.x, y), name_width, &one_line(&pod.name), style);
        let age = pod
            .created
            .parse::<Timestamp>()
            .map(|created| human_duration((now - created).get_seconds()));
        cells.text((age_x, y), 6, &age.unwrap_or_default(), style);
        cells.text((why_x, y), why_width, &one_line(gist(&pod.reason)), style);
    }
    let reason = wrapped(&selected.reason, usize::from(area.width));
    for (y, line) in (list.bottom()..area.bottom()).zip(&reason) {
        cells.text((area.x, y), area.width, line, paint.dim());
    }
}

fn map(cells: &mut Cells<'_>, area: Rect, lines: &[MapLine], at: usize, focused: bool) {
    let paint = cells.paint;
    let wide = area.width >= WIDE;
    // A bar and what stands beside it.
    let (bar, beside) = match area.width {
        100.. => (10, 12),
        WIDE.. => (4, 11),
        40.. => (4, 4),
        _ => (0, 4),
    };
    let measure = bar + u16::from(bar > 0) + beside + 1;
    let pods_width = if area.width >= 40 { 6 } else { 0 };
    let name_width = area.width.saturating_sub(3 * measure + pods_width);
    let pods_x = area.x + name_width;
    let measure_x = |index: u16| pods_x + pods_width + index * measure;
    cells.text((area.x, area.y), name_width, "NAME", paint.dim());
    cells.text((pods_x, area.y), pods_width, " PODS", paint.dim());
    for (index, title) in (0..).zip(["CPU", "MEMORY", "VOLUMES"]) {
        cells.text((measure_x(index), area.y), measure - 1, title, paint.dim());
    }
    let list = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    };
    for (y, (index, line)) in (list.y..list.bottom()).zip(window(lines, at, list.height)) {
        let sum = &line.sum;
        let style = match () {
            () if index == at && focused => paint.reversed(),
            () if sum.nodes > 0 && sum.ready < sum.nodes => paint.bad(),
            () => paint.plain(),
        };
        cells.fill(Rect { y, height: 1, ..list }, style);
        let (name, state) = (name(line), state(line));
        let room = name_width.saturating_sub(1);
        let own = Cells::width(&name).min(room.saturating_sub(Cells::width(&state)));
        cells.text((area.x, y), own, &name, style);
        cells.text((area.x + own, y), room - own, &state, style);
        if line.place != Place::Shared {
            cells.text((pods_x, y), pods_width, &format!("{:>5}", sum.pods), style);
            for (index, amount, words) in [(0, sum.cpu, of(sum.cpu, cpu)), (1, sum.memory, of(sum.memory, bytes))] {
                let parts = [
                    (amount.requested, '█'),
                    (amount.allocatable.saturating_sub(amount.requested), '░'),
                ];
                cells.bar((measure_x(index), y), bar, &parts, style);
                let words = if wide {
                    words
                } else {
                    percent(amount.requested, amount.allocatable)
                };
                let x = measure_x(index) + bar + u16::from(bar > 0);
                cells.text((x, y), beside, &words, style);
            }
        }
        volumes(cells, (measure_x(2), y), (bar, beside), &sum.volumes, wide, style);
    }
}

/// The volumes of a line: what claims ask for, what else their volumes hold, and what is free.
fn volumes(
    cells: &mut Cells<'_>,
    (x, y): (u16, u16),
    (bar, beside): (u16, u16),
    volumes: &Storage,
    wide: bool,
    style: ratatui::style::Style,
) {
    if volumes.total() == 0 {
        cells.text((x, y), beside, "-", style);
        return;
    }
    let asked = volumes.asked.min(volumes.used);
    let parts = [(asked, '█'), (volumes.used - asked, '▒'), (volumes.free, '░')];
    cells.bar((x, y), bar, &parts, style);
    let words = match wide {
        true => format!("{} free", bytes(volumes.free)),
        false => percent(volumes.used, volumes.total()),
    };
    cells.text((x + bar + u16::from(bar > 0), y), beside, &words, style);
}

fn name(line: &MapLine) -> String {
    let sign = match line.open {
        Some(true) => "▾ ",
        Some(false) => "▸ ",
        None => "",
    };
    let own = match &line.place {
        Place::Zone(zone) if zone.is_empty() => "no zone".to_owned(),
        Place::Rack(_, rack) if rack.is_empty() => "no rack".to_owned(),
        Place::Zone(name) | Place::Rack(_, name) | Place::Node(name) => one_line(name),
        Place::Shared => "shared volumes".to_owned(),
    };
    format!("{:indent$}{sign}{own}", "", indent = line.depth * 2)
}

/// What is to be known of a line besides its name. It is there even if there is no room for all of the name.
fn state(line: &MapLine) -> String {
    let sum = &line.sum;
    match (&line.place, sum.ready < sum.nodes) {
        (Place::Node(_), true) => " not ready".to_owned(),
        (Place::Node(_), false) if sum.cordoned > 0 => " cordoned".to_owned(),
        (Place::Node(_) | Place::Shared, _) => String::new(),
        (Place::Zone(_) | Place::Rack(..), true) => format!(" {}/{} ready", sum.ready, sum.nodes),
        (Place::Zone(_) | Place::Rack(..), false) => match line.open {
            Some(false) => format!(" {}", counted(sum.nodes, "node")),
            _ => String::new(),
        },
    }
}

/// What is requested of what there is.
fn of(amount: Amount, words: fn(i64) -> String) -> String {
    format!("{}/{}", words(amount.requested), words(amount.allocatable))
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// So many of a list that the selected one is in the middle, as far as the list goes, with their numbers.
fn window<T>(all: &[T], at: usize, height: u16) -> impl Iterator<Item = (usize, &T)> {
    let height = usize::from(height);
    let first = at.saturating_sub(height / 2).min(all.len().saturating_sub(height));
    all.iter().enumerate().skip(first).take(height)
}
