//! Services and workloads: which pods belong together, for default spreading.

use super::anchors::Anchors;
use crate::pod::Pod;
use berth_core::api::{self, Kind, Object};
use berth_core::label::{LabelRequirement, LabelSelector};
use berth_core::symbols::{Symbol, Symbols};
use berth_core::trace::{Marks, Trace};
use rustc_hash::FxHashMap;

/// The identity of a workload.
type Key = (Kind, Symbol, Box<str>);

type Names = Box<[Box<str>]>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    namespace: Symbol,
    selector: LabelSelector,
}

berth_core::trace!(Service { namespace, selector });

/// The services and workloads of all namespaces.
#[derive(Clone, Debug, Default)]
pub struct Workloads {
    services: Vec<Option<Service>>,
    free: Vec<u32>,
    service_ids: FxHashMap<(Symbol, Box<str>), u32>,
    anchors: Anchors,
    /// Selectors of the workloads that own pods.
    owners: FxHashMap<Key, LabelSelector>,
    /// The names of the claim templates of stateful sets that have some.
    claim_templates: FxHashMap<(Symbol, Box<str>), Names>,
}

impl Trace for Workloads {
    fn trace(&self, marks: &mut Marks) {
        let Self {
            services,
            owners,
            service_ids,
            claim_templates,
            free: _,
            anchors: _,
        } = self;
        services.trace(marks);
        service_ids.trace(marks);
        claim_templates.trace(marks);
        for ((_, namespace, _), selector) in owners {
            namespace.trace(marks);
            selector.trace(marks);
        }
    }
}

impl Workloads {
    /// Adds or updates a service or a workload; other kinds are ignored.
    pub(super) fn upsert(&mut self, symbols: &mut Symbols, object: &Object) {
        let metadata = object.metadata();
        self.remove(symbols, object.kind(), &metadata.namespace, &metadata.name);
        let selector = match object {
            Object::Service(service) => with_labels(symbols, service.spec.selector.as_ref()),
            Object::ReplicationController(owner) => with_labels(symbols, owner.spec.selector.as_ref()),
            Object::ReplicaSet(owner) => LabelSelector::new(symbols, owner.spec.selector.as_ref()),
            Object::StatefulSet(owner) => LabelSelector::new(symbols, owner.spec.selector.as_ref()),
            _ => return,
        };
        let namespace = symbols.intern(&metadata.namespace);
        let name: Box<str> = metadata.name.as_str().into();
        if let Object::StatefulSet(set) = object
            && !set.spec.volume_claim_templates.is_empty()
        {
            let templates = set.spec.volume_claim_templates.iter();
            let names = templates.map(|template| template.metadata.name.as_str().into());
            self.claim_templates.insert((namespace, name.clone()), names.collect());
        }
        if object.kind() != Kind::Service {
            self.owners.insert((object.kind(), namespace, name), selector);
            return;
        }
        let id = self.free.pop().unwrap_or(self.services.len() as u32);
        if id as usize == self.services.len() {
            self.services.push(None);
        }
        self.anchors.insert(id, &selector);
        self.services[id as usize] = Some(Service { namespace, selector });
        self.service_ids.insert((namespace, name), id);
    }

    /// Removes a service or a workload.
    pub(super) fn remove(&mut self, symbols: &Symbols, kind: Kind, namespace: &str, name: &str) {
        let Some(namespace) = symbols.get(namespace) else {
            return;
        };
        if kind == Kind::StatefulSet {
            self.claim_templates.remove(&(namespace, name.into()));
        }
        if kind != Kind::Service {
            self.owners.remove(&(kind, namespace, name.into()));
        } else if let Some(id) = self.service_ids.remove(&(namespace, name.into()))
            && let Some(service) = self.services[id as usize].take()
        {
            self.anchors.remove(id, &service.selector);
            self.free.push(id);
        }
    }

    /// Whether a stateful set makes a claim of this name for a pod of this name, and makes it again if it is gone.
    #[must_use]
    pub fn makes_claim(&self, namespace: Symbol, set: &str, pod: &str, claim: &str) -> bool {
        let templates = self.claim_templates.get(&(namespace, set.into()));
        let template = claim.strip_suffix(pod).and_then(|rest| rest.strip_suffix('-'));
        template.is_some_and(|template| templates.into_iter().flatten().any(|name| **name == *template))
    }

    /// Selects the pods that belong with a pod: those of its services and of the workload that owns it. `None` if there
    /// are neither.
    #[must_use]
    pub fn selector_for(&self, pod: &Pod) -> Option<LabelSelector> {
        let requirements: Vec<LabelRequirement> = self.requirements_for(pod).cloned().collect();
        (!requirements.is_empty()).then(|| LabelSelector::of(requirements))
    }

    /// Whether [`Self::selector_for`] finds one.
    #[must_use]
    pub fn has_selector_for(&self, pod: &Pod) -> bool {
        self.requirements_for(pod).next().is_some()
    }

    fn requirements_for<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a LabelRequirement> + 'a {
        let footprint = &pod.footprint;
        let candidates = self.anchors.candidates(&footprint.labels);
        let services = candidates.filter_map(|id| self.services[id as usize].as_ref());
        let own = services.filter(move |service| {
            service.namespace == footprint.namespace && service.selector.matches(&footprint.labels)
        });
        let controller = pod.controller.as_ref().filter(|_| !self.owners.is_empty());
        let owner = controller.and_then(|(kind, name)| self.owners.get(&(*kind, footprint.namespace, name.clone())));
        own.map(|service| &service.selector)
            .chain(owner)
            .flat_map(LabelSelector::requirements)
    }
}

fn with_labels(symbols: &mut Symbols, labels: Option<&api::StringMap>) -> LabelSelector {
    let Some(labels) = labels else {
        return LabelSelector::Nothing;
    };
    let selector = api::LabelSelector {
        match_labels: labels.clone(),
        ..api::LabelSelector::default()
    };
    LabelSelector::new(symbols, Some(&selector))
}
