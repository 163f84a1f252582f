//! Node affinity from zone and region labels of volumes.
//!
//! Older volumes express their location by labels that one scheduler plugin reads. Node affinity expresses it for every
//! component. The controller adds it to existing volumes, and admission to new ones.

use crate::api::{NodeSelector, NodeSelectorTerm, PersistentVolume, Requirement, StringMap};
use crate::names;

/// The result for the labels of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// No zone labels, or node affinity that nodes can already satisfy.
    Nothing,
    /// The volume should get this node affinity.
    Upgrade(NodeSelector),
    /// A label cannot be read.
    Unreadable {
        /// Its key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// The labels that express a location, each with its older name.
const LABELS: [(&str, &str); 2] = [(names::ZONE, names::ZONE_BETA), (names::REGION, names::REGION_BETA)];

/// Which label names the nodes of a cluster use for their location. New nodes may lack the older names, and old nodes the newer
/// ones: affinity on a name that no node has would make a volume unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeKeys {
    zone: Named,
    region: Named,
}

/// How many nodes use each name of a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Named {
    newer: usize,
    older: usize,
    both: usize,
}

impl NodeKeys {
    /// The names that nodes with these labels use.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a StringMap>) -> Self {
        let mut keys = Self::default();
        nodes.into_iter().for_each(|labels| keys.add(labels));
        keys
    }

    /// Counts an added node.
    pub fn add(&mut self, labels: &StringMap) {
        self.count(labels, |count| *count += 1);
    }

    /// Uncounts a removed node.
    pub fn remove(&mut self, labels: &StringMap) {
        self.count(labels, |count| *count = count.saturating_sub(1));
    }

    fn count(&mut self, labels: &StringMap, change: impl Fn(&mut usize)) {
        for ((newer, older), named) in LABELS.iter().zip([&mut self.zone, &mut self.region]) {
            match (labels.contains_key(*newer), labels.contains_key(*older)) {
                (true, true) => change(&mut named.both),
                (true, false) => change(&mut named.newer),
                (false, true) => change(&mut named.older),
                (false, false) => {}
            }
        }
    }
}

impl Named {
    /// Equivalent requirements, one of which nodes can satisfy: under its own name if nodes use it, or if no node uses either name;
    /// under the other name if nodes use only that.
    fn alternatives(self, own: Requirement, newer: &str, older: &str) -> Vec<Requirement> {
        let (with_own_only, with_other_only, other) = if own.key == newer {
            (self.newer, self.older, older)
        } else {
            (self.older, self.newer, newer)
        };
        let renamed = Requirement {
            key: other.to_owned(),
            ..own.clone()
        };
        let nodes_have_own = with_own_only + self.both > 0 || with_other_only == 0;
        let own = nodes_have_own.then_some(own);
        own.into_iter()
            .chain((with_other_only > 0).then_some(renamed))
            .collect()
    }
}

/// What would change on a volume in a cluster whose nodes have these labels. Changes nothing: a dry run prints this.
///
/// ```
/// use berth_core::zone_affinity::{NodeKeys, Plan, plan};
/// use berth_core::api::PersistentVolume;
/// let mut volume = PersistentVolume::default();
/// volume.metadata.labels.insert("topology.kubernetes.io/zone".into(), "a__b".into());
/// let Plan::Upgrade(affinity) = plan(&volume, NodeKeys::default()) else { panic!("it has a zone and no affinity") };
/// assert_eq!(affinity.node_selector_terms[0].match_expressions[0].values, ["a", "b"]);
/// ```
#[must_use]
pub fn plan(volume: &PersistentVolume, nodes: NodeKeys) -> Plan {
    let affinity = volume.spec.node_affinity.as_ref();
    if let Some(required) = affinity.and_then(|found| found.required.as_ref()) {
        return renamed(required, nodes).map_or(Plan::Nothing, Plan::Upgrade);
    }
    // One of these lists must be satisfied as a whole.
    let mut terms: Vec<Vec<Requirement>> = vec![Vec::new()];
    for ((newer, older), named) in LABELS.into_iter().zip([nodes.zone, nodes.region]) {
        let mut requirements = Vec::new();
        for key in [newer, older] {
            match requirement(volume, key) {
                Ok(found) => requirements.extend(found),
                Err(unreadable) => return unreadable,
            }
        }
        // Two equivalent keys are one requirement, on the key that is not deprecated.
        if let [new, old] = requirements.as_slice()
            && new.values == old.values
        {
            requirements.truncate(1);
        }
        let ways: Vec<Vec<Requirement>> = match requirements.as_slice() {
            [one] => {
                let alternatives = named.alternatives(one.clone(), newer, older);
                alternatives.into_iter().map(|one| vec![one]).collect()
            }
            // None, or two that contradict each other: nodes must satisfy both.
            _ => vec![requirements],
        };
        let joined = |term: &Vec<Requirement>| -> Vec<_> {
            ways.iter()
                .map(|way| [term.as_slice(), way.as_slice()].concat())
                .collect()
        };
        terms = terms.iter().flat_map(joined).collect();
    }
    if terms.iter().all(Vec::is_empty) {
        return Plan::Nothing;
    }
    let term = |match_expressions| NodeSelectorTerm {
        match_expressions,
        match_fields: Vec::new(),
    };
    Plan::Upgrade(NodeSelector {
        node_selector_terms: terms.into_iter().map(term).collect(),
    })
}

/// The affinity with the newer names, if it uses older ones that no node has any more: an old upgrade may have made a volume
/// unreachable. This is the only change of a volume's affinity that Kubernetes allows.
fn renamed(required: &NodeSelector, nodes: NodeKeys) -> Option<NodeSelector> {
    let mut new = required.clone();
    let terms = new.node_selector_terms.iter_mut();
    for requirement in terms.flat_map(|term| &mut term.match_expressions) {
        for ((newer, older), named) in LABELS.into_iter().zip([nodes.zone, nodes.region]) {
            if requirement.key == older && named.newer > 0 && named.older + named.both == 0 {
                requirement.key = newer.to_owned();
            }
        }
    }
    (new != *required).then_some(new)
}

fn requirement(volume: &PersistentVolume, key: &'static str) -> Result<Option<Requirement>, Plan> {
    let Some(value) = volume.metadata.labels.get(key) else {
        return Ok(None);
    };
    let values: Vec<String> = value.split(names::ZONE_DELIMITER).map(str::to_owned).collect();
    if values.iter().any(String::is_empty) {
        let value = value.clone();
        return Err(Plan::Unreadable { key, value });
    }
    Ok(Some(Requirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(labels: &[(&str, &str)]) -> StringMap {
        let owned = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    }

    /// The keys of each term that a volume with these labels gets in a cluster with these nodes.
    fn keys(volume: &[(&str, &str)], nodes: &[&[(&str, &str)]]) -> Vec<Vec<String>> {
        let mut labelled = PersistentVolume::default();
        labelled.metadata.labels = map(volume);
        let nodes: Vec<StringMap> = nodes.iter().map(|labels| map(labels)).collect();
        let Plan::Upgrade(affinity) = plan(&labelled, NodeKeys::of(&nodes)) else {
            return Vec::new();
        };
        let keys = |term: NodeSelectorTerm| term.match_expressions.into_iter().map(|found| found.key).collect();
        affinity.node_selector_terms.into_iter().map(keys).collect()
    }

    #[test]
    fn affinity_is_by_the_names_that_nodes_have() {
        let (zone, beta, region) = (names::ZONE, names::ZONE_BETA, names::REGION);
        let of_today: &[(&str, &str)] = &[(zone, "a"), (region, "r")];
        let of_old: &[(&str, &str)] = &[(beta, "a")];
        let in_between: &[(&str, &str)] = &[(zone, "a"), (beta, "a")];
        for own in [zone, beta] {
            let other = if own == zone { beta } else { zone };
            assert_eq!(keys(&[(own, "a")], &[]), [[own]], "no node is known");
            assert_eq!(keys(&[(own, "a")], &[in_between]), [[own]]);
            assert_eq!(keys(&[(own, "a")], &[of_today, of_old]), [[own], [other]]);
        }
        assert_eq!(keys(&[(beta, "a")], &[of_today, of_today]), [[zone]]);
        assert_eq!(keys(&[(zone, "a")], &[of_old]), [[beta]]);
        assert_eq!(keys(&[(beta, "a"), (zone, "a")], &[of_today]), [[zone]]);
        assert_eq!(keys(&[(beta, "a"), (region, "r")], &[of_today]), [[zone, region]]);
        assert_eq!(
            keys(&[(beta, "a"), (region, "r")], &[of_today, of_old]),
            [[beta, region], [zone, region]]
        );
    }

    #[test]
    fn affinity_by_a_name_that_no_node_has_any_more_gets_the_newer_one() {
        let affinity = |key: &str| NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: vec![Requirement {
                    key: key.to_owned(),
                    operator: "In".to_owned(),
                    values: vec!["a".to_owned()],
                }],
                match_fields: Vec::new(),
            }],
        };
        let planned = |key: &str, nodes: &[StringMap]| {
            let mut volume = PersistentVolume::default();
            volume.metadata.labels = map(&[(key, "a")]);
            volume.spec.node_affinity = Some(crate::api::VolumeNodeAffinity {
                required: Some(affinity(key)),
            });
            plan(&volume, NodeKeys::of(nodes))
        };
        let (today, old) = (map(&[(names::ZONE, "a")]), map(&[(names::ZONE_BETA, "a")]));
        let in_between = map(&[(names::ZONE, "a"), (names::ZONE_BETA, "a")]);
        let newer = Plan::Upgrade(affinity(names::ZONE));
        assert_eq!(planned(names::ZONE_BETA, std::slice::from_ref(&today)), newer);
        assert_eq!(planned(names::ZONE_BETA, &[today.clone(), old.clone()]), Plan::Nothing);
        assert_eq!(planned(names::ZONE_BETA, &[today, in_between]), Plan::Nothing);
        assert_eq!(planned(names::ZONE_BETA, &[]), Plan::Nothing);
        assert_eq!(
            planned(names::ZONE, &[old]),
            Plan::Nothing,
            "the way back is not allowed"
        );
    }

    #[test]
    fn nodes_that_went_do_not_count() {
        let (today, old) = (map(&[(names::ZONE, "a")]), map(&[(names::ZONE_BETA, "a")]));
        let mut nodes = NodeKeys::of([&today, &old]);
        nodes.remove(&old);
        assert_eq!(nodes, NodeKeys::of([&today]));
    }
}
