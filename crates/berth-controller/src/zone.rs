//! Turns zone and region labels of volumes into node affinity.
//!
//! Older volumes express their location by labels that one scheduler plugin reads. Node affinity expresses it for every
//! component. The labels are kept for components that still read them.

use crate::change::{Change, Reason};
use crate::settings::{Settings, ZoneUpgrade};
use crate::volume::{event, write};
use berth_core::api::PersistentVolume;
use berth_core::effect::{Effect, EventType};

pub use berth_core::zone_affinity::{NodeKeys, Plan, plan};

/// The step for one volume.
#[must_use]
pub fn sync_zone(volume: &PersistentVolume, nodes: NodeKeys, settings: &Settings) -> Vec<Effect> {
    match (settings.zone_upgrade, plan(volume, nodes)) {
        // Off and dry run change nothing; a dry run prints the plan separately.
        (ZoneUpgrade::Off | ZoneUpgrade::DryRun, Plan::Nothing | Plan::Upgrade(_) | Plan::Unreadable { .. }) => {
            Vec::new()
        }
        // No labels, or already upgraded with label names that nodes use.
        (ZoneUpgrade::On, Plan::Nothing) => Vec::new(),
        (ZoneUpgrade::On, Plan::Upgrade(_)) if volume.metadata.is_deleting() => Vec::new(),
        (ZoneUpgrade::On, Plan::Upgrade(affinity)) => vec![write(volume, &Change::NodeAffinity(affinity))],
        (ZoneUpgrade::On, Plan::Unreadable { key, value }) => {
            let message = format!("label {key} has the value {value:?}, expected zones separated by `__`");
            vec![event(volume, EventType::Warning, Reason::ZoneUpgradeSkipped, message)]
        }
    }
}
