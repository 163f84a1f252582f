//! The outcome of a simulation as a single web page: a picture of the topology with volumes, pods and refusals.
//!
//! A pure function from the outcome to a text. The page is self-contained: no external fonts, scripts or images. The
//! outcome needs no script; the only one colours nodes by why they refuse a pod, and plays scenarios with the timeline and
//! the map of `berth view`. All input is escaped by [`Escaped`].

mod changes;
mod moments;
mod pending;
mod tables;
mod timeline;
mod topology;

use super::Subject;
use super::table::{self, size};
use crate::page::{LOOK, Module, bundle};
use crate::terminal;
use berth_cluster::simulation::{Outcome, Usage};
use berth_view::Recording;
use std::fmt::{self, Write as _};

const SCRIPT: Module = Module {
    name: "report.js",
    text: include_str!("report.js"),
};

/// Maximum number of nodes drawn with visible pods and volumes. Beyond that, a node is a small square, and details are shown
/// when it is hovered: a thousand nodes fit on a screen this way.
const MAX_LARGE_NODES: usize = 60;

/// A text escaped for HTML. Quotes are escaped too, so that it can be used in an attribute.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                letter if letter.is_control() && letter != '\n' => f.write_char('\u{fffd}')?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

fn e(text: &str) -> Escaped<'_> {
    Escaped(text)
}

/// Data for the script, under a name.
fn embed(out: &mut String, id: &str, data: &impl serde::Serialize) {
    // Outcomes and rows always make JSON.
    let text = serde_json::to_string(data).unwrap_or_default();
    // Within a script element only `<` can end it. Viewing the file in a terminal is also safe.
    let text = terminal::clean_json(&text).replace('<', "\\u003c");
    let _ = writeln!(out, "<script type=\"application/json\" id=\"{id}\">{text}</script>");
}

/// `1 pod`, `2 pods`
fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// The whole page. With a recording, the moments of the scenario can be shown, too.
#[must_use]
pub fn render(outcome: &Outcome, subject: &Subject, recording: Option<&Recording>) -> String {
    let mut out = String::new();
    let verdict = table::verdict_of(&outcome.summary);
    let subject = subject.to_string();
    let title: Vec<&str> = [verdict.as_str(), subject.as_str()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Berth: {}</title>\n<style>\n{LOOK}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#topology\">To the topology</a>\n",
        e(&title.join(" · "))
    );
    header(&mut out, outcome, &verdict, &subject);
    out.push_str("<main>\n");
    if let Some(changes) = &outcome.changes {
        changes::render(&mut out, changes);
    }
    pending::render(&mut out, outcome);
    if let Some(recording) = recording {
        moments::controls(&mut out, recording);
    }
    topology::render(&mut out, outcome, recording.is_some());
    if recording.is_some() {
        out.push_str(moments::HAPPENED);
    }
    timeline::render(&mut out, &outcome.steps, recording.is_some());
    tables::render(&mut out, outcome);
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(
        out,
        "</main>\n<footer>Made by berth {version}. The same objects and the same seed give the same page.</footer>\n\
         <script type=\"module\">\n{}</script>\n</body>\n</html>\n",
        bundle(&SCRIPT)
    );
    out
}

fn header(out: &mut String, outcome: &Outcome, verdict: &str, subject: &str) {
    let summary = &outcome.summary;
    let state = if summary.not_running == 0 { "good" } else { "bad" };
    let _ = write!(
        out,
        "<header>\n<p class=\"brand\"><svg viewBox=\"0 0 32 32\" aria-hidden=\"true\"><path d=\"M16 3v20M9 9h14M5 18c1 7 6 10 11 10s10-3 11-10\"/><circle cx=\"16\" cy=\"5\" r=\"2.6\"/></svg>berth simulate</p>\n\
         <h1 class=\"{state}\">{}</h1>\n",
        e(&table::sentence(verdict))
    );
    if !subject.is_empty() {
        let _ = writeln!(out, "<p class=\"subject\">{}</p>", e(subject));
    }
    out.push_str("<dl class=\"figures\">\n");
    figure(
        out,
        "Pods placed",
        &share(summary.placed, summary.pods),
        Some(percent(summary.placed, summary.pods)),
    );
    figure(
        out,
        "Claims bound",
        &share(summary.bound_claims, summary.claims),
        Some(percent(summary.bound_claims, summary.claims)),
    );
    let ready = outcome.nodes.iter().filter(|node| node.ready).count();
    figure(
        out,
        "Nodes ready",
        &share(ready, summary.nodes),
        Some(percent(ready, summary.nodes)),
    );
    if let Some(fit) = summary.fit.fit_percent {
        let words = format!(
            "{fit}% <small class=\"line\">{} of {} in bound volumes</small>",
            e(&size(summary.fit.requested_bytes)),
            e(&size(summary.fit.taken_bytes))
        );
        figure(out, "Storage requested", &words, Some(fit));
    }
    let mut usage = Usage::default();
    outcome.nodes.iter().for_each(|node| usage.add(&node.usage));
    let cpu = (usage.cpu_requested_milli, usage.cpu_allocatable_milli);
    let memory = (usage.memory_requested_bytes, usage.memory_allocatable_bytes);
    requested(out, "CPU requested", cpu, table::cpu);
    requested(out, "Memory requested", memory, size);
    figure(out, "Virtual time", &duration(summary.virtual_seconds), None);
    out.push_str("</dl>\n</header>\n");
}

/// The requested share of a resource, if the nodes report a total.
fn requested(out: &mut String, name: &str, (part, whole): (i64, i64), words: fn(i64) -> String) {
    if whole > 0 {
        let percent = (part as f64 * 1000.0 / whole as f64).round() / 10.0;
        let words = format!(
            "{percent}% <small class=\"line\">{} of {}</small>",
            e(&words(part)),
            e(&words(whole))
        );
        figure(out, name, &words, Some(percent));
    }
}

/// One figure; `words` is already HTML.
fn figure(out: &mut String, name: &str, words: &str, percent: Option<f64>) {
    let _ = write!(out, "<div><dt>{name}</dt><dd>{words}</dd>");
    if let Some(percent) = percent {
        let _ = write!(
            out,
            "<dd class=\"bar\" aria-hidden=\"true\"><i style=\"width:{:.1}%\"></i></dd>",
            percent.clamp(0.0, 100.0)
        );
    }
    out.push_str("</div>\n");
}

fn share(part: usize, whole: usize) -> String {
    format!("{part} <small>of {whole}</small>")
}

fn percent(part: usize, whole: usize) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 * 100.0 / whole as f64,
    }
}

/// A duration in readable units.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{} <small>s</small>", (seconds * 10.0).round() / 10.0),
        60..3600 => format!("{} <small>min</small> {} <small>s</small>", whole / 60, whole % 60),
        _ => format!(
            "{} <small>h</small> {} <small>min</small>",
            whole / 3600,
            whole % 3600 / 60
        ),
    }
}

#[cfg(test)]
mod tests;
