//! The effects of a change, as a table.

use super::columns::{Column, Columns};
use super::steps::{bindings, moves, placements};
use super::{cpu, indented, names_of, size, title};
use berth_cluster::simulation::{Difference, Room};

pub(crate) fn render(out: &mut String, changes: &Difference, width: usize) {
    title(out, "WHAT WOULD CHANGE");
    if changes.is_empty() {
        indented(out, 2, "nothing", width);
        return;
    }
    for (what, names) in lines(changes) {
        if !names.is_empty() {
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            indented(out, 2, &format!("{what}: {} ({})", all.len(), names_of(&all)), width);
        }
    }
    zones(out, changes, width);
}

/// What changes, grouped by kind of change with the names of the changed objects.
pub(in crate::simulate) fn lines(changes: &Difference) -> [(&'static str, Vec<String>); 8] {
    let (pods, claims) = (&changes.pods, &changes.claims);
    [
        ("pods that move", moves(pods)),
        ("pods that are placed", placements(pods)),
        ("pods that start running", changes.unblocked.clone()),
        ("pods that are evicted", changes.evicted.clone()),
        ("pods that go away", pods.gone.clone()),
        (
            "pods that are pending",
            pods.pending.iter().map(|pod| pod.pod.clone()).collect(),
        ),
        ("claims that are bound", bindings(claims)),
        ("claims that go away", claims.gone.clone()),
    ]
}

fn zones(out: &mut String, changes: &Difference, width: usize) {
    let mut columns = vec![Column::names("FREE IN ZONE")];
    columns.extend(["CPU", "MEMORY", "VOLUMES"].map(Column::number));
    let mut table = Columns::new(&columns);
    for zone in &changes.zones {
        let cells = [zone.zone.clone()].into_iter();
        table.row(cells.chain(room_cells(&zone.before, &zone.after)));
    }
    table.render(out, width);
}

/// CPU, memory and volumes, each as `before → after`.
pub(in crate::simulate) fn room_cells(before: &Room, after: &Room) -> [String; 3] {
    let change = |before: i64, after: i64, words: fn(i64) -> String| match before == after {
        true => words(after),
        false => format!("{} → {}", words(before), words(after)),
    };
    [
        change(before.cpu_milli, after.cpu_milli, cpu),
        change(before.memory_bytes, after.memory_bytes, size),
        change(before.volume_bytes, after.volume_bytes, size),
    ]
}
