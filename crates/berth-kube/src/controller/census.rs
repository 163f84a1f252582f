//! Counts volumes and claims under the names of kube-controller-manager's metrics, and measures how long operations take.
//!
//! Counts are updated with each change, so that a scrape costs nothing in a large cluster.

use super::metrics::{ClaimLabels, ClassLabels, Metrics, OperationLabels, PluginLabels};
use berth_controller::Reason;
use berth_core::api::{Kind, Object, PersistentVolume, PersistentVolumeClaim, VolumeSource};
use berth_core::effect::{Effect, ObjectKey};
use berth_core::migration::csi_handle_of;
use berth_core::names;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::HashMap;
use std::hash::Hash;
use tokio::time::Instant;

/// How an object is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Counted {
    Volume {
        is_bound: bool,
        class: ClassLabels,
        plugin: PluginLabels,
    },
    Claim {
        is_bound: bool,
        labels: ClaimLabels,
    },
}

/// What is counted, and the operations in progress.
pub(super) struct Census {
    metrics: Metrics,
    counted: HashMap<ObjectKey, Counted>,
    /// When a volume was first requested for a claim, or first to be deleted, and from which plugin.
    started: HashMap<ObjectKey, (String, Instant)>,
}

impl Census {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            counted: HashMap::new(),
            started: HashMap::new(),
        }
    }

    /// An object was added or has changed.
    pub(super) fn apply(&mut self, object: &Object) {
        let new = match object {
            Object::PersistentVolume(volume) => of_volume(volume),
            Object::PersistentVolumeClaim(claim) => of_claim(claim),
            _ => return,
        };
        let key = ObjectKey::of(object.kind(), object.metadata());
        if self.counted.get(&key) == Some(&new) {
            return;
        }
        self.follow(&key, object, &new);
        self.add(&new, 1);
        if let Some(old) = self.counted.insert(key, new) {
            self.add(&old, -1);
        }
    }

    /// An object was removed.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(old) = self.counted.remove(key) {
            self.add(&old, -1);
        }
        let started = self.started.remove(key);
        if key.known_kind() == Some(Kind::PersistentVolume) {
            self.finished(started, "delete");
        }
    }

    /// A claim may be bound now, and a volume may be waiting for its deletion.
    fn follow(&mut self, key: &ObjectKey, object: &Object, new: &Counted) {
        match (object, new) {
            (Object::PersistentVolumeClaim(_), Counted::Claim { is_bound: true, .. }) => {
                let started = self.started.remove(key);
                self.finished(started, "provision");
            }
            (Object::PersistentVolume(volume), Counted::Volume { plugin, .. }) if is_to_be_deleted(volume) => {
                let plugin = plugin.plugin_name.clone();
                self.started
                    .entry(key.clone())
                    .or_insert_with(|| (plugin, Instant::now()));
            }
            _ => {}
        }
    }

    fn finished(&self, started: Option<(String, Instant)>, operation_name: &'static str) {
        if let Some((plugin_name, at)) = started {
            let labels = OperationLabels {
                plugin_name,
                operation_name,
            };
            let seconds = at.elapsed().as_secs_f64();
            self.metrics.operation_seconds.get_or_create(&labels).observe(seconds);
        }
    }

    /// The effects of a step on an object, with the provisioner of its class or volume.
    pub(super) fn told(&mut self, key: &ObjectKey, effects: &[Effect], plugin: impl Fn() -> Option<String>) {
        for effect in effects {
            let Effect::Event(event) = effect else { continue };
            let operation_name = match event.reason {
                reason if reason == Reason::ExternalProvisioning.as_str() => {
                    let plugin = plugin().unwrap_or_else(unknown);
                    self.started
                        .entry(key.clone())
                        .or_insert_with(|| (plugin, Instant::now()));
                    continue;
                }
                reason if reason == Reason::ProvisioningFailed.as_str() => "provision",
                reason if reason == Reason::VolumeFailedDelete.as_str() => "delete",
                _ => continue,
            };
            let labels = OperationLabels {
                plugin_name: plugin().unwrap_or_else(unknown),
                operation_name,
            };
            self.metrics.operation_errors.get_or_create(&labels).inc();
        }
    }

    fn add(&self, counted: &Counted, number: i64) {
        let metrics = &self.metrics;
        match counted {
            Counted::Volume {
                is_bound,
                class,
                plugin,
            } => {
                let of_class = if *is_bound {
                    &metrics.bound_volumes
                } else {
                    &metrics.unbound_volumes
                };
                change(of_class, class, number);
                change(&metrics.volumes, plugin, number);
            }
            Counted::Claim { is_bound, labels } => {
                let claims = if *is_bound {
                    &metrics.bound_claims
                } else {
                    &metrics.unbound_claims
                };
                change(claims, labels, number);
            }
        }
    }
}

/// Changes a count. Namespaces and classes come and go: a count of zero is removed.
fn change<L: Clone + Hash + Eq>(family: &Family<L, Gauge>, labels: &L, number: i64) {
    let gauge = family.get_or_create(labels);
    let left = gauge.inc_by(number) + number;
    drop(gauge);
    if left == 0 {
        family.remove(labels);
    }
}

fn unknown() -> String {
    "N/A".to_owned()
}

fn is_to_be_deleted(volume: &PersistentVolume) -> bool {
    volume.status.phase == "Released" && volume.spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete")
}

fn of_volume(volume: &PersistentVolume) -> Counted {
    Counted::Volume {
        is_bound: volume.status.phase == "Bound",
        class: ClassLabels {
            storage_class: volume.class_name().to_owned(),
        },
        plugin: PluginLabels {
            plugin_name: plugin_of(volume),
            volume_mode: volume
                .spec
                .volume_mode
                .clone()
                .unwrap_or_else(|| "Filesystem".to_owned()),
        },
    }
}

fn of_claim(claim: &PersistentVolumeClaim) -> Counted {
    let attributes_class = claim.spec.volume_attributes_class_name.clone();
    Counted::Claim {
        is_bound: claim.status.phase == "Bound",
        labels: ClaimLabels {
            namespace: claim.metadata.namespace.clone(),
            storage_class: claim.class_name().unwrap_or_default().to_owned(),
            volume_attributes_class: attributes_class.unwrap_or_default(),
        },
    }
}

/// The plugin of a volume, in the form of kube-controller-manager: CSI drivers follow the name of the CSI plugin.
fn plugin_of(volume: &PersistentVolume) -> String {
    if let Some((plugin, _)) = csi_handle_of(volume) {
        return plugin.name().to_owned();
    }
    let name = match volume.spec.source() {
        VolumeSource::Csi(csi) => return format!("{}csi:{}", names::IN_TREE_PREFIX, csi.driver),
        VolumeSource::Local(_) => "local-volume",
        VolumeSource::Iscsi(_) => "iscsi",
        VolumeSource::Rbd(_) => "rbd",
        _ if volume.spec.host_path.is_some() => "host-path",
        _ if volume.spec.nfs.is_some() => "nfs",
        _ => return unknown(),
    };
    format!("{}{name}", names::IN_TREE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    fn object(kind: &str, name: &str, spec: Value, phase: &str) -> Object {
        let metadata = json!({"name": name, "namespace": if kind == "PersistentVolume" { "" } else { "team" }});
        let object =
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec, "status": {"phase": phase}});
        Object::decode(&object).unwrap().unwrap()
    }

    fn rendered(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn objects_are_counted_once_and_no_longer_when_they_are_gone() {
        let metrics = Metrics::default();
        let mut census = Census::new(metrics.clone());
        let claim = |phase| object("PersistentVolumeClaim", "c", json!({"storageClassName": "fast"}), phase);
        let csi = json!({"storageClassName": "fast", "csi": {"driver": "d", "volumeHandle": "h"}});
        census.apply(&claim("Pending"));
        census.apply(&claim("Pending"));
        census.apply(&object("PersistentVolume", "v", csi, "Available"));
        let text = rendered(&metrics);
        let labels = r#"{namespace="team",storage_class="fast",volume_attributes_class=""}"#;
        assert!(
            text.contains(&format!("pv_collector_unbound_pvc_count{labels} 1")),
            "{text}"
        );
        assert!(
            text.contains(r#"pv_collector_unbound_pv_count{storage_class="fast"} 1"#),
            "{text}"
        );
        let plugin = r#"{plugin_name="kubernetes.io/csi:d",volume_mode="Filesystem"}"#;
        assert!(
            text.contains(&format!("pv_collector_total_pv_count{plugin} 1")),
            "{text}"
        );
        census.apply(&claim("Bound"));
        let text = rendered(&metrics);
        assert!(
            text.contains(&format!("pv_collector_bound_pvc_count{labels} 1")),
            "{text}"
        );
        assert!(
            !text.contains(&format!("pv_collector_unbound_pvc_count{labels}")),
            "{text}"
        );
        census.remove(&ObjectKey::claim("team", "c"));
        census.remove(&ObjectKey::volume("v"));
        assert!(!rendered(&metrics).contains("team"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_lasts_from_the_first_request_to_the_bound_claim() {
        let metrics = Metrics::default();
        let mut census = Census::new(metrics.clone());
        let claim = |phase| object("PersistentVolumeClaim", "c", json!({}), phase);
        census.apply(&claim("Pending"));
        let event = |reason: Reason| {
            Effect::Event(berth_core::effect::Event {
                about: berth_core::effect::Target::default(),
                event_type: berth_core::effect::EventType::Normal,
                reason: reason.as_str(),
                message: String::new(),
                source: "".into(),
            })
        };
        let key = ObjectKey::claim("team", "c");
        let plugin = || Some("d".to_owned());
        census.told(&key, &[event(Reason::ExternalProvisioning)], plugin);
        tokio::time::advance(std::time::Duration::from_secs(3)).await;
        census.told(
            &key,
            &[event(Reason::ExternalProvisioning), event(Reason::ProvisioningFailed)],
            plugin,
        );
        census.apply(&claim("Bound"));
        let text = rendered(&metrics);
        let labels = r#"{plugin_name="d",operation_name="provision"}"#;
        assert!(
            text.contains(&format!("volume_operation_total_seconds_sum{labels} 3.0")),
            "{text}"
        );
        assert!(
            text.contains(&format!("volume_operation_total_errors{labels} 1")),
            "{text}"
        );
    }
}
