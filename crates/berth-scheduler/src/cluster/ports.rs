//! Host ports of running pods, by port: for a pod that needs one, only the nodes that use it are examined.

use crate::pod::HostPort;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Addresses on which a node uses a port, sorted, with the number of users. Sorting makes the order of arrival
/// irrelevant.
type Holders = SmallVec<[(Symbol, u32); 1]>;

/// The host ports in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    in_use: FxHashMap<(Symbol, i32), FxHashMap<NodeId, Holders>>,
}

berth_core::trace!(Ports { in_use });

impl Ports {
    pub(super) fn add(&mut self, node: NodeId, ports: &[HostPort]) {
        for port in ports {
            let nodes = self.in_use.entry((port.protocol, port.port)).or_default();
            let holders = nodes.entry(node).or_default();
            match holders.iter_mut().find(|(ip, _)| *ip == port.ip) {
                Some((_, count)) => *count += 1,
                None => {
                    holders.push((port.ip, 1));
                    holders.sort_unstable();
                }
            }
        }
    }

    pub(super) fn remove(&mut self, node: NodeId, ports: &[HostPort]) {
        for port in ports {
            let key = (port.protocol, port.port);
            let Some(nodes) = self.in_use.get_mut(&key) else {
                continue;
            };
            if let Some(holders) = nodes.get_mut(&node) {
                for (_, count) in holders.iter_mut().filter(|(ip, _)| *ip == port.ip) {
                    *count -= 1;
                }
                holders.retain(|(_, count)| *count > 0);
                if holders.is_empty() {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.in_use.remove(&key);
            }
        }
    }

    /// Whether a port is taken on a node.
    #[must_use]
    pub fn conflicts(&self, node: NodeId, wanted: &HostPort, any: Symbol) -> bool {
        self.in_use
            .get(&(wanted.protocol, wanted.port))
            .and_then(|nodes| nodes.get(&node))
            .is_some_and(|holders| conflict(holders, wanted, any))
    }

    /// The nodes on which a port is taken.
    pub fn conflicting<'a>(&'a self, wanted: &'a HostPort, any: Symbol) -> impl Iterator<Item = NodeId> + 'a {
        let nodes = self.in_use.get(&(wanted.protocol, wanted.port)).into_iter().flatten();
        nodes
            .filter(move |(_, holders)| conflict(holders, wanted, any))
            .map(|(node, _)| *node)
    }
}

/// An address conflicts with itself; `any` conflicts with all.
fn conflict(holders: &Holders, wanted: &HostPort, any: Symbol) -> bool {
    wanted.ip == any || holders.iter().any(|(ip, _)| *ip == wanted.ip || *ip == any)
}
