//! Frees what the binder no longer uses: strings, cached answers, and leftovers of namespaces, classes and drivers.

use super::{Overlaid, Overlay, VolumeBinder};
use crate::trace::{Marks, Trace};

impl<T: Trace> Trace for Overlaid<T> {
    fn trace(&self, marks: &mut Marks) {
        let Self { effective, watched } = self;
        effective.trace(marks);
        if let Some(overlay) = watched {
            let Overlay { watched, assumption: _ } = &**overlay;
            watched.trace(marks);
        }
    }
}

crate::trace!(VolumeBinder {
    nodes, volumes, reserved, free, claims, claims_by_name, classes, csi_nodes, drivers, capacities, pools, promises, full, attachments,
    attachment_nodes;
    symbols, volumes_by_name, migrated, pool_changes, class_changes, now, assumptions, gates
});

impl VolumeBinder {
    /// Drops what was not used since the last call. Answers do not change, but the next ones take longer.
    pub fn tidy(&mut self) {
        self.claims_by_name.retain(|_, claims| !claims.is_empty());
        self.reserved.retain(|_, volumes| !volumes.is_empty());
        self.attachments.retain(|_, attachments| !attachments.is_empty());
        self.full.tidy();
        let (classes, volumes) = (&self.classes, &self.volumes);
        self.promises.tidy(|class| classes.contains_key(&class));
        for free in self.free.values_mut() {
            free.tidy(|id| volumes.get(id.0).map(|volume| &volume.effective));
        }
        // To holders of cached answers, a class that is recreated is a different one.
        self.free
            .retain(|class, free| !free.is_empty() || classes.contains_key(class));
    }

    /// Frees the strings that are not marked; see [`Symbols::sweep`](crate::symbols::Symbols::sweep).
    pub fn sweep(&mut self, marks: &Marks) {
        self.symbols.sweep(marks);
    }
}
