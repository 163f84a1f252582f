//! Power cuts, at any moment. A killed process leaves the page cache behind, so killing cannot reveal a missing sync. This disk can.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::super::table::Event;
use super::torn_disk::{Disk, Random};
use super::*;

type State = BTreeMap<String, u64>;

fn object(key: &str, version: u64) -> Arc<Object> {
    let filling = "x".repeat((version as usize * 37) % 3000);
    let value = json!({"metadata": {"name": key}, "filling": filling});
    Arc::new(Object::encode(key.into(), version, value).unwrap())
}

/// Random batches: the objects by version, and the number of disk steps after which each version was durable.
fn write_batches(journal: &mut RedbJournal, disk: &Disk, random: &mut Random) -> (Vec<State>, Vec<usize>) {
    let mut states = vec![State::new()];
    let mut durable_at = vec![disk.steps()];
    let mut live: BTreeMap<String, Arc<Object>> = BTreeMap::new();
    for _ in 0..40 {
        let mut batch = Vec::new();
        for _ in 0..=random.below(4) {
            let version = states.len() as u64;
            let key = format!("ns/{}", random.below(12));
            let previous = live.get(&key).cloned();
            let kind = match &previous {
                None => EventKind::Added,
                Some(_) if random.below(3) == 0 => EventKind::Deleted,
                Some(_) => EventKind::Modified,
            };
            let object = object(&key, version);
            if kind == EventKind::Deleted {
                live.remove(&key);
            } else {
                live.insert(key, object.clone());
            }
            batch.push(Record {
                table: "pods".into(),
                event: Arc::new(Event { kind, object, previous }),
            });
            states.push(
                live.iter()
                    .map(|(key, object)| (key.clone(), object.version()))
                    .collect(),
            );
        }
        journal.commit(&batch).unwrap();
        durable_at.resize(states.len(), disk.steps());
    }
    (states, durable_at)
}

#[test]
fn what_was_durable_survives_a_power_cut_at_any_moment() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let disk = Disk::formatted();
    let (mut journal, _) = disk.journal();
    let (states, durable_at) = write_batches(&mut journal, &disk, &mut random);
    let last = disk.steps();

    let mut later = 0;
    for _ in 0..300 {
        let steps = durable_at[0] + random.below(last - durable_at[0] + 1);
        let promised = durable_at.iter().rposition(|at| *at <= steps).unwrap();
        let (_, snapshot) = disk.after_cut(steps, &mut random).journal();
        let found: State = snapshot
            .objects
            .iter()
            .map(|(_, object)| (object.key().to_string(), object.version()))
            .collect();
        assert!(
            snapshot.version >= promised as u64,
            "{} came back as {}",
            promised,
            snapshot.version
        );
        assert_eq!(found, states[snapshot.version as usize], "version {}", snapshot.version);
        later += usize::from(snapshot.version > promised as u64);
    }
    assert!(later > 0, "no cut fell between a commit and its answer");
}
