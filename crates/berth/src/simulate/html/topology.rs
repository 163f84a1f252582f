//! The picture: zones, racks, nodes, and on each node its pods and volumes with their utilization.

use super::{MAX_LARGE_NODES, count, e, moments, percent};
use crate::simulate::table::{cpu, size};
use berth_cluster::simulation::{ClaimOutcome, Fit, NodeOutcome, Outcome, PodOutcome, Usage, VolumeOutcome};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum number of pods or volumes of a node drawn, and listed when it is hovered.
const SHOWN: usize = 12;
/// Maximum number of pods with their name on the node.
const CHIPS: usize = 6;
/// Maximum number of volumes of a zone drawn.
const SHOWN_IN_ZONE: usize = 48;
/// Maximum number of refusals shown for a node.
const REFUSALS: usize = 4;

/// The nodes of a zone by rack, each with its number.
type Racks<'a> = BTreeMap<&'a str, Vec<(usize, &'a NodeOutcome)>>;

/// A volume with its requested size.
struct Filled<'a> {
    volume: &'a VolumeOutcome,
    claim: Option<&'a ClaimOutcome>,
}

impl Filled<'_> {
    fn percent(&self) -> f64 {
        let asked = self.claim.map_or(0, |claim| claim.requested_bytes);
        match self.volume.capacity_bytes {
            0 => 0.0,
            capacity => (asked as f64 * 100.0 / capacity as f64).clamp(0.0, 100.0),
        }
    }

    fn words(&self) -> String {
        let capacity = size(self.volume.capacity_bytes);
        match self.claim {
            Some(claim) => format!(
                "{} requested of {capacity}, {}",
                size(claim.requested_bytes),
                claim.claim
            ),
            None => format!("{capacity}, {}", self.volume.phase.to_lowercase()),
        }
    }

    /// Its label: a generated name says less than that of its claim.
    fn label(&self) -> &str {
        match self.claim {
            Some(claim) if self.volume.volume.starts_with("pvc-") => claim
                .claim
                .split_once('/')
                .map_or(claim.claim.as_str(), |(_, name)| name),
            _ => &self.volume.volume,
        }
    }

    fn bar(&self, out: &mut String) {
        let class = if self.claim.is_some() { "vol" } else { "vol free" };
        let _ = write!(
            out,
            "<li class=\"{class}\" title=\"{}: {}\"><span>{}</span><i><u style=\"width:{:.0}%\"></u></i><em>{}</em></li>",
            e(&self.volume.volume),
            e(&self.words()),
            e(self.label()),
            self.percent(),
            e(&match self.claim {
                Some(claim) => format!("{}/{}", size(claim.requested_bytes), size(self.volume.capacity_bytes)),
                None => size(self.volume.capacity_bytes),
            })
        );
    }
}

/// The objects by the place where they are drawn.
#[derive(Default)]
struct Places<'a> {
    pods: BTreeMap<&'a str, Vec<&'a PodOutcome>>,
    of_node: BTreeMap<&'a str, Vec<Filled<'a>>>,
    of_rack: BTreeMap<(String, String), Vec<Filled<'a>>>,
    of_zone: BTreeMap<&'a str, Vec<Filled<'a>>>,
    shared: Vec<Filled<'a>>,
    refusals: BTreeMap<&'a str, Vec<String>>,
}

impl<'a> Places<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        let mut places = Self::default();
        for pod in &outcome.pods {
            places.pods.entry(&pod.node).or_default().push(pod);
        }
        let claims: BTreeMap<&str, &ClaimOutcome> = outcome
            .claims
            .iter()
            .filter(|claim| claim.phase == "Bound")
            .map(|claim| (&*claim.volume, claim))
            .collect();
        let known: BTreeMap<&str, ()> = outcome.nodes.iter().map(|node| (&*node.node, ())).collect();
        for volume in &outcome.volumes {
            let filled = Filled {
                volume,
                claim: claims.get(&*volume.volume).copied(),
            };
            let place = &volume.place;
            let only = |set: &'a std::collections::BTreeSet<String>| (set.len() == 1).then(|| set.first()).flatten();
            match (only(&place.nodes), only(&place.racks), only(&place.zones)) {
                (Some(node), _, _) if known.contains_key(&**node) => {
                    places.of_node.entry(node).or_default().push(filled);
                }
                (None, Some(rack), Some(zone)) => {
                    places
                        .of_rack
                        .entry((zone.clone(), rack.clone()))
                        .or_default()
                        .push(filled);
                }
                (None, _, Some(zone)) => places.of_zone.entry(zone).or_default().push(filled),
                _ => places.shared.push(filled),
            }
        }
        for group in &outcome.pending {
            let name = group.pods.first().map_or("", String::as_str);
            for refused in &group.refused {
                for node in &refused.nodes {
                    let told = places.refusals.entry(node).or_default();
                    if told.len() < REFUSALS {
                        told.push(format!("{name}: {}", refused.reason));
                    }
                }
            }
        }
        places
    }
}

pub(super) fn render(out: &mut String, outcome: &Outcome, is_played: bool) {
    let places = Places::of(outcome);
    let form = if outcome.nodes.len() > MAX_LARGE_NODES {
        "small"
    } else {
        "large"
    };
    let volume = match form {
        "small" => "node, filled by the most requested of CPU, memory and local volumes",
        _ => "volume, filled by what its claim requests",
    };
    let _ = write!(
        out,
        "<section id=\"topology\" aria-labelledby=\"topology-title\" class=\"{form}\">\n<h2 id=\"topology-title\">Topology</h2>\n\
         <p class=\"legend\"><span class=\"only-large\"><i class=\"key pod\"></i>pod</span> <span><i class=\"key vol\"><u></u></i>{volume}</span> \
         <span class=\"only-large\"><i class=\"key free\"></i>free volume</span> <span><i class=\"key cordoned\"></i>cordoned</span> \
         <span><i class=\"key notready\"></i>not ready</span></p>\n<p id=\"refusal-legend\" class=\"legend\" aria-live=\"polite\" hidden></p>\n"
    );
    if is_played {
        out.push_str(moments::MAP);
    }
    out.push_str("<div id=\"at-the-end\">\n<div class=\"zones\">\n");
    let mut zones: BTreeMap<&str, Racks<'_>> = BTreeMap::new();
    for (index, node) in outcome.nodes.iter().enumerate() {
        zones
            .entry(&node.zone)
            .or_default()
            .entry(&node.rack)
            .or_default()
            .push((index, node));
    }
    // A volume in a zone without nodes still exists.
    for zone in places.of_zone.keys() {
        zones.entry(zone).or_default();
    }
    for (zone, racks) in &zones {
        self::zone(out, outcome, &places, zone, racks);
    }
    out.push_str("</div>\n");
    if !places.shared.is_empty() {
        out.push_str("<div class=\"shared\">\n<h3>Volumes outside a single zone</h3>\n");
        volumes(out, &places.shared, SHOWN_IN_ZONE);
        out.push_str("</div>\n");
    }
    out.push_str("</div>\n</section>\n");
}

fn zone(out: &mut String, outcome: &Outcome, places: &Places<'_>, name: &str, racks: &Racks<'_>) {
    let found = outcome.zones.iter().find(|zone| zone.zone == name);
    let title = if name.is_empty() { "Without a zone" } else { name };
    let _ = write!(out, "<section class=\"zone\">\n<h3>{}</h3>\n", e(title));
    if let Some(zone) = found {
        let _ = writeln!(
            out,
            "<p class=\"sub\">{} · {} · {}</p>",
            count(zone.nodes, "node"),
            count(zone.pods, "pod"),
            e(&fit_words(&zone.fit, zone.usage.free_volume_bytes, "free volumes"))
        );
    }
    out.push_str("<div class=\"racks\">\n");
    for (rack, nodes) in racks {
        out.push_str("<div class=\"rack\">\n");
        if !rack.is_empty() {
            let _ = writeln!(out, "<h4>{}</h4>", e(rack));
        }
        out.push_str("<ul class=\"nodes\">\n");
        for (index, node) in nodes {
            self::node(out, places, *index, node);
        }
        out.push_str("</ul>\n");
        if let Some(found) = places.of_rack.get(&(name.to_owned(), (*rack).to_owned())) {
            volumes(out, found, SHOWN_IN_ZONE);
        }
        out.push_str("</div>\n");
    }
    out.push_str("</div>\n");
    if let Some(found) = places.of_zone.get(name) {
        out.push_str("<h4>Volumes of the zone</h4>\n");
        volumes(out, found, SHOWN_IN_ZONE);
    }
    out.push_str("</section>\n");
}

fn volumes(out: &mut String, found: &[Filled<'_>], shown: usize) {
    // Many volumes are collapsed: the picture is then about nodes.
    let is_folded = found.len() > SHOWN;
    if is_folded {
        let (mut bound, mut others) = (Fit::default(), 0_i64);
        for filled in found {
            match filled.claim {
                Some(claim) => bound.add(claim.requested_bytes, filled.volume.capacity_bytes),
                None => others = others.saturating_add(filled.volume.capacity_bytes),
            }
        }
        let _ = write!(
            out,
            "<details><summary>{}, {}</summary>",
            count(found.len(), "volume"),
            e(&fit_words(&bound, others, "volumes without a claim"))
        );
    }
    out.push_str("<ul class=\"vols\">");
    for filled in found.iter().take(shown) {
        filled.bar(out);
    }
    if found.len() > shown {
        let _ = write!(out, "<li class=\"more\">and {} more</li>", found.len() - shown);
    }
    out.push_str("</ul>\n");
    if is_folded {
        out.push_str("</details>\n");
    }
}

fn node(out: &mut String, places: &Places<'_>, index: usize, node: &NodeOutcome) {
    let state = match (node.ready, node.schedulable) {
        (true, true) => "ready",
        (true, false) => "cordoned",
        (false, _) => "notready",
    };
    let pods = places.pods.get(&*node.node).map_or(&[][..], Vec::as_slice);
    let own = places.of_node.get(&*node.node).map_or(&[][..], Vec::as_slice);
    let used = own.iter().filter(|filled| filled.claim.is_some()).count();
    let mut words = format!(
        "{}{} · {}",
        count(node.pods, "pod"),
        resources(&node.usage),
        fit_words(&node.fit, node.usage.free_volume_bytes, "free volumes")
    );
    if !own.is_empty() {
        let _ = write!(words, " · {used} of {} local volumes bound", own.len());
    }
    let _ = write!(
        out,
        "<li class=\"node {state}\" tabindex=\"0\" data-node=\"{index}\" style=\"--fill:{:.0}%\">\
         <span class=\"head\"><b>{}</b><small>{}</small></span>",
        node_fill(node, own, used),
        e(&node.node),
        e(match state {
            "ready" => "",
            "cordoned" => "cordoned",
            _ => "not ready",
        })
    );
    use_of(out, &node.usage);
    out.push_str("<span class=\"pods\" aria-hidden=\"true\">");
    for pod in pods.iter().take(CHIPS) {
        let class = if pod.message.is_empty() { "pod" } else { "pod stuck" };
        let name = pod.pod.split_once('/').map_or(pod.pod.as_str(), |(_, name)| name);
        let _ = write!(out, "<i class=\"{class}\">{}</i>", e(name));
    }
    if pods.len() > CHIPS {
        let _ = write!(out, "<small>+{}</small>", pods.len() - CHIPS);
    }
    out.push_str("</span>");
    if !own.is_empty() {
        volumes(out, own, SHOWN);
    }
    inspector(out, places, node, pods, &words);
    out.push_str("</li>\n");
}

/// Bars with what is requested of CPU and memory, if the node reports a total.
fn use_of(out: &mut String, usage: &Usage) {
    out.push_str("<span class=\"use\" aria-hidden=\"true\">");
    let mut bar = |name: &str, part: i64, whole: i64, words: fn(i64) -> String| {
        if whole > 0 {
            let over = if part > whole { " class=\"over\"" } else { "" };
            let _ = write!(
                out,
                "<span>{name}</span><i><u{over} style=\"width:{:.1}%\"></u></i><em>{}/{}</em>",
                portion(part, whole).clamp(0.0, 100.0),
                e(&words(part)),
                e(&words(whole))
            );
        }
    };
    bar("CPU", usage.cpu_requested_milli, usage.cpu_allocatable_milli, cpu);
    bar(
        "Mem",
        usage.memory_requested_bytes,
        usage.memory_allocatable_bytes,
        size,
    );
    out.push_str("</span>");
}

/// A part in percent of the whole.
fn portion(part: i64, whole: i64) -> f64 {
    match whole {
        ..=0 => 0.0,
        whole => part as f64 * 100.0 / whole as f64,
    }
}

/// The coloured share of a node's square: the most requested of CPU, memory and local volumes.
fn node_fill(node: &NodeOutcome, own: &[Filled<'_>], used: usize) -> f64 {
    let usage = &node.usage;
    let cpu = portion(usage.cpu_requested_milli, usage.cpu_allocatable_milli);
    let memory = portion(usage.memory_requested_bytes, usage.memory_allocatable_bytes);
    cpu.max(memory).max(percent(used, own.len())).clamp(0.0, 100.0)
}

/// The requested resources of the node, if it reports a total.
fn resources(usage: &Usage) -> String {
    let mut words = String::new();
    if usage.cpu_allocatable_milli > 0 {
        let (requested, whole) = (cpu(usage.cpu_requested_milli), cpu(usage.cpu_allocatable_milli));
        let _ = write!(words, " · CPU {requested} of {whole}");
    }
    if usage.memory_allocatable_bytes > 0 {
        let (requested, whole) = (size(usage.memory_requested_bytes), size(usage.memory_allocatable_bytes));
        let _ = write!(words, " · memory {requested} of {whole}");
    }
    words
}

/// What claims request of their volumes. Other volumes do not count for the percentage: their size follows, with what they are.
fn fit_words(fit: &Fit, others_bytes: i64, others: &str) -> String {
    let bound = fit.fit_percent.map(|percent| {
        let (requested, taken) = (size(fit.requested_bytes), size(fit.taken_bytes));
        format!("claims request {requested} of {taken} in bound volumes ({percent}%)")
    });
    let others = (others_bytes > 0).then(|| format!("{} in {others}", size(others_bytes)));
    let words: Vec<String> = bound.into_iter().chain(others).collect();
    match words.as_slice() {
        [] => "no volumes".to_owned(),
        words => words.join(", "),
    }
}

/// What is shown when a node is hovered or focused.
fn inspector(out: &mut String, places: &Places<'_>, node: &NodeOutcome, pods: &[&PodOutcome], words: &str) {
    let place = [node.zone.as_str(), node.rack.as_str()];
    let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
    let _ = write!(
        out,
        "<div class=\"tip\" role=\"note\"><b>{}</b> <span class=\"names\">{}</span><p>{}</p>",
        e(&node.node),
        e(&place.join(" · ")),
        e(words)
    );
    if !pods.is_empty() {
        out.push_str("<ul>");
        for pod in pods.iter().take(SHOWN) {
            let _ = match pod.message.as_str() {
                "" => write!(out, "<li>{}</li>", e(&pod.pod)),
                message => write!(out, "<li class=\"warn\">{}: {}</li>", e(&pod.pod), e(message)),
            };
        }
        if pods.len() > SHOWN {
            let _ = write!(out, "<li class=\"more\">and {} more</li>", pods.len() - SHOWN);
        }
        out.push_str("</ul>");
    }
    if let Some(refusals) = places.refusals.get(&*node.node) {
        out.push_str("<p class=\"refuses\">Refuses</p><ul>");
        for refusal in refusals {
            let _ = write!(out, "<li>{}</li>", e(refusal));
        }
        out.push_str("</ul>");
    }
    out.push_str("</div>");
}
