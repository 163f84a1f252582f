//! Claims that need a new volume.
//!
//! The controller does not provision itself: it assigns the claim to the provisioner of its class, by annotation, and
//! reports that.

use crate::change::{Change, Reason};
use crate::claim::{event, write};
use crate::plugin::{self, HOST_PATH, Provisioner};
use crate::settings::Settings;
use crate::state::State;
use berth_core::api::PersistentVolumeClaim;
use berth_core::effect::{Effect, EventType};
use berth_core::names;

/// Assigns a claim to its class's provisioner, or reports why it cannot.
pub(crate) fn provision(claim: &PersistentVolumeClaim, state: &State, settings: &Settings) -> Vec<Effect> {
    let class_name = claim.class_name().unwrap_or_default();
    let failed = |message| vec![event(claim, EventType::Warning, Reason::ProvisioningFailed, message)];
    let Some(class) = state.class(class_name) else {
        return failed(format!("storageclass.storage.k8s.io {class_name:?} not found"));
    };
    match plugin::provisioner(&class.provisioner) {
        Provisioner::External(provisioner) => {
            let hint = settings.driver_hint.filter(|hint| !hint.served.contains(&provisioner));
            let hint = hint.map_or_else(String::new, |hint| format!(" {}", hint.text));
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually \
                 by the system administrator. If volume creation is delayed, please verify that the provisioner is \
                 running and correctly registered.{hint}"
            );
            let mut effects = assign(claim, provisioner);
            effects.push(event(claim, EventType::Normal, Reason::ExternalProvisioning, message));
            effects
        }
        Provisioner::HostPath => {
            let problem = format!("provisioning in volume plugin {HOST_PATH:?} is disabled");
            let mut effects = assign(claim, HOST_PATH);
            effects.extend(failed(format!("Failed to create provisioner: {problem}")));
            effects
        }
        Provisioner::Unknown(problem) => failed(problem),
    }
}

fn assign(claim: &PersistentVolumeClaim, provisioner: &str) -> Vec<Effect> {
    if claim.metadata.annotation(names::STORAGE_PROVISIONER) == Some(provisioner) {
        return Vec::new();
    }
    let provisioner = provisioner.to_owned();
    vec![write(claim, &Change::AssignProvisioner { provisioner })]
}
