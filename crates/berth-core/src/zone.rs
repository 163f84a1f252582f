//! Where a volume is according to its zone and region labels.
//!
//! Older volumes express by labels what node affinity expresses today. A node is allowed if it is in one of the places
//! that each label lists. The older name of a label matches the newer one on nodes without the older one. A node
//! without any of these labels is always allowed.

use crate::api::StringMap;
use crate::label::LabelRequirement;
use crate::names;
use crate::node_selector::{NodeRequirement, NodeSelector, NodeSelectorTerm};
use crate::symbols::{Symbol, Symbols};

/// The labels that locate a volume, each older one with the newer one that replaces it on a node.
const LABELS: [(&str, Option<&str>); 4] = [
    (names::ZONE_BETA, Some(names::ZONE)),
    (names::REGION_BETA, Some(names::REGION)),
    (names::ZONE, None),
    (names::REGION, None),
];

/// The nodes that the zone and region labels of a volume allow; `None` if it has no readable ones, so that every node
/// is allowed.
///
/// ```
/// use berth_core::{api::StringMap, label::Labels, symbols::Symbols, zone::allowed_nodes};
/// let mut symbols = Symbols::default();
/// let labels = |zone: &str| StringMap::from([("topology.kubernetes.io/zone".to_owned(), zone.to_owned())]);
/// let allowed = allowed_nodes(&mut symbols, &labels("a__b")).expect("it says where it is");
/// let node = symbols.intern("n1");
/// for (zone, expected) in [("a", true), ("b", true), ("c", false)] {
///     let labels = Labels::new(&mut symbols, &labels(zone));
///     assert_eq!(allowed.matches(&symbols, node, &labels), expected);
/// }
/// ```
#[must_use]
pub fn allowed_nodes(symbols: &mut Symbols, labels: &StringMap) -> Option<NodeSelector> {
    let mut terms: Vec<Vec<LabelRequirement>> = vec![Vec::new()];
    let mut says = false;
    for (key, instead) in LABELS {
        let Some(places) = labels.get(key).and_then(|value| places(symbols, value)) else {
            continue;
        };
        says = true;
        let key = symbols.intern(key);
        let mut ways = vec![vec![LabelRequirement::In(key, places.clone())]];
        if let Some(instead) = instead {
            let instead = LabelRequirement::In(symbols.intern(instead), places);
            ways.push(vec![LabelRequirement::DoesNotExist(key), instead]);
        }
        let joined = |term: &Vec<LabelRequirement>| -> Vec<_> {
            ways.iter()
                .map(|way| [term.as_slice(), way.as_slice()].concat())
                .collect()
        };
        terms = terms.iter().flat_map(joined).collect();
    }
    if !says {
        return None;
    }
    let keys = LABELS.map(|(key, _)| LabelRequirement::DoesNotExist(symbols.intern(key)));
    terms.push(keys.to_vec());
    let term = |term: Vec<LabelRequirement>| NodeSelectorTerm::of(term.into_iter().map(NodeRequirement::Label));
    Some(NodeSelector::of(terms.into_iter().map(term).collect()))
}

/// Whether the zone and region labels of a volume allow a node with these labels: [`allowed_nodes`] for one node.
#[must_use]
pub fn allows(volume: &StringMap, node: &StringMap) -> bool {
    if LABELS.iter().all(|(key, _)| !node.contains_key(*key)) {
        return true;
    }
    LABELS.iter().all(|(key, instead)| {
        let Some(places) = volume.get(*key).and_then(|value| listed(value)) else {
            return true;
        };
        let instead = || node.get((*instead)?);
        node.get(*key)
            .or_else(instead)
            .is_some_and(|place| places.contains(&place.as_str()))
    })
}

fn places(symbols: &mut Symbols, value: &str) -> Option<Box<[Symbol]>> {
    let places: Vec<String> = listed(value)?.into_iter().map(str::to_owned).collect();
    Some(crate::label::value_set(symbols, &places))
}

/// The places that a label's value lists. A value with an empty name cannot be read.
fn listed(value: &str) -> Option<Vec<&str>> {
    let places: Vec<&str> = value.split(names::ZONE_DELIMITER).map(str::trim).collect();
    places.iter().all(|place| !place.is_empty()).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Labels;

    fn map(labels: &[(&str, &str)]) -> StringMap {
        let owned = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    #[test]
    fn nodes_are_allowed_by_each_label_of_a_volume() {
        let (zone, region, beta) = (names::ZONE, names::REGION, names::ZONE_BETA);
        for (volume, node, expected) in [
            (&[(zone, "a")][..], &[(zone, "a")][..], true),
            (&[(zone, "a")], &[(zone, "b")], false),
            (&[(zone, "a")], &[], true),
            (&[(zone, "a")], &[(region, "r")], false),
            (&[(zone, "a")], &[(beta, "a")], false),
            (&[(beta, "a")], &[(zone, "a")], true),
            (&[(beta, "a")], &[(zone, "a"), (beta, "b")], false),
            (&[(beta, "a")], &[(zone, "b"), (beta, "a")], true),
            (&[(zone, "a"), (region, "r")], &[(zone, "a"), (region, "r")], true),
            (&[(zone, "a"), (region, "r")], &[(zone, "a"), (region, "s")], false),
            (&[(beta, "a"), (region, "r")], &[(zone, "a"), (region, "r")], true),
            (&[(zone, "a__ b ")], &[(zone, "b")], true),
        ] {
            let mut symbols = Symbols::default();
            let allowed = allowed_nodes(&mut symbols, &map(volume)).unwrap();
            let (name, labels) = (symbols.intern("n"), Labels::new(&mut symbols, &map(node)));
            let found = allowed.matches(&symbols, name, &labels);
            assert_eq!(found, expected, "volume {volume:?}, node {node:?}");
            assert_eq!(
                allows(&map(volume), &map(node)),
                expected,
                "volume {volume:?}, node {node:?}"
            );
        }
    }

    #[test]
    fn labels_that_cannot_be_read_say_nothing() {
        let mut symbols = Symbols::default();
        for labels in [&[][..], &[(names::ZONE, "a__")], &[("app", "db")]] {
            assert_eq!(allowed_nodes(&mut symbols, &map(labels)), None);
            assert!(allows(&map(labels), &map(&[(names::ZONE, "b")])));
        }
    }
}
