//! Watches: each delivers the changes of one kind to one process, late, in parts, or as a list.

use super::{Event, Life, Simulator};
use crate::chance::mix;
use crate::component::News;
use crate::mutation::Mutation;
use crate::process::Role;
use crate::world::{Doc, Entry, latency};
use berth_cluster::field;
use berth_core::names::{CLEAN, ROLLBACK};
use std::rc::Rc;

impl Simulator {
    /// Objects changed: all watches of their kinds will deliver it.
    pub(super) fn notify(&mut self, entries: &[Entry]) {
        for entry in entries {
            let Some(kind) = crate::world::kind_number(&entry.doc.key.kind) else {
                continue;
            };
            for number in 0..self.processes.len() {
                self.schedule_watch(number, kind);
            }
        }
    }

    /// Schedules a delivery of a watch soon, unless one is scheduled.
    pub(super) fn schedule_watch(&mut self, number: usize, kind: usize) {
        let (now, jitter) = (self.world.now, self.jitter);
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        let life = Life::of(process);
        let Some(watch) = process.watch(kind).filter(|watch| !watch.scheduled) else {
            return;
        };
        watch.scheduled = true;
        let delay = latency(&[jitter, 1, number as u64, kind as u64, watch.deliveries]);
        let at = (now + delay).max(watch.held_until);
        self.at(at, Event::Watch { life, kind });
    }

    /// A watch delivers all or some of its changes.
    pub(super) fn deliver(&mut self, life: Life, kind: usize) {
        let (now, jitter, number) = (self.world.now, self.jitter, life.process);
        let process = self.processes.get_mut(number);
        let Some(process) = process.filter(|process| Life::of(process) == life) else {
            return;
        };
        let (role, was_complete) = (process.role, process.is_complete());
        let Some(watch) = process.watches.iter_mut().find(|watch| watch.kind == kind) else {
            return;
        };
        if watch.held_until > now {
            let at = watch.held_until;
            self.at(at, Event::Watch { life, kind });
            return;
        }
        watch.scheduled = false;
        watch.deliveries += 1;
        let (Some(log), Some(name)) = (self.world.logs.get(kind), crate::world::KINDS.get(kind)) else {
            return;
        };
        let mut news = Vec::new();
        if watch.relist || !watch.listed {
            news.extend(watch.list(role, self.world.of_kind(name), log.len()));
        } else {
            // Changes that arrive together are applied together, or one after the other.
            let all = mix(&[jitter, 4, number as u64, kind as u64, watch.deliveries]).is_multiple_of(2);
            let upside_down = watch.was_held && self.mutation == Some(Mutation::ChangesOutOfOrder);
            let count = if all || upside_down { log.len() } else { watch.next + 1 };
            while watch.next < count.min(log.len()) {
                news.extend(watch.follow(role, &log[watch.next]));
                watch.was_held = false;
            }
            if upside_down {
                news.reverse();
            }
        }
        let more = watch.next < log.len();
        if role == Role::Scheduler && *name == "Pod" {
            let bound = bound_pods(&mut news).map(|doc| doc.uid.clone());
            process.seen_bound.extend(bound);
            if self.mutation == Some(Mutation::BoundPodWaits) {
                bound_pods(&mut news).for_each(lose_node);
            }
        }
        if self.mutation == Some(Mutation::UsedIsClean) && matches!(role, Role::Scheduler | Role::Controller) {
            news.iter_mut().for_each(count_as_clean);
        }
        let changes = news.iter().filter(|one| !matches!(one, News::Listed));
        process.in_batch = changes.count() > 1;
        let completes = !was_complete && process.is_complete();
        self.turn(life, |component, turn| {
            component.take(name, news, turn);
            if completes {
                component.complete();
            }
        });
        if let Some(process) = self.processes.get_mut(number) {
            process.in_batch = false;
        }
        if more {
            self.schedule_watch(number, kind);
        }
    }
}

/// The pods among the news that have a node.
fn bound_pods(news: &mut [News]) -> impl Iterator<Item = &mut Rc<Doc>> {
    let pods = news.iter_mut().filter_map(|one| match one {
        News::Applied(doc) => Some(doc),
        News::Removed(..) | News::Listed => None,
    });
    pods.filter(|doc| !doc.text("/spec/nodeName").is_empty())
}

/// Shows a bound claim that may be rolled back as one that no pod has used, for a bug.
fn count_as_clean(news: &mut News) {
    if let News::Applied(doc) = news
        && field::annotation(&doc.value, ROLLBACK).is_some()
        && doc.text("/status/phase") == "Bound"
        && doc.key.kind == "PersistentVolumeClaim"
    {
        let mut value = doc.value.clone();
        field::set(&mut value, &["metadata", "annotations", CLEAN], doc.uid.as_str().into());
        field::set(&mut value, &["status", "phase"], "Pending".into());
        *doc = Rc::new(Doc::of(value));
    }
}

/// Shows a pod that was labelled late without its node, for a bug.
fn lose_node(doc: &mut Rc<Doc>) {
    if field::label(&doc.value, "late") == "yes" {
        let mut value = doc.value.clone();
        field::unset(&mut value, &["spec", "nodeName"]);
        *doc = Rc::new(Doc::of(value));
    }
}
