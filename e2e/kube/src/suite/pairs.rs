//! Users adopt one component at a time: each of Berth's with the Kubernetes counterpart of the other.

use super::world::{Cast, Whose};

/// Pairs in an order that needs the fewest restarts after both were Berth's.
pub(crate) const PAIRS: [(&str, Cast); 3] = [
    (
        "berth scheduler with berth controller",
        Cast {
            scheduler: Whose::Berth,
            volumes: Whose::Berth,
        },
    ),
    (
        "kube-scheduler with berth controller",
        Cast {
            scheduler: Whose::Kubernetes,
            volumes: Whose::Berth,
        },
    ),
    (
        "berth scheduler with kube-controller-manager",
        Cast {
            scheduler: Whose::Berth,
            volumes: Whose::Kubernetes,
        },
    ),
];
