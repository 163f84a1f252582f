//! The configuration of the volume controller: a file for `berth controller`, and the arguments of other commands that set
//! a part of it.

use berth_controller::{Protection, Settings, ZoneUpgrade};
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The configuration file of `berth controller`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct ControllerFile {
    volume_scheduling: Option<bool>,
    bind_for_placed_pods: Option<bool>,
    pub(crate) require_delayed_binding_scheduler: Option<bool>,
    #[serde(deserialize_with = "name")]
    zone_upgrade: Option<ZoneUpgradeName>,
    #[serde(deserialize_with = "name")]
    protection: Option<ProtectionName>,
    ephemeral_claims: Option<bool>,
    pub(crate) workers: Option<usize>,
    pub(crate) resync_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
enum ZoneUpgradeName {
    Off,
    DryRun,
    On,
}

/// What is kept from deletion while it is in use.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
pub enum ProtectionName {
    /// Nothing: claims and volumes can be deleted at any time.
    #[value(name = "Off")]
    Off,
    /// Claims that a pod on a node uses, and their volumes.
    #[value(name = "UsedByPods")]
    UsedByPods,
    /// As in Kubernetes: claims that a pod on a node uses, and all bound volumes.
    #[value(name = "Bound")]
    Bound,
}

impl From<ProtectionName> for Protection {
    fn from(name: ProtectionName) -> Self {
        match name {
            ProtectionName::Off => Self::Off,
            ProtectionName::UsedByPods => Self::UsedByPods,
            ProtectionName::Bound => Self::Bound,
        }
    }
}

/// Reads a name. Without quotes, `On` and `Off` are booleans in YAML 1.1, which kubectl and this program read.
fn name<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = match Value::deserialize(deserializer)? {
        Value::Bool(true) => Value::from("On"),
        Value::Bool(false) => Value::from("Off"),
        value => value,
    };
    Option::deserialize(value).map_err(serde::de::Error::custom)
}

impl ControllerFile {
    /// The settings of the controller.
    pub(crate) fn settings(&self) -> Settings {
        let usual = Settings::default();
        Settings {
            volume_scheduling: self.volume_scheduling.unwrap_or(usual.volume_scheduling),
            bind_for_placed_pods: self.bind_for_placed_pods.unwrap_or(usual.bind_for_placed_pods),
            zone_upgrade: match self.zone_upgrade {
                None | Some(ZoneUpgradeName::Off) => ZoneUpgrade::Off,
                Some(ZoneUpgradeName::DryRun) => ZoneUpgrade::DryRun,
                Some(ZoneUpgradeName::On) => ZoneUpgrade::On,
            },
            protection: self.protection.map_or(usual.protection, Protection::from),
            ephemeral_claims: self.ephemeral_claims.unwrap_or(usual.ephemeral_claims),
            ..usual
        }
    }
}

/// What commands that run a controller among other parts can set of it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct EmbeddedControllerArgs {
    /// Turn the zone labels of existing volumes into node affinity, like `zoneUpgrade: On` in the controller's configuration.
    #[arg(long)]
    pub zone_upgrade: bool,
    /// Keep claims and volumes from deletion while they are in use. Defaults to Bound; berth up without node agents defaults to
    /// UsedByPods.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub protection: Option<ProtectionName>,
}

impl EmbeddedControllerArgs {
    /// The settings of the controller.
    #[must_use]
    pub fn settings(self) -> Settings {
        let usual = Settings::embedded();
        Settings {
            protection: self.protection.map_or(usual.protection, Protection::from),
            zone_upgrade: if self.zone_upgrade {
                ZoneUpgrade::On
            } else {
                ZoneUpgrade::Off
            },
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input;

    fn read(text: &str) -> Result<ControllerFile, String> {
        let value = input::value_of(&"controller.yaml".into(), text).map_err(|error| error.to_string())?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn on_and_off_mean_what_they_say_with_and_without_quotes() {
        for (text, expected) in [
            ("zoneUpgrade: On", ZoneUpgrade::On),
            ("zoneUpgrade: \"On\"", ZoneUpgrade::On),
            ("zoneUpgrade: Off", ZoneUpgrade::Off),
            ("zoneUpgrade: DryRun", ZoneUpgrade::DryRun),
            ("zoneUpgrade:", ZoneUpgrade::Off),
            ("workers: 2", ZoneUpgrade::Off),
        ] {
            assert_eq!(read(text).unwrap().settings().zone_upgrade, expected, "{text}");
        }
        for (text, expected) in [
            ("protection: Off", Protection::Off),
            ("protection: 'Off'", Protection::Off),
            ("protection: Bound", Protection::Bound),
        ] {
            assert_eq!(read(text).unwrap().settings().protection, expected, "{text}");
        }
        let error = read("protection: On").unwrap_err();
        assert!(
            error.contains("unknown variant `On`, expected one of `Off`, `UsedByPods`, `Bound`"),
            "{error}"
        );
    }
}
