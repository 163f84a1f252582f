//! The scenario from moment to moment: where the script puts the timeline, and the data that it shows. Without a script there is
//! nothing to see of it.

use super::embed;
use berth_view::Recording;

/// The slider, which stays in sight while the map is scrolled.
pub(super) fn controls(out: &mut String, recording: &Recording) {
    out.push_str("<div class=\"card\" id=\"timeline\" role=\"group\" aria-label=\"Time to show\" hidden></div>\n");
    embed(out, "recording", recording);
}

/// Where the script draws a moment, beside the end.
pub(super) const MAP: &str = "<div id=\"at-a-moment\" hidden>\n\
    <div class=\"zones\" id=\"zones\"></div>\n\
    <div id=\"shared\" class=\"shared\" hidden><h3>Volumes and pools outside a single zone</h3><ul class=\"vols\"></ul></div>\n\
    <div class=\"pair\"><div id=\"waiting\"><h3>Pending pods</h3><div id=\"waiting-groups\"></div></div>\n\
    <div id=\"moving\" role=\"group\" aria-labelledby=\"flow-title\"><h3 id=\"flow-title\">Being bound or provisioned</h3>\
    <div class=\"card\"><p class=\"sub stations\" aria-hidden=\"true\"><span>claim</span><span>volume</span><span>node</span></p>\
    <ol id=\"flow\" tabindex=\"0\" aria-labelledby=\"flow-title\"></ol><p id=\"flow-more\" class=\"more\"></p></div></div></div>\n</div>\n";

/// What happened at each moment, and plots of it.
pub(super) const HAPPENED: &str = "<section id=\"time\" aria-labelledby=\"time-title\" hidden>\n<h2 id=\"time-title\">Moment by moment</h2>\n\
    <div class=\"card\" id=\"happened\"></div>\n</section>\n";
