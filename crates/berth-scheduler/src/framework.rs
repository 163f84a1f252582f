//! What plugins share: their names and order, and the types of their verdicts.
//!
//! "Does not fit" is a value here, never an error.

use crate::reason::Reason;
use berth_core::symbols::Symbol;
use smallvec::{SmallVec, smallvec};
use std::fmt;

macro_rules! plugin_names {
    ($($(#[$doc:meta])* $name:ident, $weight:expr, $filters:literal;)*) => {
        /// A plugin, named as in kube-scheduler and listed in its default order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum PluginName {
            $($(#[$doc])* $name,)*
            /// The extenders of a configuration: no plugin of a profile, but nodes are refused in its name.
            Extender,
        }

        impl PluginName {
            /// Every plugin of a profile in default order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name as spelled in kube-scheduler.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* Self::Extender => "Extender" }
            }

            /// The plugin with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|plugin| plugin.as_str() == name)
            }

            /// Its default weight if it scores.
            #[must_use]
            pub fn default_weight(self) -> Option<i64> {
                match self { $(Self::$name => $weight,)* Self::Extender => None }
            }

            /// Whether it filters.
            #[must_use]
            pub fn is_filter(self) -> bool {
                match self { $(Self::$name => $filters,)* Self::Extender => false }
            }
        }
    };
}

plugin_names! {
    /// Cordoned nodes.
    NodeUnschedulable, None, true;
    /// Pods that name their node.
    NodeName, None, true;
    /// Taints and tolerations.
    TaintToleration, Some(3), true;
    /// Node selectors and node affinity.
    NodeAffinity, Some(2), true;
    /// Host ports.
    NodePorts, None, true;
    /// Room for the pod's requests.
    NodeResourcesFit, Some(1), true;
    /// Disks that only one pod may use.
    VolumeRestrictions, None, true;
    /// Attach limits of nodes.
    NodeVolumeLimits, None, true;
    /// Claims, volumes and provisioning.
    VolumeBinding, Some(1), true;
    /// Zone labels of volumes.
    VolumeZone, None, true;
    /// Spreading of pods.
    PodTopologySpread, Some(2), true;
    /// Pod affinity.
    InterPodAffinity, Some(2), true;
    /// Pods that need devices allocated: refused, because nothing here allocates any.
    DynamicResources, None, true;
    /// Pods that must be scheduled together with others: refused, because pods are scheduled one by one here.
    GangScheduling, None, true;
    /// Balanced use of a node's resources.
    NodeResourcesBalancedAllocation, Some(1), false;
    /// Images that a node already has.
    ImageLocality, Some(1), false;
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginSet(u32);

impl PluginSet {
    /// The set of one plugin.
    #[must_use]
    pub fn of(plugin: PluginName) -> Self {
        Self(1 << plugin as u32)
    }

    /// Adds a plugin.
    pub fn insert(&mut self, plugin: PluginName) {
        self.0 |= Self::of(plugin).0;
    }

    /// Whether a plugin is in the set.
    #[must_use]
    pub fn contains(self, plugin: PluginName) -> bool {
        self.0 & Self::of(plugin).0 != 0
    }

    /// The plugins of the set, in default order.
    pub fn iter(self) -> impl Iterator<Item = PluginName> {
        let all = PluginName::ALL.iter().copied();
        all.chain([PluginName::Extender])
            .filter(move |plugin| self.contains(*plugin))
    }
}

/// What a refusal means for preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Evicting pods could help.
    Unschedulable,
    /// Evicting pods cannot help.
    UnschedulableAndUnresolvable,
    /// An object is invalid, so that it is unknown.
    Error,
}

impl Code {
    /// The code as spelled in kube-scheduler.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Self::Error => "Error",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A plugin's refusal of a node, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The plugin.
    pub plugin: PluginName,
    /// What it means for preemption.
    pub code: Code,
    /// Why; at least one, in the plugin's order.
    pub reasons: SmallVec<[Reason; 1]>,
}

impl Refusal {
    /// A refusal that evicting pods could resolve.
    #[must_use]
    pub fn unschedulable(plugin: PluginName, reason: Reason) -> Self {
        Self::of(plugin, Code::Unschedulable, reason)
    }

    /// A refusal that evicting pods cannot resolve.
    #[must_use]
    pub fn unresolvable(plugin: PluginName, reason: Reason) -> Self {
        Self::of(plugin, Code::UnschedulableAndUnresolvable, reason)
    }

    /// A refusal for one reason.
    #[must_use]
    pub fn of(plugin: PluginName, code: Code, reason: Reason) -> Self {
        Self {
            plugin,
            code,
            reasons: smallvec![reason],
        }
    }
}

/// The result of a plugin's pre-filter.
#[derive(Clone, Debug, PartialEq)]
pub enum PreFilter<S> {
    /// It accepts every node and need not be run.
    Skip,
    /// It refuses every node.
    Refused(Refusal),
    /// It must be run on each node with this state.
    Ready {
        /// Its state for the pod.
        state: S,
        /// The only nodes on which it must be run, by name.
        only_nodes: Option<Box<[Symbol]>>,
    },
}

impl<S> PreFilter<S> {
    /// A state for all nodes.
    pub fn ready(state: S) -> Self {
        Self::Ready {
            state,
            only_nodes: None,
        }
    }

    /// The result with another type of state.
    pub fn map<T>(self, form: impl FnOnce(S) -> T) -> PreFilter<T> {
        match self {
            Self::Skip => PreFilter::Skip,
            Self::Refused(refusal) => PreFilter::Refused(refusal),
            Self::Ready { state, only_nodes } => PreFilter::Ready {
                state: form(state),
                only_nodes,
            },
        }
    }
}

/// The best score of a plugin for a node.
pub const MAX_NODE_SCORE: i64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for plugin in PluginName::ALL {
            assert_eq!(PluginName::from_name(plugin.as_str()), Some(*plugin));
        }
        assert_eq!(PluginName::from_name("DefaultBinder"), None);
    }
}
