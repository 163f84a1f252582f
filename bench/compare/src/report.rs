//! The figures as Markdown and as a picture.

use crate::measure::{Latency, Measured};
use crate::side::{Component, Side};
use crate::workload::{WORKLOADS, Workload};
use std::fmt::Write as _;

/// The setup in which the figures were taken.
pub(crate) struct Setting {
    pub(crate) machine: String,
    pub(crate) kubernetes: String,
    pub(crate) berth: String,
    pub(crate) patience_seconds: u64,
    pub(crate) rounds: u8,
}

/// All runs of one side with a workload, from the slowest to the fastest.
struct Runs<'a>(Vec<&'a Measured>);

impl<'a> Runs<'a> {
    /// `None` if the side was not measured.
    fn of(all: &'a [Measured], workload: &Workload, side: Side) -> Option<Self> {
        let mut runs: Vec<&Measured> = all
            .iter()
            .filter(|measured| measured.workload == workload.name && measured.side == side)
            .collect();
        runs.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        (!runs.is_empty()).then_some(Self(runs))
    }

    /// The median run; of an even number the slower one.
    fn middle(&self) -> &'a Measured {
        self.0[(self.0.len() - 1) / 2]
    }

    /// The slowest and the fastest, if there were several.
    fn range(&self) -> Option<(f64, f64)> {
        match self.0.as_slice() {
            [first, .., last] => Some((first.per_second, last.per_second)),
            _ => None,
        }
    }
}

/// Both sides of one workload. A side that was not measured is missing.
struct Row<'a> {
    workload: &'a Workload,
    kubernetes: Option<Runs<'a>>,
    berth: Option<Runs<'a>>,
}

impl Row<'_> {
    fn ratio(&self) -> Option<f64> {
        let (kubernetes, berth) = (self.kubernetes.as_ref()?.middle(), self.berth.as_ref()?.middle());
        (kubernetes.per_second > 0.0).then(|| berth.per_second / kubernetes.per_second)
    }

    fn size(&self) -> String {
        let workload = self.workload;
        format!("{} / {} / {}", workload.nodes, workload.volumes(), workload.count)
    }
}

fn rows(all: &[Measured]) -> Vec<Row<'_>> {
    WORKLOADS
        .iter()
        .map(|workload| Row {
            workload,
            kubernetes: Runs::of(all, workload, Side::Kubernetes),
            berth: Runs::of(all, workload, Side::Berth),
        })
        .filter(|row| row.kubernetes.is_some() || row.berth.is_some())
        .collect()
}

/// The page.
pub(crate) fn markdown(all: &[Measured], setting: &Setting, picture: &str) -> String {
    let mut page = String::from(
        "# Compared with kube-scheduler\n\n\
         <!-- Made by bench/compare/run. Edit the program, not this page. -->\n\n\
         The same nodes, volumes, claims and pods for kube-scheduler and kube-controller-manager, and for `berth scheduler` and\n\
         `berth controller`; each run on a fresh etcd, which waits for its disk, and a fresh kube-apiserver, everything on one\n\
         machine. The Kubernetes clients are not rate limited (5,000 requests per second).\n\n",
    );
    let _ = write!(
        page,
        "- Machine: {}\n- Kubernetes {}\n- {}\n- Rounds: {}, alternating which side goes first. The median run is shown, with the slowest and the fastest.\n\
         - A side is stopped after {} s a case, and then not measured again; what was placed until then counts.\n\
         - Run it: `bench/compare/run`\n\n![Pods placed per second]({picture})\n\n",
        setting.machine, setting.kubernetes, setting.berth, setting.rounds, setting.patience_seconds
    );
    let rows = rows(all);
    throughput(&mut page, &rows);
    latency(&mut page, &rows);
    cost(&mut page, &rows);
    page.push_str(
        "\nHow to read it: pods of the first table are created as fast as the API server takes them, so the times of the second\n\
         contain the wait for their turn, except where pods arrive at a given rate. ≥: it was still waiting when the side was\n\
         stopped. CPU is counted from the first creation to the last placement and divided by what was placed. Memory is the most that was resident at any time. Writes are requests\n\
         that change objects, without the creation itself, events and leases. Where a CSI driver makes the volumes, both sides\n\
         use `berth provisioner` and the same driver, so that only scheduler and controller differ.\n",
    );
    page
}

fn throughput(page: &mut String, rows: &[Row<'_>]) {
    page.push_str(
        "## Pods placed per second\n\n\
         | workload | nodes / volumes / pods | Kubernetes | Berth | ratio | goal |\n|---|---|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let ratio = row
            .ratio()
            .map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.1}×"));
        let target = row.workload.target.map_or_else(String::new, |target| {
            let met = row.ratio().is_some_and(|ratio| ratio >= target);
            format!("≥ {target}×, {}", if met { "met" } else { "missed" })
        });
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {ratio} | {target} |",
            row.workload.title,
            row.size(),
            rate(row.kubernetes.as_ref()),
            rate(row.berth.as_ref())
        );
    }
}

fn rate(runs: Option<&Runs<'_>>) -> String {
    let Some(runs) = runs else { return "–".to_owned() };
    let measured = runs.middle();
    let more = if measured.done < measured.count {
        format!(" ({} placed)", measured.done)
    } else if let Some((slowest, fastest)) = runs.range() {
        // Small figures need tenths to distinguish runs.
        let tenths = usize::from(slowest < 10.0);
        format!(" ({slowest:.tenths$}–{fastest:.tenths$})")
    } else {
        String::new()
    };
    format!("{:.1}/s{more}", measured.per_second)
}

fn latency(page: &mut String, rows: &[Row<'_>]) {
    page.push_str(
        "\n## Latency from creation to placement\n\n\
         | workload | nodes | Kubernetes p50 | p99 | Berth p50 | p99 | goal |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let pair = |runs: Option<&Runs<'_>>| {
            let both = runs.and_then(|runs| Some((runs.middle().p50?, runs.middle().p99?)));
            both.map_or_else(
                || "– | –".to_owned(),
                |(p50, p99)| format!("{} | {}", wait(p50), wait(p99)),
            )
        };
        let target = row.workload.p99_target.map_or_else(String::new, |target| {
            let p99 = row.berth.as_ref().and_then(|runs| runs.middle().p99);
            let met = p99.is_some_and(|p99| !p99.at_least && p99.seconds < target);
            format!("p99 < {target} s, {}", if met { "met" } else { "missed" })
        });
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {target} |",
            row.workload.title,
            row.workload.nodes,
            pair(row.kubernetes.as_ref()),
            pair(row.berth.as_ref())
        );
    }
}

fn wait(latency: Latency) -> String {
    let bound = if latency.at_least { "≥ " } else { "" };
    format!("{bound}{}", seconds(latency.seconds))
}

fn seconds(value: f64) -> String {
    if value < 1.0 {
        format!("{:.0} ms", value * 1000.0)
    } else {
        format!("{value:.1} s")
    }
}

fn cost(page: &mut String, rows: &[Row<'_>]) {
    page.push_str(
        "\n## Resource usage\n\n\
         | workload | nodes | side | CPU ms a pod: scheduler | controller | API server | memory: scheduler | controller | writes a pod |\n\
         |---|--:|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        for measured in [&row.kubernetes, &row.berth].into_iter().flatten().map(Runs::middle) {
            let find = |end: &str| {
                measured
                    .components
                    .iter()
                    .find(|component| component.name.ends_with(end))
            };
            let (scheduler, controller) = (
                find("scheduler"),
                find("controller").or_else(|| find("controller-manager")),
            );
            let cpu = |component: Option<&Component>| {
                component.map_or_else(|| "–".to_owned(), |one| cpu_each(one, measured.done))
            };
            let memory = |component: Option<&Component>| {
                component.map_or_else(
                    || "–".to_owned(),
                    |one| format!("{} MB", one.peak_rss_bytes / 1_000_000),
                )
            };
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {:.1} |",
                row.workload.title,
                row.workload.nodes,
                name(measured.side),
                cpu(scheduler),
                cpu(controller),
                cpu(find("apiserver")),
                memory(scheduler),
                memory(controller),
                measured.writes_each
            );
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "thousands at most")]
fn cpu_each(component: &Component, done: usize) -> String {
    format!("{:.2}", component.cpu_seconds * 1000.0 / (done.max(1) as f64))
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Kubernetes => "Kubernetes",
        Side::Berth => "Berth",
    }
}

const LABELS: f64 = 350.0;
const BARS: f64 = 470.0;
const ROW: f64 = 46.0;
const TOP: f64 = 58.0;

/// Bars on a logarithmic scale, one pair per workload.
pub(crate) fn picture(all: &[Measured]) -> String {
    let rows = rows(all);
    #[allow(clippy::cast_precision_loss, reason = "ten rows")]
    let height = TOP + ROW * rows.len() as f64 + 34.0;
    let width = LABELS + BARS + 150.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\" aria-label=\"Pods placed per second, Kubernetes and Berth\">\n\
         <style>.k{{fill:#8b95a5}}.b{{fill:#1f7a8c}}.t{{fill:#24292f}}.g{{stroke:#d0d7de}}.c{{fill:#ffffff}}\
         @media (prefers-color-scheme: dark){{.k{{fill:#768390}}.b{{fill:#4fb3c6}}.t{{fill:#e6edf3}}.g{{stroke:#444c56}}.c{{fill:#0d1117}}}}</style>\n\
         <rect class=\"c\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"t\" x=\"16\" y=\"24\" font-size=\"16\" font-weight=\"600\">Pods placed per second (logarithmic)</text>\n\
         <rect class=\"k\" x=\"{LABELS}\" y=\"14\" width=\"12\" height=\"12\"/><text class=\"t\" x=\"{}\" y=\"25\">Kubernetes</text>\n\
         <rect class=\"b\" x=\"{}\" y=\"14\" width=\"12\" height=\"12\"/><text class=\"t\" x=\"{}\" y=\"25\">Berth</text>\n",
        LABELS + 18.0,
        LABELS + 110.0,
        LABELS + 128.0,
    );
    for tick in [1.0, 10.0, 100.0, 1000.0_f64] {
        let x = LABELS + length(tick);
        let _ = writeln!(
            svg,
            "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
             <text class=\"t\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{tick:.0}</text>",
            TOP - 8.0,
            height - 26.0,
            height - 10.0
        );
    }
    let mut y = TOP;
    for row in &rows {
        let _ = writeln!(
            svg,
            "<text class=\"t\" x=\"16\" y=\"{:.1}\">{}, {} nodes</text>",
            y + 20.0,
            row.workload.title,
            row.workload.nodes
        );
        let ratio = row.ratio().map_or_else(String::new, |ratio| format!("  ({ratio:.1}×)"));
        bar(&mut svg, "k", y + 3.0, row.kubernetes.as_ref(), "");
        bar(&mut svg, "b", y + 20.0, row.berth.as_ref(), &ratio);
        y += ROW;
    }
    svg.push_str("</svg>\n");
    svg
}

/// 0.1 per second is zero, 1000 is the full width.
fn length(per_second: f64) -> f64 {
    ((per_second.max(0.1).log10() + 1.0) / 4.0).min(1.1) * BARS
}

fn bar(svg: &mut String, class: &str, y: f64, runs: Option<&Runs<'_>>, ratio: &str) {
    let Some(measured) = runs.map(Runs::middle) else { return };
    let length = length(measured.per_second);
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"15\" rx=\"2\"/>\
         <text class=\"t\" x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\">{:.1}{ratio}</text>",
        LABELS + length + 6.0,
        y + 12.0,
        measured.per_second
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(workload: &'static str, side: Side, per_second: f64, done: usize) -> Measured {
        let component = |name: &str| Component {
            name: name.to_owned(),
            cpu_seconds: 2.0,
            peak_rss_bytes: 50_000_000,
        };
        let (scheduler, controller) = match side {
            Side::Kubernetes => ("kube-scheduler", "kube-controller-manager"),
            Side::Berth => ("berth scheduler", "berth controller"),
        };
        Measured {
            workload,
            side,
            round: 1,
            nodes: 500,
            volumes: 2000,
            count: 500,
            done,
            seconds: 10.0,
            per_second,
            p50: Some(Latency {
                seconds: 0.25,
                at_least: false,
            }),
            p99: Some(Latency {
                seconds: 4.0,
                at_least: done < 500,
            }),
            writes_each: 2.0,
            components: vec![component(scheduler), component(controller), component("kube-apiserver")],
        }
    }

    /// One side timed out, so that it was measured once.
    fn both() -> [Measured; 4] {
        [
            measured("local-500", Side::Kubernetes, 1.0, 60),
            measured("local-500", Side::Berth, 90.0, 500),
            measured("local-500", Side::Berth, 120.0, 500),
            measured("local-500", Side::Berth, 70.0, 500),
        ]
    }

    #[test]
    fn the_page_states_ratios_and_whether_goals_were_met() {
        let setting = Setting {
            machine: "two cores".to_owned(),
            kubernetes: "v1".to_owned(),
            berth: "berth 0".to_owned(),
            patience_seconds: 60,
            rounds: 3,
        };
        let page = markdown(&both(), &setting, "comparison.svg");
        let row =
            "| delayed local claim | 500 / 2000 / 500 | 1.0/s (60 placed) | 90.0/s (70–120) | 90.0× | ≥ 80×, met |";
        assert!(page.contains(row), "{page}");
        assert!(
            page.contains("| delayed local claim | 500 | 250 ms | ≥ 4.0 s | 250 ms | 4.0 s |  |"),
            "{page}"
        );
        let cost = "| delayed local claim | 500 | Berth | 4.00 | 4.00 | 4.00 | 50 MB | 50 MB | 2.0 |";
        assert!(page.contains(cost), "{page}");
    }

    #[test]
    fn one_side_alone_makes_a_page_too() {
        let only = [measured("plain", Side::Berth, 300.0, 500)];
        let svg = picture(&only);
        assert_eq!(svg.matches("<rect class=\"b\"").count(), 2);
        assert_eq!(svg.matches("<rect class=\"k\"").count(), 1);
    }
}
