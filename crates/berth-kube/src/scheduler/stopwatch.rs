//! Measures plugin durations in one of ten decisions, as kube-scheduler does: reading the clock for every plugin of
//! every decision would cost more than some plugins do.

use super::metrics::Metrics;
use berth_scheduler::framework::PluginName;
use berth_scheduler::stopwatch::{ExtensionPoint, Stopwatch};
use std::time::{Duration, Instant};

/// One in this many decisions is measured.
const SAMPLED: u32 = 10;

/// Decides which decisions are measured.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    decisions: u32,
}

impl Sampler {
    /// Whether the next decision is measured. The first one is.
    pub(super) fn is_due(&self) -> bool {
        self.decisions == 0
    }

    /// A decision was made.
    pub(super) fn decided(&mut self) {
        self.decisions = (self.decisions + 1) % SAMPLED;
    }
}

/// The times of the plugins in one decision.
#[derive(Debug)]
pub(super) struct PluginTimes {
    begun: Instant,
    laps: Vec<(PluginName, ExtensionPoint, Duration)>,
}

impl PluginTimes {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            laps: Vec::new(),
        }
    }

    /// Reports the measurements, if there are any.
    pub(super) fn report(&self, metrics: &Metrics) {
        if self.laps.is_empty() {
            return;
        }
        for (plugin, point, took) in &self.laps {
            metrics.plugin_took(plugin.as_str(), point.as_str(), *took);
        }
        for point in ExtensionPoint::ALL {
            let laps = self.laps.iter().filter(|(_, of, _)| *of == point);
            metrics.point_took(point.as_str(), laps.map(|(_, _, took)| took).sum());
        }
    }
}

impl Stopwatch for PluginTimes {
    fn begin(&mut self) {
        self.begun = Instant::now();
    }

    fn lap(&mut self, plugin: PluginName, point: ExtensionPoint) {
        let now = Instant::now();
        self.laps.push((plugin, point, now.duration_since(self.begun)));
        self.begun = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_decision_in_ten_is_measured() {
        let mut sampler = Sampler::default();
        let mut measured = 0;
        for _ in 0..100 {
            measured += u32::from(sampler.is_due());
            sampler.decided();
        }
        assert_eq!(measured, 10);
    }
}
