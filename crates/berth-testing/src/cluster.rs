//! The cluster that tests write to: objects in memory under the rules of an API server, with the history of their
//! states.

use berth_cluster::{Carried, Change, MemoryCluster, View, field, key_of, step};
use berth_core::api::Kind;
use berth_core::effect::{Effect, Event, Guard, Merge, ObjectKey, Patch, Refusal, Target};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// A change, as a watch delivers it.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The object.
    pub key: ObjectKey,
    /// Its new state. `None` if it was deleted.
    pub object: Option<Value>,
}

/// A fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None: it is carried out if its guard holds.
    None,
    /// Its author stops before it.
    Stop,
    /// Another writer changes the object at the same moment. A server that cannot make both writes reports a conflict,
    /// whatever the guard.
    Conflict,
    /// The server refuses it.
    Refused,
    /// It is carried out, but the response is lost.
    AnswerLost,
}

/// A cluster in memory. The namespace of a named object is `default` unless the name includes another one (`team/db`).
#[derive(Clone, Debug)]
pub struct Cluster {
    memory: MemoryCluster,
    log: Vec<Logged>,
    now: Timestamp,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            memory: MemoryCluster::default(),
            log: Vec::new(),
            now: berth_cluster::simulation::START,
        }
    }
}

/// The key of an object by its kind and name.
#[must_use]
pub fn key(kind: &str, name: &str) -> ObjectKey {
    let known = Kind::ALL.iter().find(|known| known.name() == kind);
    let (namespace, name) = match name.split_once('/') {
        Some(parts) => parts,
        None if known.is_none_or(|known| known.is_namespaced()) => ("default", name),
        None => ("", name),
    };
    ObjectKey::new(kind.to_owned(), namespace, name)
}

/// The key of an object that may omit its namespace.
fn with_namespace(object: &Value) -> ObjectKey {
    let key_of_it = key_of(object);
    match key_of_it.namespace.as_str() {
        "" => key(&key_of_it.kind, &key_of_it.name),
        _ => key_of_it,
    }
}

impl Cluster {
    /// A cluster with objects.
    #[must_use]
    pub fn of(objects: impl IntoIterator<Item = Value>) -> Self {
        let mut cluster = Self::default();
        for object in objects {
            cluster.create(object);
        }
        cluster
    }

    /// Creates an object. A second passes, so that two objects differ in age.
    ///
    /// # Errors
    /// If an API server would refuse it.
    pub fn try_create(&mut self, mut object: Value) -> Result<(), Refusal> {
        let key = with_namespace(&object);
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(key.namespace);
        }
        self.now = self
            .now
            .saturating_add(SignedDuration::from_secs(1))
            .unwrap_or(self.now);
        let created = self.memory.create(object, self.now);
        self.take_changes();
        created
    }

    /// Creates an object that must not exist yet.
    #[track_caller]
    pub fn create(&mut self, object: Value) {
        self.try_create(object).unwrap_or_else(|refusal| panic!("{refusal}"));
    }

    /// Creates an object without the finalizers that protect claims and volumes: for tests without a controller that
    /// removes them.
    ///
    /// # Errors
    /// If an API server would refuse it.
    pub fn create_unprotected(&mut self, object: Value) -> Result<(), Refusal> {
        let finalizers = object["metadata"]["finalizers"].clone();
        let key = with_namespace(&object);
        self.try_create(object)?;
        let created = self.memory.objects().find(&key).cloned().unwrap_or_default();
        self.carried(&step::patch(
            &created,
            "bare",
            json!({"metadata": {"finalizers": finalizers}}),
        ));
        Ok(())
    }

    /// Creates an object, or replaces the one with its name.
    #[track_caller]
    pub fn put(&mut self, mut object: Value) {
        let known = self.memory.objects().find(&with_namespace(&object)).cloned();
        let Some(known) = known else {
            return self.create(object);
        };
        for set_by_the_server in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            object["metadata"][set_by_the_server] = known["metadata"][set_by_the_server].clone();
        }
        self.update(&known, &object);
    }

    /// Changes an object, as a user does.
    #[track_caller]
    pub fn edit(&mut self, kind: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let known = self.get(kind, name).cloned();
        let known = known.unwrap_or_else(|| panic!("no {kind} {name}"));
        let mut changed = known.clone();
        change(&mut changed);
        self.update(&known, &changed);
    }

    /// Changes an object by a JSON merge patch, as a user does.
    #[track_caller]
    pub fn patch(&mut self, kind: &str, name: &str, body: &Value) {
        self.edit(kind, name, |object| {
            field::merge(object, body);
        });
    }

    /// Writes what was changed: a status through its subresource, as an API server requires.
    fn update(&mut self, known: &Value, changed: &Value) {
        let mut parts = match field::difference(known, changed) {
            Some(Value::Object(parts)) => parts,
            _ => return,
        };
        let status = parts.remove("status");
        if !parts.is_empty() {
            self.carried(&step::patch_as_seen(known, "edit", Value::Object(parts)));
        }
        if let Some(status) = status {
            self.carried(&Effect::Patch(Patch {
                target: Target::of_value(known),
                guard: Guard::Uid,
                subresource: Some("status"),
                merge: Merge::Json,
                body: json!({ "status": status }),
                name: "edit_status",
            }));
        }
    }

    /// Deletes an object as a user does, respecting finalizers and a pod's grace period.
    pub fn delete(&mut self, kind: &str, name: &str) {
        if let Some(object) = self.get(kind, name).cloned() {
            self.carried(&step::delete(&object));
        }
    }

    /// Deletes an object without a grace period, as a node agent does. Finalizers are respected.
    pub fn delete_now(&mut self, kind: &str, name: &str) {
        if let Some(object) = self.get(kind, name).cloned() {
            self.carried(&step::remove(&object));
        }
    }

    /// Deletes an object for good: removes its finalizers.
    pub fn remove(&mut self, kind: &str, name: &str) {
        if let Some(object) = self.get(kind, name).cloned() {
            self.carried(&step::patch(
                &object,
                "let_go",
                json!({"metadata": {"finalizers": null}}),
            ));
            self.delete_now(kind, name);
        }
    }

    /// Carries out an effect that must not be refused.
    fn carried(&mut self, effect: &Effect) {
        let carried = self.carry_out(std::slice::from_ref(effect));
        carried.done().unwrap_or_else(|refusal| panic!("{refusal}"));
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.memory.objects().find(&key(kind, name))
    }

    /// All objects of a kind.
    pub fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.memory.objects().of_kind(kind)
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.memory.objects().iter()
    }

    /// A text of an object; empty if object or field is missing.
    #[must_use]
    pub fn text(&self, kind: &str, name: &str, pointer: &str) -> &str {
        let value = self.get(kind, name).and_then(|object| object.pointer(pointer));
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// Carries out effects with the executor of simulations.
    pub fn carry_out(&mut self, effects: &[Effect]) -> Carried {
        self.carry_out_with(effects, |_| Fault::None)
    }

    /// Carries out effects with faults of writes. A write that its author stopped before ends the list, and so does one that was
    /// refused or whose response was lost.
    pub fn carry_out_with(&mut self, effects: &[Effect], mut fault: impl FnMut(&Effect) -> Fault) -> Carried {
        let mut carried = Carried::default();
        for effect in effects {
            let befalls = effect.writes_to().map_or(Fault::None, |_| fault(effect));
            if let Err(refusal) = self.carry_out_next(effect, befalls, &mut carried) {
                carried.refused = Some(refusal);
                break;
            }
        }
        carried
    }

    /// Carries out the next effect of a list. `carried` is the result of the list so far.
    ///
    /// # Errors
    /// Why the list ends here.
    pub fn carry_out_next(&mut self, effect: &Effect, fault: Fault, carried: &mut Carried) -> Result<(), Refusal> {
        let Some(key) = effect.writes_to() else {
            return self.carry_out_for_real(effect, carried);
        };
        let unavailable = |message: &str, in_doubt| Refusal::Unavailable {
            key: key.clone(),
            message: message.to_owned(),
            in_doubt,
        };
        match fault {
            Fault::None => self.carry_out_for_real(effect, carried),
            Fault::Stop => Err(unavailable("stopped", false)),
            Fault::Refused => Err(unavailable("forbidden", false)),
            Fault::Conflict => {
                if let Some(object) = self.memory.objects().find(&key).cloned() {
                    let touched = object["metadata"]["annotations"]["touched"]
                        .as_str()
                        .unwrap_or_default();
                    let body = json!({"metadata": {"annotations": {"touched": format!("{touched}.")}}});
                    self.carried(&step::patch(&object, "touch", body));
                }
                Err(Refusal::Conflict(key.clone()))
            }
            Fault::AnswerLost => {
                self.carry_out_for_real(effect, carried)?;
                Err(unavailable("timed out", true))
            }
        }
    }

    fn carry_out_for_real(&mut self, effect: &Effect, carried: &mut Carried) -> Result<(), Refusal> {
        let done = self.memory.carry_out_next(effect, carried, self.now);
        self.take_changes();
        done
    }

    fn take_changes(&mut self) {
        while let Some(change) = self.memory.next_change() {
            let (key, object) = match change {
                Change::Present(key) => {
                    let object = self.memory.objects().find(&key).cloned();
                    (key, object)
                }
                Change::Relabelled(_) => continue,
                Change::Gone(object) => (key_of(&object), None),
            };
            self.log.push(Logged { key, object });
        }
    }

    /// Everything that happened, in order: what watches deliver.
    #[must_use]
    pub fn log(&self) -> &[Logged] {
        &self.log
    }

    /// Everything that happened since the last call, in order. It is removed from the log.
    pub fn take_log(&mut self) -> Vec<Logged> {
        std::mem::take(&mut self.log)
    }

    /// The recorded events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        self.memory.events()
    }

    /// Number of writes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.memory.version()
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }
}
