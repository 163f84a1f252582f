//! What all pages of berth have in common: the report of a simulation, and the page of a cluster.

/// Colours, type, cards, nodes, volumes and bars.
pub(crate) const LOOK: &str = include_str!("look.css");
