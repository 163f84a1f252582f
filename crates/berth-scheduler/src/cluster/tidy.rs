//! What a cluster gives up when nobody uses it: texts, columns, and answers that were kept.

use super::Cluster;
use berth_core::trace::Marks;

berth_core::trace!(Cluster {
    binder, resources, taints, ports, disks, attached, images, topology, pods, pod_counts, running_terms, namespaces, workloads, budgets;
    all_nodes, unschedulable, assumptions, touched
});

impl Cluster {
    /// Drops what nobody asked for since the last time. Tells whether resources were dropped: then verdicts that are kept must be
    /// dropped too, since scores depend on which resources there are.
    pub(crate) fn tidy(&mut self) -> bool {
        self.binder.tidy();
        self.attached.tidy();
        self.topology.tidy();
        self.pod_counts.tidy();
        self.resources.tidy()
    }

    /// Frees the texts that nobody has marked.
    pub(crate) fn sweep(&mut self, marks: &Marks) {
        self.binder.sweep(marks);
    }
}
