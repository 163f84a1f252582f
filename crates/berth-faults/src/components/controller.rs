//! The volume controller.

use crate::keyed::JobOf;
use crate::world::Doc;
use berth_controller::{Protection, Settings, State, sync};
use berth_core::effect::ObjectKey;
use berth_provisioner::course::Ended;
use berth_reconcile::{Reconciler, Version, Work};
use jiff::Timestamp;
use std::rc::Rc;

/// Claims, volumes, and the known state of the rest.
pub(crate) struct Volumes {
    state: State,
    settings: Settings,
}

impl Volumes {
    pub(crate) fn new() -> Self {
        let mut state = State::default();
        state.set_delay_announced(true);
        let settings = Settings {
            protection: Protection::Bound,
            ..Settings::embedded()
        };
        Self { state, settings }
    }
}

impl Reconciler for Volumes {
    type Object = Rc<Doc>;
    type Answer = Rc<Doc>;
    type Job = JobOf;
    type Report = Ended;

    fn apply(&mut self, doc: Rc<Doc>) -> Vec<ObjectKey> {
        doc.object()
            .map_or_else(Vec::new, |object| self.state.apply(object.clone()))
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.state.remove(key)
    }

    fn answered(&mut self, doc: &Rc<Doc>) -> Vec<ObjectKey> {
        // An unknown object may already be deleted again, and no event would report it.
        match self.state.metadata(&doc.key) {
            Some(_) => self.apply(Rc::clone(doc)),
            None => Vec::new(),
        }
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        self.state.metadata(key).map(Version::of)
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<JobOf> {
        Work::Effects(sync(key, &self.state, &self.settings, now))
    }

    fn begun(&mut self, touched: &[ObjectKey]) {
        touched.iter().for_each(|key| self.state.hold(key));
    }

    fn ended(&mut self, touched: &[ObjectKey]) -> Vec<ObjectKey> {
        touched.iter().filter_map(|key| self.state.unhold(key)).collect()
    }
}
