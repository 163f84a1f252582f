//! Follows advice about nodes.

use super::{NEW, Trial};
use crate::explain::demands::{Demand, Label};
use berth_core::api::{self, Object};
use berth_core::names;
use berth_core::quantity::Quantity;

impl Trial<'_> {
    /// Adds an empty node with room for the pod, like another one, in its own topology domains, with storage for the claims
    /// that have no volume yet. Of the existing volumes it reaches those of the other one's zone, not its local ones. Returns
    /// its name.
    pub(in crate::explain::advice) fn add_node_like(&mut self, node: &str, apart_by: &[String]) -> Option<String> {
        let name = format!("{NEW}-node");
        self.add_node(&name, node, apart_by)?;
        self.ask_for_any_node();
        let claims = 0..self.report.claims.len();
        claims.for_each(|index| {
            self.provide(index, &name);
        });
        self.drop_inline_sizes();
        Some(name)
    }

    /// Adds a node that existed before: empty, like another one in its own topology domains, with the labels by which a volume
    /// names it.
    pub(in crate::explain::advice) fn bring_back(
        &mut self,
        name: &str,
        like: &str,
        apart_by: &[String],
        volume: &str,
    ) -> Option<()> {
        self.add_node(name, like, apart_by)?;
        let affinity = self.objects.volumes.get(volume)?.spec.node_affinity.as_ref();
        let term = affinity?.required.as_ref()?.node_selector_terms.first()?.clone();
        self.edit_node(name, |node| {
            let named = term.match_expressions.into_iter().filter(|one| one.operator == "In");
            for requirement in named {
                let value = requirement.values.into_iter().next();
                node.metadata.labels.extend(value.map(|value| (requirement.key, value)));
            }
        });
        Some(())
    }

    fn add_node(&mut self, name: &str, like: &str, apart_by: &[String]) -> Option<()> {
        let mut new = self.objects.nodes.get(like)?.clone();
        name.clone_into(&mut new.metadata.name);
        // Drivers of local volumes label nodes with their names, each with its own key.
        for value in new.metadata.labels.values_mut().filter(|value| value.as_str() == like) {
            name.clone_into(value);
        }
        new.metadata.labels.insert(names::HOSTNAME.to_owned(), name.to_owned());
        for key in apart_by {
            new.metadata.labels.insert(key.clone(), NEW.to_owned());
        }
        new.spec = api::NodeSpec::default();
        let containers = self.pod.spec.containers.iter().chain(&self.pod.spec.init_containers);
        let lists = containers.map(|container| &container.resources.requests);
        let own = self.pod.spec.resources.as_ref().map(|resources| &resources.requests);
        let wanted = lists.chain(own).chain([&self.pod.spec.overhead]).flatten();
        for (resource, amount) in wanted {
            let has = new.status.allocatable.entry(resource.clone()).or_default();
            *has = Quantity::from_milli(has.milli_value().saturating_add(amount.milli_value()));
        }
        new.status
            .allocatable
            .insert("pods".to_owned(), Quantity::from_units(110));
        let csi_node = self.objects.csi_nodes.get(like).cloned();
        self.put(Object::Node(Box::new(new)));
        if let Some(mut csi_node) = csi_node {
            name.clone_into(&mut csi_node.metadata.name);
            self.put(Object::CsiNode(Box::new(csi_node)));
        }
        Some(())
    }

    /// Labels the node as the pod requires; if labels describe the node itself, the pod accepts any node instead.
    pub(super) fn satisfy(&mut self, demands: &[Demand], node: &str) -> bool {
        let labels: Option<Vec<Label<'_>>> = demands.iter().map(Demand::label).collect();
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else {
            self.ask_for_any_node();
            return true;
        };
        self.edit_node(node, |node| {
            for label in labels {
                match label {
                    Label::Set(key, value) => {
                        node.metadata.labels.insert(key.to_owned(), value.to_owned());
                    }
                    Label::Remove(key) => {
                        node.metadata.labels.remove(key);
                    }
                }
            }
        })
    }

    pub(super) fn edit_node(&mut self, name: &str, change: impl FnOnce(&mut api::Node)) -> bool {
        let found = self.changed.nodes.get(name).or_else(|| self.objects.nodes.get(name));
        let Some(mut node) = found.cloned() else {
            return false;
        };
        change(&mut node);
        self.put(Object::Node(Box::new(node)));
        true
    }

    pub(super) fn edit_csi_node(&mut self, name: &str, change: impl FnOnce(&mut api::CsiNode)) -> bool {
        let found = self
            .changed
            .csi_nodes
            .get(name)
            .or_else(|| self.objects.csi_nodes.get(name));
        let mut node = found.cloned().unwrap_or_default();
        name.clone_into(&mut node.metadata.name);
        change(&mut node);
        self.put(Object::CsiNode(Box::new(node)));
        true
    }
}
