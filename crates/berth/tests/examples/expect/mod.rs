//! The expected outcome of an example, in comments that a test can check.
//!
//! A manifest starts with a comment. Its lines of the form `# expect: ...` state the outcome once nothing changes any
//! more; all other lines are for people. Parsing stops at the first line that is neither a comment nor empty.
//!
//! ```text
//! expectation := "pod" OBJECT "on" place { "|" place }
//!              | "pod" OBJECT "pending" [ ":" TEXT ]       no node; TEXT is part of the reason
//!              | "pod" OBJECT "waiting" [ ":" TEXT ]       has a node but does not run; TEXT is part of the reason
//!              | "pod" OBJECT "gone"                       existed, and is deleted
//!              | COUNT "pods" OBJECT "on" spread           this many pods with this name (with "*")
//!              | "claim" OBJECT "bound" [ "to" NAME { "|" NAME } ]
//!              | "claim" OBJECT "pending"
//!              | "claim" OBJECT "reachable from" ( COUNT "zones" | NAME { "&" NAME } )
//!              | "volume" NAME ( "available" | "bound" )
//!              | "event" KIND OBJECT REASON [ ":" TEXT ]
//! place       := NAME | "node in" ZONE | "node with" KEY "=" VALUE | "any node"
//! spread      := "distinct nodes" | "distinct zones" | "one node" | "one zone"
//! OBJECT      := NAMESPACE "/" NAME; a "*" at the end of the name matches any suffix
//! ```

mod check;

pub(crate) use check::{Happened, check};

use std::fmt;

const MARK: &str = "expect:";

/// One expectation with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Starting at 1.
    pub line: usize,
    /// The text, without the mark.
    pub text: String,
    /// The expected outcome.
    pub outcome: Outcome,
}

/// A name with its namespace, possibly with a wildcard suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Namespace.
    pub namespace: String,
    /// Name, without the `*`.
    pub name: String,
    /// Whether there was a `*`.
    pub any_ending: bool,
}

/// Where a pod can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the node of this name.
    Node(String),
    /// On a node of this zone.
    Zone(String),
    /// On a node with this label.
    Label(String, String),
    /// On some node.
    Any,
}

/// How pods are placed relative to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// No two on one node.
    DistinctNodes,
    /// No two in one zone.
    DistinctZones,
    /// All on one node.
    OneNode,
    /// All in one zone.
    OneZone,
}

/// From where a volume can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From this many zones.
    Zones(usize),
    /// From exactly these zones.
    Exactly(Vec<String>),
}

/// What is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A pod is in one of these places.
    PodOn(Pattern, Vec<Place>),
    /// A pod has no node, for a reason that contains the text.
    PodPending(Pattern, String),
    /// A pod has a node and does not run there, for a reason that contains the text.
    PodWaiting(Pattern, String),
    /// A pod does not exist.
    PodGone(Pattern),
    /// This many pods are placed like this relative to each other.
    PodsOn(usize, Pattern, Spread),
    /// A claim is bound, to one of these volumes if there are any.
    ClaimBound(Pattern, Vec<String>),
    /// A claim is not bound.
    ClaimPending(Pattern),
    /// The volume of a claim can be reached from these zones.
    ClaimReachable(Pattern, Reach),
    /// A volume is free.
    VolumeAvailable(String),
    /// A volume is taken.
    VolumeBound(String),
    /// An event about an object: kind, name, reason, part of the message.
    Event(String, Pattern, String, String),
}

/// Why a comment is not a valid expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?}: {problem}")]
pub(crate) struct ExpectError {
    /// The line, starting at 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// What was expected instead.
    pub problem: String,
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Parses the expectations at the top of a manifest.
///
/// # Errors
/// If a line with the mark is not a valid expectation.
pub(crate) fn parse(manifest: &str) -> Result<Vec<Expectation>, ExpectError> {
    let comments = manifest
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .take_while(|(_, line)| line.is_empty() || line.starts_with('#'));
    let marked = comments.filter_map(|(number, line)| {
        let text = line.trim_start_matches('#').trim_start().strip_prefix(MARK)?;
        Some((number, text.trim()))
    });
    marked
        .map(|(line, text)| {
            let outcome = outcome(text).map_err(|problem| ExpectError {
                line,
                text: text.to_owned(),
                problem,
            })?;
            Ok(Expectation {
                line,
                text: text.to_owned(),
                outcome,
            })
        })
        .collect()
}

fn outcome(text: &str) -> Result<Outcome, String> {
    let (subject, rest) = word(text);
    match subject {
        "pod" => pod(rest),
        "claim" => claim(rest),
        "volume" => match word(rest) {
            ("", _) => Err("expected the name of a volume".to_owned()),
            (name, "available") => Ok(Outcome::VolumeAvailable(name.to_owned())),
            (name, "bound") => Ok(Outcome::VolumeBound(name.to_owned())),
            (_, other) => Err(format!("expected `available` or `bound`, found {other:?}")),
        },
        "event" => event(rest),
        _ => match (subject.parse(), word(rest)) {
            (Ok(count), ("pods", rest)) => pods(count, rest),
            _ => Err(format!(
                "expected `pod`, `claim`, `volume`, `event` or `COUNT pods`, found {subject:?}"
            )),
        },
    }
}

fn pod(text: &str) -> Result<Outcome, String> {
    let (name, rest) = word(text);
    let pod = pattern(name)?;
    let (state, reason) = match rest.split_once(':') {
        // Labels have no colon, so one belongs to a reason.
        Some((state, reason)) => (state.trim(), reason.trim().to_owned()),
        None => (rest, String::new()),
    };
    match state {
        "pending" => return Ok(Outcome::PodPending(pod, reason)),
        "waiting" => return Ok(Outcome::PodWaiting(pod, reason)),
        "gone" => return Ok(Outcome::PodGone(pod)),
        _ => {}
    }
    let places = rest
        .strip_prefix("on ")
        .ok_or_else(|| format!("expected `on`, `pending`, `waiting` or `gone`, found {rest:?}"))?;
    let places: Result<_, _> = places.split('|').map(|found| place(found.trim())).collect();
    Ok(Outcome::PodOn(pod, places?))
}

fn place(text: &str) -> Result<Place, String> {
    if text == "any node" {
        return Ok(Place::Any);
    }
    if let Some(zone) = text.strip_prefix("node in ") {
        return single(zone, "a zone").map(Place::Zone);
    }
    if let Some(label) = text.strip_prefix("node with ") {
        let (key, value) = label.split_once('=').ok_or("expected KEY=VALUE after `node with`")?;
        return Ok(Place::Label(single(key, "a label's key")?, value.trim().to_owned()));
    }
    single(text, "the name of a node").map(Place::Node)
}

fn pods(count: usize, text: &str) -> Result<Outcome, String> {
    let (name, rest) = word(text);
    let spread = match rest.strip_prefix("on ") {
        Some("distinct nodes") => Spread::DistinctNodes,
        Some("distinct zones") => Spread::DistinctZones,
        Some("one node") => Spread::OneNode,
        Some("one zone") => Spread::OneZone,
        Some(_) | None => {
            return Err(format!(
                "expected `on` and `distinct nodes`, `distinct zones`, `one node` or `one zone`, found {rest:?}"
            ));
        }
    };
    Ok(Outcome::PodsOn(count, pattern(name)?, spread))
}

fn claim(text: &str) -> Result<Outcome, String> {
    let (name, rest) = word(text);
    let claim = pattern(name)?;
    match rest {
        "bound" => return Ok(Outcome::ClaimBound(claim, Vec::new())),
        "pending" => return Ok(Outcome::ClaimPending(claim)),
        _ => {}
    }
    if let Some(volumes) = rest.strip_prefix("bound to ") {
        return Ok(Outcome::ClaimBound(claim, list(volumes, '|', "the name of a volume")?));
    }
    let zones = rest
        .strip_prefix("reachable from ")
        .ok_or_else(|| format!("expected `bound`, `bound to`, `pending` or `reachable from`, found {rest:?}"))?;
    let reach = match word(zones) {
        (count, "zones" | "zone") => Reach::Zones(count.parse().map_err(|_| format!("{count:?} is no number"))?),
        _ => Reach::Exactly(list(zones, '&', "a zone")?),
    };
    Ok(Outcome::ClaimReachable(claim, reach))
}

fn event(text: &str) -> Result<Outcome, String> {
    let (kind, rest) = word(text);
    let (name, rest) = word(rest);
    let (reason, message) = rest.split_once(':').unwrap_or((rest, ""));
    Ok(Outcome::Event(
        single(kind, "a kind")?,
        pattern(name)?,
        single(reason, "the reason of an event")?,
        message.trim().to_owned(),
    ))
}

/// The first word, and the rest without the space before it.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

fn single(text: &str, what: &str) -> Result<String, String> {
    match word(text.trim()) {
        (found, "") if !found.is_empty() => Ok(found.to_owned()),
        _ => Err(format!("expected {what}, found {text:?}")),
    }
}

fn list(text: &str, separator: char, what: &str) -> Result<Vec<String>, String> {
    text.split(separator).map(|item| single(item, what)).collect()
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let (namespace, name) = text
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .ok_or_else(|| format!("expected NAMESPACE/NAME, found {text:?}"))?;
    let any_ending = name.ends_with('*');
    Ok(Pattern {
        namespace: namespace.to_owned(),
        name: name.trim_end_matches('*').to_owned(),
        any_ending,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(&format!("# words\n# expect: {text}\n")).unwrap_err().to_string()
    }

    #[test]
    fn expectations_stand_in_the_first_comment() {
        let text = "# A story.\n#\n# expect: pod default/web-0 on n1 | node in zone-a\n#expect: claim a/b bound to pv-1 | pv-2\n\n\
                    # expect: 3 pods default/web-* on distinct zones\nkind: Pod\n# expect: nonsense\n";
        let found = parse(text).unwrap();
        let lines: Vec<_> = found.iter().map(|found| found.line).collect();
        assert_eq!(lines, [3, 4, 6]);
        let web = Pattern {
            namespace: "default".into(),
            name: "web-0".into(),
            any_ending: false,
        };
        let places = vec![Place::Node("n1".into()), Place::Zone("zone-a".into())];
        assert_eq!(found[0].outcome, Outcome::PodOn(web, places));
        assert!(matches!(&found[1].outcome, Outcome::ClaimBound(_, volumes) if volumes == &["pv-1", "pv-2"]));
        assert!(matches!(&found[2].outcome, Outcome::PodsOn(3, pods, Spread::DistinctZones) if pods.any_ending));
    }

    #[test]
    fn every_form_is_read() {
        for text in [
            "pod a/b on node with topology.berth.dev/rack=rack-1",
            "pod a/b on any node",
            "pod a/b pending",
            "pod a/b pending: 0/3 nodes are available: 1 Insufficient cpu",
            "pod a/b waiting: MountVolume.NodeAffinity check failed",
            "pod a/b gone",
            "2 pods a/b-* on one node",
            "claim a/b bound",
            "claim a/b pending",
            "claim a/b reachable from 2 zones",
            "claim a/b reachable from zone-a & zone-b",
            "volume pv available",
            "volume pv bound",
            "event PersistentVolumeClaim a/b ProvisioningFailed: two zones",
            "event Pod a/b Scheduled",
        ] {
            let found = parse(&format!("# expect: {text}")).unwrap();
            assert_eq!(found[0].text, text);
        }
        let found = parse("# expect: pod a/b pending: 0/3 nodes: none").unwrap();
        assert!(matches!(&found[0].outcome, Outcome::PodPending(_, reason) if reason == "0/3 nodes: none"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert_eq!(
            error("pod web on n1"),
            "line 2: \"pod web on n1\": expected NAMESPACE/NAME, found \"web\""
        );
        assert!(error("pod a/b at n1").contains("expected `on`, `pending`, `waiting` or `gone`, found \"at n1\""));
        assert!(error("pod a/b on n1 n2").contains("expected the name of a node"));
        assert!(error("many pods a/b on one node").contains("found \"many\""));
        assert!(error("3 pods a/b on two nodes").contains("`distinct zones`"));
        assert!(error("claim a/b reachable from x zones").contains("\"x\" is no number"));
        assert!(error("volume").contains("name of a volume"));
        assert!(error("event Pod a/b").contains("the reason of an event"));
        assert!(error("").contains("expected `pod`"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(# expect: )?(pod|claim|[0-9]+ pods|event|volume)? ?[ -~]{0,40}") {
            let _ = parse(&text);
        }
    }
}
