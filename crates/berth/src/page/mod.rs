//! What all pages of berth share: the report of a simulation, and the page of a cluster.

/// Colours, typography, cards, nodes, volumes and bars.
pub(crate) const LOOK: &str = include_str!("look.css");
