//! Turns zone and region labels of volumes into node affinity.
//!
//! Volumes of old say where they are by labels that one scheduler plugin reads. Node affinity says
//! the same to everyone. The labels stay, for whoever still reads them.

use crate::effect::{Change, Effect, EventType, Reason};
use crate::settings::{Settings, ZoneUpgrade};
use crate::volume::{event, write};
use berth_core::api::{NodeSelector, NodeSelectorTerm, PersistentVolume, Requirement};
use berth_core::names;

/// What the labels of a volume come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// No zone labels, or node affinity is there already.
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

/// What would become of a volume. Changes nothing: a dry run prints this.
///
/// ```
/// use berth_controller::zone::{Plan, plan};
/// use berth_core::api::PersistentVolume;
/// let mut volume = PersistentVolume::default();
/// volume.metadata.labels.insert("topology.kubernetes.io/zone".into(), "a__b".into());
/// let Plan::Upgrade(affinity) = plan(&volume) else { panic!("it has a zone and no affinity") };
/// assert_eq!(affinity.node_selector_terms[0].match_expressions[0].values, ["a", "b"]);
/// ```
#[must_use]
pub fn plan(volume: &PersistentVolume) -> Plan {
    if volume
        .spec
        .node_affinity
        .as_ref()
        .is_some_and(|found| found.required.is_some())
    {
        return Plan::Nothing;
    }
    let mut match_expressions = Vec::new();
    for (key, older) in [(names::ZONE, names::ZONE_BETA), (names::REGION, names::REGION_BETA)] {
        let mut requirements = Vec::new();
        for key in [key, older] {
            match requirement(volume, key) {
                Ok(found) => requirements.extend(found),
                Err(unreadable) => return unreadable,
            }
        }
        // Both keys that say the same are one requirement, on the key that is not on its way out.
        if let [new, old] = requirements.as_slice()
            && new.values == old.values
        {
            requirements.truncate(1);
        }
        match_expressions.append(&mut requirements);
    }
    if match_expressions.is_empty() {
        return Plan::Nothing;
    }
    Plan::Upgrade(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions,
            match_fields: Vec::new(),
        }],
    })
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

/// The step for one volume.
#[must_use]
pub fn sync_zone(volume: &PersistentVolume, settings: &Settings) -> Vec<Effect> {
    match (settings.zone_upgrade, plan(volume)) {
        // Off and dry run change nothing; a dry run prints the plan by itself.
        (ZoneUpgrade::Off | ZoneUpgrade::DryRun, Plan::Nothing | Plan::Upgrade(_) | Plan::Unreadable { .. }) => {
            Vec::new()
        }
        // No labels, or upgraded before.
        (ZoneUpgrade::On, Plan::Nothing) => Vec::new(),
        (ZoneUpgrade::On, Plan::Upgrade(_)) if volume.metadata.is_deleting() => Vec::new(),
        (ZoneUpgrade::On, Plan::Upgrade(affinity)) => vec![write(volume, Change::NodeAffinity(affinity))],
        (ZoneUpgrade::On, Plan::Unreadable { key, value }) => {
            let message = format!("label {key} has the value {value:?}, expected zones separated by `__`");
            vec![event(volume, EventType::Warning, Reason::ZoneUpgradeSkipped, message)]
        }
    }
}
