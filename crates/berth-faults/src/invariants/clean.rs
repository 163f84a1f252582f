//! Claims are given back only if no pod has ever used them, and nobody uses one that is given back.

use super::always::Checked;
use crate::simulator::Author;
use crate::story;
use crate::world::{Doc, Entry, World};
use berth_cluster::field;
use berth_cluster::objects::claims_of;
use berth_core::names::{CLEAN, ROLLED_BACK_FOR};
use std::collections::BTreeSet;

/// The claims, by uid, that containers have seen: there are data on their volumes.
#[derive(Debug, Default)]
pub(super) struct Used(BTreeSet<String>);

impl Used {
    /// A pod changed: what its containers see has data from now on, and must not be given back at that moment.
    pub(super) fn pod_changed(&mut self, entry: &Entry, world: &World) -> Checked {
        let pod = &entry.doc;
        let had = entry.before.as_ref().map_or("", |before| before.text("/status/phase"));
        if entry.gone || pod.text("/status/phase") != "Running" || had == "Running" {
            return Ok(());
        }
        for name in claims_of(&pod.value) {
            let Some(claim) = world.get("PersistentVolumeClaim", &pod.key.namespace, &name) else {
                continue;
            };
            self.0.insert(claim.uid.clone());
            for mark in [CLEAN, ROLLED_BACK_FOR] {
                let is_marked = field::annotation(&claim.value, mark).is_some_and(|text| text.contains(&claim.uid));
                if is_marked && claim.text("/status/phase") != "Bound" {
                    return Err(format!(
                        "{} runs with {}, which has the mark {mark}",
                        pod.key, claim.key
                    ));
                }
            }
        }
        Ok(())
    }

    /// A claim changed: the controller deletes none that was used.
    pub(super) fn claim_changed(&self, author: Author, entry: &Entry, before: Option<&Doc>) -> Checked {
        let claim = &entry.doc;
        let is_told_to_go = before.is_some_and(|before| {
            !field::is_deleting(&before.value) && (entry.gone || field::is_deleting(&claim.value))
        });
        if is_told_to_go && is_controller(author) && self.0.contains(&claim.uid) {
            return Err(format!("{} is given back though a pod used it", claim.key));
        }
        Ok(())
    }

    /// Whether a volume may be taken from a claim that is not deleted: it is given back, and nobody has used it.
    pub(super) fn is_given_back(&self, claim: &Doc) -> bool {
        is_marked(claim) && !self.0.contains(&claim.uid)
    }
}

/// Whether a scheduler has marked this very claim to be given back.
fn is_marked(claim: &Doc) -> bool {
    let mark = field::annotation(&claim.value, ROLLED_BACK_FOR);
    mark.is_some_and(|mark| mark.ends_with(&claim.uid))
}

fn is_controller(author: Author) -> bool {
    match author {
        Author::User => false,
        Author::Process(number) => story::PROCESSES
            .get(number)
            .is_some_and(|name| name.starts_with("controller")),
    }
}

/// A claim that is given back when nothing moves any more.
pub(super) fn given_back_forever(world: &World) -> Option<String> {
    let mut claims = world.of_kind("PersistentVolumeClaim");
    let claim = claims.find(|claim| is_marked(claim) && !field::is_deleting(&claim.value))?;
    Some(format!("{} is given back forever", claim.key))
}
