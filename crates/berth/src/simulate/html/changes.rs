//! What a change would change, on the page.

use super::e;
use crate::simulate::table::{change_lines, room_cells};
use berth_cluster::simulation::Difference;
use std::fmt::Write as _;

/// Maximum number of names listed before the rest is counted.
const NAMES: usize = 50;

pub(super) fn render(out: &mut String, changes: &Difference) {
    out.push_str(
        "<section id=\"changes\" aria-labelledby=\"changes-title\">\n<h2 id=\"changes-title\">What would change</h2>\n",
    );
    if changes.is_empty() {
        out.push_str("<p>Nothing.</p>\n");
    }
    for (what, names) in change_lines(changes) {
        if names.is_empty() {
            continue;
        }
        let _ = write!(
            out,
            "<details class=\"table\"><summary>{what} <small>{}</small></summary>\n<ul>",
            names.len()
        );
        for name in names.iter().take(NAMES) {
            let _ = write!(out, "<li>{}</li>", e(name));
        }
        if names.len() > NAMES {
            let _ = write!(out, "<li class=\"more\">and {} more</li>", names.len() - NAMES);
        }
        out.push_str("</ul></details>\n");
    }
    if !changes.zones.is_empty() {
        out.push_str(
            "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">Free in zone</th><th scope=\"col\">CPU</th>\
             <th scope=\"col\">Memory</th><th scope=\"col\">Volumes</th></tr></thead>\n<tbody>\n",
        );
        for zone in &changes.zones {
            let _ = write!(out, "<tr><td>{}</td>", e(&zone.zone));
            for cell in room_cells(&zone.before, &zone.after) {
                let _ = write!(out, "<td>{}</td>", e(&cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
    out.push_str("</section>\n");
}
