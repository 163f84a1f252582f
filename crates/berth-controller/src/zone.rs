//! Turns zone and region labels of volumes into node affinity.
//!
//! Volumes of old say where they are by labels that one scheduler plugin reads. Node affinity says
//! the same to everyone. The labels stay, for whoever still reads them.

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
        // Off and dry run change nothing; a dry run prints the plan by itself.
        (ZoneUpgrade::Off | ZoneUpgrade::DryRun, Plan::Nothing | Plan::Upgrade(_) | Plan::Unreadable { .. }) => {
            Vec::new()
        }
        // No labels, or upgraded before by names that nodes have.
        (ZoneUpgrade::On, Plan::Nothing) => Vec::new(),
        (ZoneUpgrade::On, Plan::Upgrade(_)) if volume.metadata.is_deleting() => Vec::new(),
        (ZoneUpgrade::On, Plan::Upgrade(affinity)) => vec![write(volume, &Change::NodeAffinity(affinity))],
        (ZoneUpgrade::On, Plan::Unreadable { key, value }) => {
            let message = format!("label {key} has the value {value:?}, expected zones separated by `__`");
            vec![event(volume, EventType::Warning, Reason::ZoneUpgradeSkipped, message)]
        }
    }
}
