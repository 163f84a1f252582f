//! Loads objects from files into the store unchanged: with their UIDs, times and status.
//!
//! Objects that clients create are new, so the server stamps them and ignores the rest. A file may contain an existing
//! cluster: objects that refer to each other by UID, bound claims, running pods. They are loaded together, and the
//! server's own actions (above all garbage collection) start only after the last of them is stored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use berth_kinds::admission;
use berth_kinds::kinds::persistent_volume;
use serde_json::Value;

use crate::api::Api;
use crate::basics;
use crate::error::ApiError;
use crate::meta;
use crate::server::Server;
use crate::store::{JournalError, Ticket};
use crate::types::Served;
use crate::write::{Change, Outcome};

/// An object of a kind that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The object's API version.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// The object's name.
    pub name: String,
}

/// The result of loading objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Created objects.
    pub created: usize,
    /// Objects that already existed and were left unchanged.
    pub existing: usize,
    /// Objects whose owners are neither in the files nor in the store. They are kept, without those owners.
    pub without_owners: usize,
    /// Objects of kinds that are not served.
    pub left_out: Vec<LeftOut>,
}

/// An object cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The API refuses it.
    #[error("{kind} {name}: {reason}")]
    Refused {
        /// The object's kind.
        kind: String,
        /// Its name, with its namespace if it has one.
        name: String,
        /// The API's error.
        reason: String,
    },
    /// The objects cannot be stored.
    #[error("cannot store the objects")]
    Journal(#[from] JournalError),
}

impl Server {
    /// Loads objects into the store with their recorded state. Missing namespaces are created; existing objects are
    /// left unchanged.
    ///
    /// # Errors
    /// If an object is refused, or cannot be stored.
    pub async fn load(&self, objects: Vec<Value>) -> Result<Loaded, LoadError> {
        let mut loading = Loading {
            api: &self.api,
            uids: HashMap::new(),
            used: HashSet::new(),
            tickets: Vec::new(),
            loaded: Loaded::default(),
        };
        let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
        let (definitions, mut rest): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_definition);
        loading.all(definitions)?;
        loading.settle().await?;
        self.api.reload_types();
        rest.sort_by_key(order);
        loading.all(rest)?;
        loading.settle().await?;
        let loaded = loading.loaded;
        self.api.recover_work();
        self.api.collect().await;
        Ok(loaded)
    }
}

/// Objects that admission of others reads come first.
fn order(object: &Value) -> u8 {
    match meta::text(object, &["kind"]) {
        kind if admission::reads(kind) => 0,
        // Services with a fixed address come first, so that no other gets it.
        "Service" if object["spec"]["clusterIP"].is_null() => 2,
        _ => 1,
    }
}

struct Loading<'a> {
    api: &'a Api,
    /// The UID of an object here, by its UID in the files.
    uids: HashMap<String, String>,
    /// UIDs that objects of the files have got.
    used: HashSet<String>,
    tickets: Vec<Ticket>,
    loaded: Loaded,
}

/// An object and its table.
struct Placed {
    served: Arc<Served>,
    namespace: String,
    object: Value,
}

impl Placed {
    fn key(&self) -> String {
        meta::key(&self.namespace, meta::name(&self.object))
    }
}

impl Loading<'_> {
    fn all(&mut self, objects: Vec<Value>) -> Result<(), LoadError> {
        let placed: Vec<Placed> = objects.into_iter().filter_map(|object| self.place(object)).collect();
        // All UIDs are known before the first reference is resolved.
        for placed in &placed {
            self.note_uid(placed);
        }
        placed.into_iter().try_for_each(|placed| self.put(placed))
    }

    async fn settle(&mut self) -> Result<(), LoadError> {
        for ticket in self.tickets.drain(..) {
            ticket.durable().await?;
        }
        Ok(())
    }

    /// Finds the type of an object, and records it if there is none.
    fn place(&mut self, object: Value) -> Option<Placed> {
        let (api_version, kind) = (meta::text(&object, &["apiVersion"]), meta::text(&object, &["kind"]));
        let types = self.api.types();
        let Some(served) = types.by_kind(api_version, kind).filter(|served| !served.is_review) else {
            self.loaded.left_out.push(LeftOut {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                name: meta::name(&object).to_owned(),
            });
            return None;
        };
        let namespace = match (served.resource.namespaced, meta::namespace(&object)) {
            (false, _) => "",
            (true, "") => "default",
            (true, namespace) => namespace,
        };
        Some(Placed {
            served: served.clone(),
            namespace: namespace.to_owned(),
            object,
        })
    }

    fn note_uid(&mut self, placed: &Placed) {
        let uid = meta::uid(&placed.object);
        if uid.is_empty() {
            return;
        }
        let existing = self.api.store.latest(&placed.served.table, &placed.key());
        let here = existing.map_or_else(|| uid.to_owned(), |found| found.uid().to_owned());
        self.uids.entry(uid.to_owned()).or_insert(here);
    }

    fn put(&mut self, placed: Placed) -> Result<(), LoadError> {
        let refused = |error: ApiError| {
            let message = error.to_string();
            // The kind and the name already precede it.
            let reason = message
                .split_once(" is invalid: ")
                .map_or(message.as_str(), |(_, why)| why);
            LoadError::Refused {
                kind: placed.served.resource.kind.clone(),
                name: placed.key(),
                reason: reason.to_owned(),
            }
        };
        if placed.served.resource.namespaced {
            let made = basics::create_namespace(self.api, &placed.namespace).map_err(refused)?;
            self.tickets.extend(made);
        }
        let mut object = placed.object.clone();
        // Values that another server counted are meaningless here.
        for given in ["resourceVersion", "managedFields", "selfLink"] {
            meta::set(&mut object, &["metadata", given], Value::Null);
        }
        // Two objects with one UID would count as one: the second gets another.
        if !self.used.insert(meta::uid(&object).to_owned()) {
            meta::set(&mut object, &["metadata", "uid"], Value::Null);
        }
        if placed.served.resource.kind == persistent_volume::KIND.name {
            persistent_volume::settle(&mut object);
        }
        self.resolve_owners(&mut object, &placed.namespace);
        let claim = meta::text(&object, &["spec", "claimRef", "uid"]);
        if let Some(uid) = self.uids.get(claim).cloned() {
            meta::set(&mut object, &["spec", "claimRef", "uid"], uid.into());
        }
        let mut change = Change::internal(self.api, placed.served.clone(), &placed.namespace, "");
        change.restores = true;
        change.manager = "berth-load".to_owned();
        match change.create(object, &[]) {
            Ok(Outcome::Stored(ticket)) => {
                self.loaded.created += 1;
                self.tickets.push(ticket);
            }
            // Nothing kept it any more when the file was written.
            Ok(Outcome::Unchanged(_) | Outcome::Tried(_)) => {}
            Err(error) if error.reason == "AlreadyExists" => self.loaded.existing += 1,
            Err(error) => return Err(refused(error)),
        }
        Ok(())
    }

    /// Updates the owner references of an object. A file often contains pods whose owners were omitted: those pods are
    /// kept, although a server would collect them as garbage.
    fn resolve_owners(&mut self, object: &mut Value, namespace: &str) {
        let owners = meta::items(object, &["metadata", "ownerReferences"]).to_vec();
        let mut known = Vec::new();
        for mut owner in owners.iter().cloned() {
            let uid = meta::text(&owner, &["uid"]);
            if let Some(here) = self.uids.get(uid).cloned() {
                meta::set(&mut owner, &["uid"], here.into());
            } else if let Some((table, key)) = self.api.owner_place(&owner, namespace)
                && self
                    .api
                    .store
                    .latest(&table, &key)
                    .is_none_or(|found| found.uid() != uid)
            {
                continue;
            }
            known.push(owner);
        }
        if known.len() < owners.len() {
            self.loaded.without_owners += 1;
        }
        if !owners.is_empty() {
            let known = if known.is_empty() {
                Value::Null
            } else {
                Value::Array(known)
            };
            meta::set(object, &["metadata", "ownerReferences"], known);
        }
    }
}
