//! How long plugins take. This crate looks at no clock, so whoever has one brings it.

use crate::framework::PluginName;

/// What a plugin is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionPoint {
    /// What it makes of the pod.
    PreFilter,
    /// Which nodes it refuses. Verdicts that are kept are not asked for.
    Filter,
    /// How good nodes are. Scores that are kept are not asked for.
    Score,
}

impl ExtensionPoint {
    /// Every point.
    pub const ALL: [Self; 3] = [Self::PreFilter, Self::Filter, Self::Score];

    /// The point as kube-scheduler spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::Score => "Score",
        }
    }
}

/// Takes the time of plugins.
pub trait Stopwatch {
    /// A plugin is asked something now.
    fn begin(&mut self) {}

    /// The plugin that was asked has answered, and the next one is asked.
    fn lap(&mut self, _plugin: PluginName, _point: ExtensionPoint) {}
}

/// Takes no time, and none is lost by it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStopwatch;

impl Stopwatch for NoStopwatch {}
