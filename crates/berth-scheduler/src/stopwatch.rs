//! Measures plugins. This crate reads no clock, so the caller provides one.

use crate::framework::PluginName;

/// An extension point of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionPoint {
    /// Its pre-filter.
    PreFilter,
    /// Its filter on nodes. Cached verdicts are not measured.
    Filter,
    /// Its scores. Cached scores are not measured.
    Score,
}

impl ExtensionPoint {
    /// Every point.
    pub const ALL: [Self; 3] = [Self::PreFilter, Self::Filter, Self::Score];

    /// The point as spelled in kube-scheduler.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::Score => "Score",
        }
    }
}

/// Measures plugins.
pub trait Stopwatch {
    /// A plugin call starts now.
    fn begin(&mut self) {}

    /// The plugin call has ended, and the next one starts.
    fn lap(&mut self, _plugin: PluginName, _point: ExtensionPoint) {}
}

/// Measures nothing, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStopwatch;

impl Stopwatch for NoStopwatch {}
