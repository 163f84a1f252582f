//! Invariants once faults have stopped and nothing changes any more.

use super::clean::given_back_forever;
use super::held::held_for_ever;
use crate::driver::Driver;
use crate::simulator::Simulator;
use crate::trace::{self, Trace};
use berth_cluster::field;
use std::collections::BTreeSet;

/// Checks the end of a story.
pub(crate) fn check(mut simulator: Simulator) -> Simulator {
    let problem = nothing_under_way(&simulator)
        .or_else(|| held_for_ever(&simulator.world))
        .or_else(|| given_back_forever(&simulator.world))
        .or_else(|| deleted_are_gone(&simulator))
        .or_else(|| backend_is_clean(&simulator));
    match problem {
        Some(problem) => simulator.fail(problem),
        None => {
            if let Some(problem) = second_run(&mut simulator) {
                simulator.fail(problem);
            }
        }
    }
    simulator
}

fn nothing_under_way(simulator: &Simulator) -> Option<String> {
    let busy = simulator.processes.iter().find(|process| !process.jobs.is_empty());
    if let Some(process) = busy {
        return Some(format!("{} has work under way forever", process.name));
    }
    simulator.processes.iter().find_map(|process| {
        let scheduler = process.component.as_ref()?.scheduler()?;
        let waiting = scheduler.bindings_under_way();
        (waiting > 0).then(|| format!("{} waits forever for {waiting} bindings", process.name))
    })
}

fn deleted_are_gone(simulator: &Simulator) -> Option<String> {
    let kinds = ["Pod", "PersistentVolumeClaim", "PersistentVolume", "StatefulSet"];
    let mut all = kinds.into_iter().flat_map(|kind| simulator.world.of_kind(kind));
    let stays = all.find(|doc| field::is_deleting(&doc.value) && !waits_for_others(simulator, doc))?;
    Some(format!("{} was deleted and does not go", stays.key))
}

/// Whether a deleted object is kept by something that is not being deleted: a pod that uses a claim, a claim that has a
/// volume.
fn waits_for_others(simulator: &Simulator, doc: &crate::world::Doc) -> bool {
    match &*doc.key.kind {
        "PersistentVolumeClaim" => simulator.world.of_kind("Pod").any(|pod| {
            !pod.text("/spec/nodeName").is_empty()
                && berth_cluster::objects::claims_of(&pod.value).any(|name| name == doc.key.name)
        }),
        "PersistentVolume" => {
            let claims = simulator.world.of_kind("PersistentVolumeClaim");
            let mut claims = claims.filter(|claim| claim.text("/spec/volumeName") == doc.key.name);
            doc.text("/status/phase") == "Bound" && claims.any(|claim| claim.uid == doc.text("/spec/claimRef/uid"))
        }
        _ => false,
    }
}

/// The backend holds exactly the volumes that objects refer to.
fn backend_is_clean(simulator: &Simulator) -> Option<String> {
    if !simulator.always.lost_classes.is_empty() {
        // Without its class the request to the backend cannot be repeated: leftovers are reported in an event.
        return None;
    }
    let named: BTreeSet<&str> = simulator
        .world
        .of_kind("PersistentVolume")
        .map(|volume| volume.key.name.as_str())
        .collect();
    let left = simulator.driver.volumes.keys();
    let mut left = left.filter(|name| !named.contains(name.as_str()) && !simulator.always.retained.contains(*name));
    left.next()
        .map(|name| format!("the backend holds {name}, which no object names"))
}

/// All processes restart on the current state: whatever is written then should have been written before.
fn second_run(simulator: &mut Simulator) -> Option<String> {
    let (cluster, now) = (simulator.world.cluster.clone(), simulator.world.now + 1_000);
    let driver = Driver {
        volumes: simulator.driver.volumes.clone(),
        ..Driver::default()
    };
    let mut second = Simulator::after(cluster, now, driver, Trace::default());
    second.run();
    if let Some(problem) = second.failure {
        return Some(format!("after a restart of everything: {problem}"));
    }
    let entries = second.world.logs.iter().flatten();
    let entry = entries
        .filter(|entry| !says_the_same(entry))
        .min_by_key(|entry| entry.at)?;
    Some(format!(
        "a restart of everything finds something to do: {}",
        trace::change(entry)
    ))
}

/// Whether a change only affects why and since when a pod waits: a sleeping pod is not evaluated again when that changes and it
/// still does not fit.
fn says_the_same(entry: &crate::world::Entry) -> bool {
    let Some(before) = entry
        .before
        .as_ref()
        .filter(|_| !entry.gone && entry.doc.key.kind == "Pod")
    else {
        return false;
    };
    let without_time = |doc: &crate::world::Doc| {
        let mut value = doc.value.clone();
        field::unset(&mut value, &["metadata", "resourceVersion"]);
        if let Some(conditions) = value
            .pointer_mut("/status/conditions")
            .and_then(|list| list.as_array_mut())
        {
            conditions.retain(|condition| condition["type"] != "PodScheduled" || condition["status"] != "False");
            if conditions.is_empty() {
                field::unset(&mut value, &["status", "conditions"]);
            }
        }
        value
    };
    without_time(before) == without_time(&entry.doc)
}
