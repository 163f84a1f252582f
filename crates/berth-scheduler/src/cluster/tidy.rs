//! Frees what a cluster no longer uses: strings, columns, and cached answers.

use super::Cluster;
use berth_core::trace::Marks;

berth_core::trace!(Cluster {
    binder, resources, taints, ports, disks, attached, images, topology, pods, pod_counts, running_terms, namespaces, workloads, budgets;
    all_nodes, unschedulable, assumptions, touched
});

impl Cluster {
    /// Drops what was not used since the last call. Returns whether resources were dropped: then cached verdicts must be dropped
    /// too, because scores depend on which resources exist.
    pub(crate) fn tidy(&mut self) -> bool {
        self.binder.tidy();
        self.attached.tidy();
        self.topology.tidy();
        self.pod_counts.tidy();
        self.resources.tidy()
    }

    /// Frees the strings that are not marked.
    pub(crate) fn sweep(&mut self, marks: &Marks) {
        self.binder.sweep(marks);
    }
}
