//! Changes a status field by field and tracks whether anything changed.

use super::{field, step};
use berth_core::effect::Effect;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A status being built. Unknown fields are kept.
pub(crate) struct Status<'a> {
    object: &'a Value,
    status: Value,
    now: Timestamp,
}

/// One condition to be set.
#[derive(Clone, Copy)]
pub(crate) struct Condition<'a> {
    pub(crate) name: &'a str,
    pub(crate) holds: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl<'a> Condition<'a> {
    /// A condition with only a status.
    pub(crate) fn plain(name: &'a str, holds: bool) -> Self {
        Self {
            name,
            holds,
            reason: "",
            message: "",
        }
    }
}

impl<'a> Status<'a> {
    /// The current status of an object.
    pub(crate) fn of(object: &'a Value, now: Timestamp) -> Self {
        Self {
            object,
            status: object["status"].clone(),
            now,
        }
    }

    /// Sets a field.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        field::set(&mut self.status, &[name], value.into());
    }

    /// Removes a field.
    pub(crate) fn unset(&mut self, name: &str) {
        field::unset(&mut self.status, &[name]);
    }

    /// Sets a count that Kubernetes omits when it is zero.
    pub(crate) fn count(&mut self, name: &str, count: i64) {
        if count == 0 {
            self.unset(name);
        } else {
            self.set(name, count);
        }
    }

    /// Sets the observed generation to that of the object.
    pub(crate) fn observe(&mut self) {
        if let Some(generation) = field::number(self.object, "/metadata/generation") {
            self.set("observedGeneration", generation);
        }
    }

    /// Sets a condition. Its time changes only with its status.
    pub(crate) fn condition(&mut self, condition: Condition<'_>) {
        self.write_condition(condition, &[]);
    }

    /// Sets a condition with the time of the last write.
    pub(crate) fn dated_condition(&mut self, condition: Condition<'_>) {
        self.write_condition(condition, &["lastUpdateTime"]);
    }

    /// Sets a condition with the time of the last probe: those of Jobs.
    pub(crate) fn probed_condition(&mut self, condition: Condition<'_>) {
        self.write_condition(condition, &["lastProbeTime"]);
    }

    fn write_condition(&mut self, condition: Condition<'_>, dated: &[&str]) {
        let mut conditions = field::items(&self.status, "/conditions").to_vec();
        let at = conditions.iter().position(|found| found["type"] == condition.name);
        let known = at.map(|at| &conditions[at]);
        let holds = if condition.holds { "True" } else { "False" };
        if known.is_some_and(|known| {
            known["status"] == holds
                && field::text(known, "/reason") == condition.reason
                && field::text(known, "/message") == condition.message
        }) {
            return;
        }
        let now = field::seconds(self.now);
        let since = known
            .filter(|known| known["status"] == holds)
            .and_then(|known| known["lastTransitionTime"].as_str())
            .unwrap_or(&now);
        let mut written = json!({"type": condition.name, "status": holds, "lastTransitionTime": since});
        for (name, text) in [("reason", condition.reason), ("message", condition.message)] {
            if !text.is_empty() {
                field::set(&mut written, &[name], json!(text));
            }
        }
        for name in dated {
            field::set(&mut written, &[name], json!(now));
        }
        match at {
            Some(at) => conditions[at] = written,
            None => conditions.push(written),
        }
        self.set("conditions", conditions);
    }

    /// Changes the status of each container.
    pub(crate) fn change_containers(&mut self, change: impl Fn(&mut Value)) {
        let mut containers = field::items(&self.status, "/containerStatuses").to_vec();
        containers.iter_mut().for_each(change);
        self.set("containerStatuses", containers);
    }

    /// The effect that writes the status, unless it is unchanged.
    pub(crate) fn effect(self) -> Option<Effect> {
        step::update_status(self.object, &self.status)
    }
}

/// Whether a condition of an object is true.
pub fn holds(object: &Value, condition: &str) -> bool {
    find(object, condition).is_some_and(|found| found["status"] == "True")
}

/// A condition of an object.
pub fn find<'a>(object: &'a Value, condition: &str) -> Option<&'a Value> {
    let conditions = field::items(object, "/status/conditions");
    conditions.iter().find(|found| found["type"] == condition)
}
