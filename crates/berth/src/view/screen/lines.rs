//! The lines of the map: zones, their racks and their nodes, as far as they are open.

use berth_view::{Overview, Rack, Sum, Zone};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Up to so many nodes, all zones are open unless somebody closes them. The page draws more nodes than this as small squares.
const OPEN_MAX: usize = 60;

/// What a line is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Zone(String),
    /// Zone and rack.
    Rack(String, String),
    Node(String),
    /// Volumes of no single zone.
    Shared,
}

/// A line of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapLine {
    pub(super) place: Place,
    pub(super) depth: usize,
    pub(super) sum: Sum,
    /// Whether its parts are shown; nothing if it has none.
    pub(super) open: Option<bool>,
}

/// The lines to show: what was opened and closed counts, unless there is a filter. Then these are the nodes that match it, and where
/// they are.
pub(super) fn of(overview: &Overview, opened: &BTreeMap<Place, bool>, filter: &str) -> Vec<MapLine> {
    let mut lines = Lines {
        opened,
        filter,
        default: overview.total.nodes <= OPEN_MAX,
        lines: Vec::new(),
    };
    for (name, zone) in sorted(&overview.zones) {
        lines.zone(name, zone);
    }
    if overview.shared.total() > 0 && filter.is_empty() {
        let sum = Sum {
            volumes: overview.shared,
            ..Sum::default()
        };
        lines.push(Place::Shared, 0, sum, None);
    }
    lines.lines
}

struct Lines<'a> {
    opened: &'a BTreeMap<Place, bool>,
    filter: &'a str,
    default: bool,
    lines: Vec<MapLine>,
}

impl Lines<'_> {
    fn push(&mut self, place: Place, depth: usize, sum: Sum, open: Option<bool>) {
        self.lines.push(MapLine {
            place,
            depth,
            sum,
            open,
        });
    }

    fn is_open(&self, place: &Place) -> bool {
        !self.filter.is_empty() || self.opened.get(place).copied().unwrap_or(self.default)
    }

    fn zone(&mut self, name: &str, zone: &Zone) {
        let before = self.lines.len();
        let place = Place::Zone(name.to_owned());
        let open = self.is_open(&place);
        self.push(place, 0, zone.sum, Some(open));
        // A rack for each node says nothing that the node does not.
        let with_racks = zone.racks.len() > 1 && zone.racks.values().any(|rack| rack.nodes.len() > 1);
        let all = matches(name, self.filter);
        if open {
            let mut racks = Vec::new();
            for (rack_name, rack) in sorted(&zone.racks) {
                let all = all || matches(rack_name, self.filter);
                match with_racks {
                    true => self.rack(name, rack_name, rack, all),
                    false => racks.extend(rack.nodes.iter().filter(|(node, _)| all || matches(node, self.filter))),
                }
            }
            racks.sort_by(|(a, _), (b, _)| natural(a, b));
            for (node, sum) in racks {
                self.push(Place::Node(node.clone()), 1, *sum, None);
            }
        }
        if self.lines.len() == before + 1 && !all {
            self.lines.truncate(before);
        }
    }

    fn rack(&mut self, zone: &str, name: &str, rack: &Rack, all: bool) {
        let before = self.lines.len();
        let place = Place::Rack(zone.to_owned(), name.to_owned());
        let open = self.is_open(&place);
        self.push(place, 1, rack.sum, Some(open));
        if open {
            for (node, sum) in sorted(&rack.nodes) {
                if all || matches(node, self.filter) {
                    self.push(Place::Node(node.to_owned()), 2, *sum, None);
                }
            }
        }
        if self.lines.len() == before + 1 && !all {
            self.lines.truncate(before);
        }
    }
}

/// Whether a name holds what somebody looks for. Letters in either case are the same.
pub(super) fn matches(name: &str, filter: &str) -> bool {
    filter.is_empty() || name.to_lowercase().contains(&filter.to_lowercase())
}

fn sorted<T>(named: &BTreeMap<String, T>) -> Vec<(&str, &T)> {
    let mut all: Vec<(&str, &T)> = named.iter().map(|(name, one)| (name.as_str(), one)).collect();
    all.sort_by(|(a, _), (b, _)| natural(a, b));
    all
}

/// The order of people, in which `node-2` comes before `node-10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (number_left, number_right) = (leading_number(left), leading_number(right));
        let order = match (left.chars().next(), right.chars().next()) {
            (Some(_), Some(_)) if !number_left.is_empty() && !number_right.is_empty() => {
                let key = |digits: &str| {
                    let significant = digits.trim_start_matches('0').to_owned();
                    (significant.len(), significant)
                };
                let order = key(number_left).cmp(&key(number_right));
                (left, right) = (&left[number_left.len()..], &right[number_right.len()..]);
                order
            }
            (Some(one), Some(other)) => {
                (left, right) = (&left[one.len_utf8()..], &right[other.len_utf8()..]);
                one.cmp(&other)
            }
            // Equal but for zeros in front of a number: any order will do that is always the same.
            (None, None) => return a.cmp(b),
            (one, other) => return one.is_some().cmp(&other.is_some()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn leading_number(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::natural;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_names_are_in_their_order() {
        let mut names = ["node-b1", "node-a10", "node-a2", "node-a02", "node-a", "node-a1-disk2"];
        names.sort_by(|a, b| natural(a, b));
        let expected = ["node-a", "node-a1-disk2", "node-a02", "node-a2", "node-a10", "node-b1"];
        assert_eq!(names, expected);
    }

    proptest! {
        #[test]
        fn the_order_is_one(a in "[a-c0-2]{0,6}", b in "[a-c0-2]{0,6}", c in "[a-c0-2]{0,6}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b).is_eq(), a == b);
            if natural(&a, &b).is_lt() && natural(&b, &c).is_lt() {
                prop_assert!(natural(&a, &c).is_lt());
            }
        }
    }
}
