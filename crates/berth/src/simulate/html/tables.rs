//! Tables of all objects below the picture.

use super::e;
use crate::simulate::table::size;
use berth_cluster::simulation::Outcome;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum number of rows in a table; the JSON output has them all. A thousand rows take some 150 KB.
const ROWS: usize = 1000;

pub(super) fn render(out: &mut String, outcome: &Outcome) {
    out.push_str(
        "<section id=\"tables\" aria-labelledby=\"tables-title\">\n<h2 id=\"tables-title\">Everything</h2>\n\
        <label class=\"filter\" hidden>Show only rows with <input type=\"search\" id=\"filter\"></label>\n",
    );
    let pods = outcome.pods.iter();
    let pods = pods.map(|pod| {
        [
            pod.pod.clone(),
            pod.node.clone(),
            pod.phase.clone(),
            pod.message.clone(),
        ]
    });
    table(out, "Pods", ["Pod", "Node", "Phase", "Message"], pods.collect());
    let capacities: BTreeMap<&str, i64> = outcome
        .volumes
        .iter()
        .map(|volume| (&*volume.volume, volume.capacity_bytes))
        .collect();
    let claims = outcome.claims.iter().map(|claim| {
        let volume = match capacities.get(&*claim.volume) {
            Some(capacity) => format!("{} ({})", claim.volume, size(*capacity)),
            None => claim.volume.clone(),
        };
        [
            claim.claim.clone(),
            size(claim.requested_bytes),
            volume,
            claim.phase.clone(),
        ]
    });
    table(out, "Claims", ["Claim", "Request", "Volume", "Phase"], claims.collect());
    out.push_str("</section>\n");
}

fn table(out: &mut String, name: &str, heads: [&str; 4], rows: Vec<[String; 4]>) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<details class=\"table\"><summary>{name} <small>{}</small></summary>\n<div class=\"scroll\"><table>\n<thead><tr>",
        rows.len()
    );
    for head in heads {
        let _ = write!(out, "<th scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.iter().take(ROWS) {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", e(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    if rows.len() > ROWS {
        let _ = writeln!(
            out,
            "<p class=\"more\">and {} more; -o json has them all</p>",
            rows.len() - ROWS
        );
    }
    out.push_str("</details>\n");
}
