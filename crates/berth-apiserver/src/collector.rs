//! Garbage collection after a change of an object: dependents, and namespaces and definitions that are being deleted.
//!
//! In a cluster this is the work of controllers; here the server does it, so that deletion has the same effect without
//! them. Each step reads the store again and can be repeated safely. Protection of volumes and claims in use is not
//! done here: that belongs to the volume controller.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use berth_core::time;
use serde_json::Value;

use crate::api::{Api, DEFINITIONS};
use crate::basics::{self, Mended};
use crate::error::ApiError;
use crate::meta;
use crate::remains::{self, Remains};
use crate::store::{Event, EventKind, Object, PageQuery, Ticket};
use crate::types::Served;
use crate::write::{Change, DeleteOptions, Outcome};
use berth_kinds::deletion::{self, FOREGROUND, Fate, ORPHAN, Owner, Propagation};
use berth_kinds::kinds::custom_resource_definition::CLEANUP;

/// The table of pods.
pub(crate) const PODS: &str = "pods";

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Task {
    /// An object that may have lost its owners, or waits for its dependents.
    Examine { table: Arc<str>, key: Arc<str> },
    /// The objects that this UID owned.
    OwnerGone { uid: String },
    /// A namespace that is being deleted, with its content.
    Namespace { name: String },
    /// A namespace that is being deleted and lost some content.
    NamespaceLeft { name: String },
    /// A namespace that may lack default objects.
    Basics { namespace: String },
    /// A definition that is being deleted, with its custom resources.
    Definition { name: String },
    /// A definition that is being deleted and lost some custom resources.
    DefinitionLeft { name: String },
}

/// Tasks in order, without duplicates.
#[derive(Default)]
struct Queue {
    order: VecDeque<Task>,
    waiting: HashSet<Task>,
}

/// The pending work.
#[derive(Default)]
pub(crate) struct Collector {
    queue: Mutex<Queue>,
    /// Default objects that were repaired.
    pub(crate) mended: Mended,
    /// Held while the queue is processed, so that two workers do not race for the same objects.
    working: tokio::sync::Mutex<()>,
}

impl Collector {
    fn push(&self, task: Task) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.waiting.insert(task.clone()) {
            queue.order.push_back(task);
        }
    }

    fn pop(&self) -> Option<Task> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let task = queue.order.pop_front()?;
        queue.waiting.remove(&task);
        Some(task)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .order
            .is_empty()
    }
}

impl Api {
    /// Records what follows from a change. Called once the change is durable.
    pub(crate) fn observe(&self, table: &Arc<str>, event: &Event) {
        let object = &event.object;
        if &**table == DEFINITIONS {
            self.reload_types();
        }
        match event.kind {
            EventKind::Deleted => self.observe_deletion(table, object),
            EventKind::Added | EventKind::Modified => self.observe_state(table, event),
        }
    }

    fn observe_deletion(&self, table: &Arc<str>, object: &Object) {
        if !self.store.dependents(object.uid()).is_empty() {
            self.collector.push(Task::OwnerGone {
                uid: object.uid().to_owned(),
            });
        }
        self.examine_owners_of(object);
        self.observe_content(object);
        self.observe_last_pod(table, object.namespace());
        if basics::is_basic(table, object) {
            self.want_basics(object.namespace());
        }
        if self.is_deleting(DEFINITIONS, table) {
            self.collector.push(Task::DefinitionLeft {
                name: table.to_string(),
            });
        }
    }

    /// Schedules a check of the owners of an object that is deleted or no longer theirs: one may be waiting for that.
    fn examine_owners_of(&self, object: &Object) {
        if object.owners().next().is_none() {
            return;
        }
        for owner in meta::items(&object.value(), &["metadata", "ownerReferences"]) {
            if let Some((table, key)) = self.owner_place(owner, object.namespace()) {
                self.collector.push(Task::Examine { table, key });
            }
        }
    }

    fn want_basics(&self, namespace: &str) {
        self.collector.push(Task::Basics {
            namespace: namespace.to_owned(),
        });
    }

    /// Records that a namespace that is being deleted has no pods left: its other content is deleted next.
    fn observe_last_pod(&self, table: &str, namespace: &str) {
        let is_last = || !remains::has_any(self, PODS, &format!("{namespace}/"));
        if table == PODS && self.is_deleting("namespaces", namespace) && is_last() {
            self.collector.push(Task::Namespace {
                name: namespace.to_owned(),
            });
        }
    }

    /// Records a change of an object in a namespace that is being deleted.
    fn observe_content(&self, object: &Object) {
        if self.is_deleting("namespaces", object.namespace()) {
            self.collector.push(Task::NamespaceLeft {
                name: object.namespace().to_owned(),
            });
        }
    }

    fn observe_state(&self, table: &Arc<str>, event: &Event) {
        let object = &event.object;
        let examine = || Task::Examine {
            table: table.clone(),
            key: object.key().clone(),
        };
        let owners_changed = match &event.previous {
            Some(previous) => !previous.owners().eq(object.owners()),
            None => object.owners().next().is_some(),
        };
        if owners_changed {
            self.collector.push(examine());
            event
                .previous
                .iter()
                .for_each(|previous| self.examine_owners_of(previous));
        }
        if object.field(&["metadata", "deletionTimestamp"]).is_none() {
            if &**table == "namespaces" && event.kind == EventKind::Added {
                self.want_basics(object.name());
            }
            if event.kind == EventKind::Modified && basics::is_basic(table, object) {
                self.want_basics(object.namespace());
            }
            return;
        }
        match &**table {
            "namespaces" => self.collector.push(Task::Namespace {
                name: object.name().to_owned(),
            }),
            DEFINITIONS => self.collector.push(Task::Definition {
                name: object.name().to_owned(),
            }),
            _ => self.observe_content(object),
        }
        self.collector.push(examine());
    }

    fn is_deleting(&self, table: &str, key: &str) -> bool {
        !key.is_empty()
            && self
                .store
                .latest(table, key)
                .is_some_and(|object| object.field(&["metadata", "deletionTimestamp"]).is_some())
    }

    /// Finds work that was left unfinished when the process ended.
    pub(crate) fn recover_work(&self) {
        for (table, key) in self.store.owned() {
            self.collector.push(Task::Examine { table, key });
        }
        for namespace in self.store.latest_all("namespaces") {
            self.want_basics(namespace.name());
        }
        for (table, _) in self.store.tables() {
            let all = PageQuery::all("");
            let objects = self
                .store
                .list(&table, &all)
                .map(|page| page.objects)
                .unwrap_or_default();
            for object in objects {
                if object.field(&["metadata", "deletionTimestamp"]).is_some() {
                    let event = Event {
                        kind: EventKind::Modified,
                        object,
                        previous: None,
                    };
                    self.observe_state(&table, &event);
                }
            }
        }
    }

    /// Works until nothing is left to do.
    pub(crate) async fn collect(&self) {
        let _working = self.collector.working.lock().await;
        while let Some(task) = self.collector.pop() {
            for (table, ticket) in self.work(&task) {
                match ticket.durable().await {
                    Ok(event) => self.observe(&table, &event),
                    // The next stored change triggers this again.
                    Err(error) => {
                        tracing::debug!(%error, "a collected change was not stored");
                        return self.collector.push(task);
                    }
                }
            }
        }
    }

    fn work(&self, task: &Task) -> Vec<(Arc<str>, Ticket)> {
        let mut done = Work {
            api: self,
            tickets: Vec::new(),
        };
        match task {
            Task::Examine { table, key } => done.examine(table, key),
            Task::OwnerGone { uid } => {
                for (table, key) in self.store.dependents(uid) {
                    done.examine(&table, &key);
                }
            }
            Task::Namespace { name } => done.empty_namespace(name),
            Task::NamespaceLeft { name } => done.finish_namespace(name),
            Task::Basics { namespace } => done.furnish(namespace),
            Task::Definition { name } => {
                done.delete_all(name, "");
                done.finish_definition(name);
            }
            Task::DefinitionLeft { name } => done.finish_definition(name),
        }
        done.tickets
    }

    /// The table and key of an owner, if its kind is served here.
    pub(crate) fn owner_place(&self, owner: &Value, namespace: &str) -> Option<(Arc<str>, Arc<str>)> {
        let types = self.types();
        let served = types.by_kind(meta::text(owner, &["apiVersion"]), meta::text(owner, &["kind"]))?;
        // A cluster-scoped object cannot be owned by a namespaced one.
        if served.resource.namespaced && namespace.is_empty() {
            return None;
        }
        let namespace = if served.resource.namespaced { namespace } else { "" };
        let key = meta::key(namespace, meta::text(owner, &["name"]));
        Some((served.table.clone(), key.into()))
    }
}

struct Work<'a> {
    api: &'a Api,
    tickets: Vec<(Arc<str>, Ticket)>,
}

impl Work<'_> {
    fn note(&mut self, served: &Served, answer: Result<Outcome, ApiError>) {
        match answer {
            Ok(Outcome::Stored(ticket)) => self.tickets.push((served.table.clone(), ticket)),
            Ok(Outcome::Unchanged(_) | Outcome::Tried(_)) => {}
            // Another writer was faster, which is fine.
            Err(error) if error.reason == "NotFound" => {}
            Err(error) => tracing::warn!(%error, kind = served.resource.kind, "cannot collect garbage"),
        }
    }

    fn change_of(&self, table: &str, object: &Object) -> Option<Change<'_>> {
        let served = self.api.types().by_table(table)?.clone();
        Some(Change::internal(self.api, served, object.namespace(), object.name()))
    }

    fn delete(&mut self, table: &str, object: &Object, propagation: Propagation) {
        let Some(mut change) = self.change_of(table, object) else {
            return;
        };
        let uid = Some(object.uid().to_owned());
        let options = DeleteOptions {
            propagation: Some(propagation),
            uid,
            ..DeleteOptions::default()
        };
        let answer = change.delete(&options).map(|(outcome, _)| outcome);
        let served = change.served.clone();
        self.note(&served, answer);
    }

    fn edit(&mut self, table: &str, object: &Object, edit: impl Fn(&mut Value)) {
        let Some(mut change) = self.change_of(table, object) else {
            return;
        };
        let answer = change.change(true, |old| {
            let mut new = old.clone();
            edit(&mut new);
            Ok(new)
        });
        let served = change.served.clone();
        self.note(&served, answer);
    }

    fn examine(&mut self, table: &str, key: &str) {
        let Some(object) = self.api.store.latest(table, key) else {
            return;
        };
        let value = object.value();
        if !meta::is_deleting(&value) {
            return self.examine_owners(table, &object, &value);
        }
        if meta::finalizers(&value).contains(&ORPHAN) {
            self.set_dependents_free(table, &object);
        } else if deletion::is_waiting(&value) {
            self.delete_dependents(table, &object);
        }
    }

    fn examine_owners(&mut self, table: &str, object: &Object, value: &Value) {
        let owners = meta::items(value, &["metadata", "ownerReferences"]);
        let owners = owners.iter().map(|owner| self.owner_state(owner, object.namespace()));
        let owners: Vec<Owner> = owners.collect();
        let has_dependents = !self.api.store.dependents(object.uid()).is_empty();
        match deletion::fate(value, &owners, has_dependents) {
            Fate::Stays => {}
            Fate::Keeps(rest) => self.edit(table, object, |new| deletion::set_owners(new, rest.clone())),
            Fate::Goes(propagation) => {
                if propagation == Propagation::Foreground && self.is_in_circle(object) {
                    self.edit(table, object, deletion::unblock);
                    self.api.examine_owners_of(object);
                }
                self.delete(table, object, propagation);
            }
        }
    }

    /// Whether a dependent of an object waits for its own dependents, one of which is the object.
    fn is_in_circle(&self, object: &Object) -> bool {
        let mut dependents = self.api.store.dependents(object.uid()).into_iter();
        dependents.any(|(table, key)| {
            let dependent = self.api.store.latest(&table, &key);
            dependent.is_some_and(|dependent| deletion::is_waiting(&dependent.value()))
        })
    }

    fn owner_state(&self, owner: &Value, namespace: &str) -> Owner {
        let Some((table, key)) = self.api.owner_place(owner, namespace) else {
            // An unknown kind may exist elsewhere: nothing is deleted on a guess.
            return Owner::Solid;
        };
        let found = self.api.store.latest(&table, &key).map(|found| found.value());
        Owner::of(owner, found.as_ref())
    }

    fn set_dependents_free(&mut self, table: &str, object: &Object) {
        let uid = object.uid();
        for (table, key) in self.api.store.dependents(uid) {
            let Some(dependent) = self.api.store.latest(&table, &key) else {
                continue;
            };
            self.edit(&table, &dependent, |new| deletion::disown(new, uid));
        }
        self.edit(table, object, |new| {
            meta::remove_finalizer(new, ORPHAN);
        });
    }

    fn delete_dependents(&mut self, table: &str, object: &Object) {
        let mut blocked = false;
        for (table, key) in self.api.store.dependents(object.uid()) {
            let Some(dependent) = self.api.store.latest(&table, &key) else {
                continue;
            };
            let value = dependent.value();
            blocked |= deletion::blocks(&value, object.uid());
            if meta::is_deleting(&value) {
                continue;
            }
            self.examine_owners(&table, &dependent, &value);
            // An object that was deleted at once no longer blocks; its deletion triggers the owner again.
        }
        if !blocked {
            self.edit(table, object, |new| {
                meta::remove_finalizer(new, FOREGROUND);
            });
        }
    }

    fn furnish(&mut self, namespace: &str) {
        if self.api.store.latest("namespaces", namespace).is_none() || self.api.is_deleting("namespaces", namespace) {
            return;
        }
        let furnished = basics::furnish(self.api, namespace);
        self.tickets.extend(furnished.tickets);
        for (what, error) in furnished.failed {
            tracing::warn!(%error, "cannot create {what}");
        }
    }

    fn empty_namespace(&mut self, name: &str) {
        if !self.api.is_deleting("namespaces", name) {
            return;
        }
        let prefix = format!("{name}/");
        // Pods are deleted first: what they need, such as a network policy, exists as long as they run.
        self.delete_all(PODS, &prefix);
        if !remains::has_any(self.api, PODS, &prefix) {
            for (table, _) in self.api.store.tables() {
                self.delete_all(&table, &prefix);
            }
        }
        // The deletions made just now trigger the namespace again.
        if self.tickets.is_empty() {
            self.finish_namespace(name);
        }
    }

    /// Removes a namespace if it is empty; otherwise its conditions report what is left.
    fn finish_namespace(&mut self, name: &str) {
        let Some(served) = self.api.core_type("Namespace") else {
            return;
        };
        if !self.api.is_deleting("namespaces", name) {
            return;
        }
        let mut change = Change::internal(self.api, served.clone(), "", name);
        let answer = match remains::of_namespace(self.api, name) {
            Remains::Nothing => {
                change.subresource = "finalize".into();
                change.change(true, |old| {
                    let mut new = old.clone();
                    meta::set(&mut new, &["spec", "finalizers"], Value::Null);
                    Ok(new)
                })
            }
            // Reported when fewer are left, if they remain.
            Remains::Many => return,
            Remains::Few(remains) => {
                change.subresource = "status".into();
                let time = time::seconds(change.now);
                change.change(true, |old| Ok(remains.noted_on(old, &time)))
            }
        };
        self.note(&served, answer);
    }

    /// Removes a definition if it has no custom resources left.
    fn finish_definition(&mut self, name: &str) {
        if !self.api.is_deleting(DEFINITIONS, name) || remains::has_any(self.api, name, "") {
            return;
        }
        if let Some(definition) = self.api.store.latest(DEFINITIONS, name) {
            self.edit(DEFINITIONS, &definition, |new| {
                meta::remove_finalizer(new, CLEANUP);
            });
        }
    }

    /// Deletes what is not already being deleted.
    fn delete_all(&mut self, table: &str, prefix: &str) {
        let query = PageQuery::all(prefix);
        let objects = self
            .api
            .store
            .list(table, &query)
            .map(|page| page.objects)
            .unwrap_or_default();
        for object in &objects {
            if object.field(&["metadata", "deletionTimestamp"]).is_none() {
                self.delete(table, object, Propagation::Background);
            }
        }
    }
}
