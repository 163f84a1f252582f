//! A cluster with a controller: what a user does, and the result.

use crate::common::{Controller, claim, create, volume};
use berth_controller::Settings;
use berth_core::api::Kind;
use berth_core::effect::Event;
use berth_core::names::NO_PROVISIONER;
use berth_testing::{Cluster, Manifest, class};
use serde_json::Value;

pub(crate) struct Story {
    pub(crate) cluster: Cluster,
    controller: Controller,
}

impl Story {
    pub(crate) fn with(settings: Settings) -> Self {
        let mut cluster = Cluster::default();
        create(&mut cluster, class("now", NO_PROVISIONER).immediate());
        create(&mut cluster, class("wait", NO_PROVISIONER));
        create(&mut cluster, class("extwait", "disk.example.com"));
        create(&mut cluster, class("gce", "kubernetes.io/gce-pd").immediate());
        Self {
            cluster,
            controller: Controller::new(settings),
        }
    }

    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn create(mut self, object: Value) -> Self {
        assert!(create(&mut self.cluster, object));
        self.run()
    }

    /// An object that existed before the controller, with its recorded state.
    pub(crate) fn with_past(mut self, object: Value) -> Self {
        self.cluster.create_unprotected(object).unwrap();
        self
    }

    pub(crate) fn run(mut self) -> Self {
        self.controller.run_on_events_alone(&mut self.cluster);
        let version = self.cluster.version();
        self.controller.run_until_quiet(&mut self.cluster);
        assert_eq!(self.cluster.version(), version, "something waited for a resync");
        self
    }

    /// A scheduler announces itself, or stops doing so.
    pub(crate) fn announced(mut self, announced: bool) -> Self {
        let keys = self.controller.state.set_delay_announced(announced);
        keys.into_iter().for_each(|key| self.controller.enqueue(key));
        self.run()
    }

    pub(crate) fn delete_claim(mut self, name: &str) -> Self {
        self.cluster.delete("PersistentVolumeClaim", name);
        self.run()
    }

    pub(crate) fn delete_volume(mut self, name: &str) -> Self {
        self.cluster.delete("PersistentVolume", name);
        self.run()
    }

    /// A user deletes a pod, whose containers have a grace period.
    pub(crate) fn stop_pod(mut self, name: &str) -> Self {
        self.cluster.delete("Pod", name);
        self.run()
    }

    /// The containers of a pod have stopped.
    pub(crate) fn delete_pod(mut self, name: &str) -> Self {
        self.cluster.delete_now("Pod", name);
        self.run()
    }

    pub(crate) fn patch(mut self, kind: Kind, name: &str, body: &Value) -> Self {
        self.cluster.patch(kind.name(), name, body);
        self.run()
    }

    pub(crate) fn stored_volume(&self, name: &str) -> Option<&Value> {
        volume(&self.cluster, name)
    }

    pub(crate) fn stored_claim(&self, name: &str) -> Option<&Value> {
        claim(&self.cluster, name)
    }

    #[track_caller]
    pub(crate) fn volume(self, name: &str, phase: &str, claim: Option<&str>) -> Self {
        let volume = self.stored_volume(name).expect("the volume is there");
        assert_eq!(volume["status"]["phase"], phase, "phase of {name}: {volume:#}");
        assert_eq!(
            volume.pointer("/spec/claimRef/name").and_then(Value::as_str),
            claim,
            "claim of {name}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn claim(self, name: &str, phase: &str, volume: &str) -> Self {
        let claim = self.stored_claim(name).expect("the claim is there");
        assert_eq!(claim["status"]["phase"], phase, "phase of {name}: {claim:#}");
        let found = claim.pointer("/spec/volumeName").and_then(Value::as_str);
        assert_eq!(found.unwrap_or_default(), volume, "volume of {name}");
        self
    }

    #[track_caller]
    pub(crate) fn annotated(self, name: &str, key: &str, value: Option<&str>) -> Self {
        let claim = self.stored_claim(name).expect("the claim is there");
        assert_eq!(claim["metadata"]["annotations"][key].as_str(), value, "{key} of {name}");
        self
    }

    #[track_caller]
    pub(crate) fn told(self, name: &str, reason: &str, message: &str) -> Self {
        let told = self.events(name, reason).any(|event| event.message.contains(message));
        assert!(told, "{name}: {reason} {message:?} in {:#?}", self.cluster.events());
        self
    }

    #[track_caller]
    pub(crate) fn not_told(self, name: &str, reason: &str) -> Self {
        assert_eq!(self.events(name, reason).next(), None);
        self
    }

    pub(crate) fn events(&self, name: &str, reason: &str) -> impl Iterator<Item = &Event> {
        let events = self.cluster.events().iter();
        events.filter(move |event| event.about.key.name == name && event.reason == reason)
    }
}
