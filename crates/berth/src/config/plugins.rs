//! Which plugins are enabled at which point, with which weights.

use super::file::{Plugin, PluginSet, Plugins};
use super::{ConfigError, Reader};
use berth_scheduler::framework::PluginName;
use berth_scheduler::profile::Profile;

/// Plugins of kube-scheduler that make no decisions about nodes, or that no pod here can need. They are accepted.
const OTHER_PLUGINS: &[&str] = &[
    "SchedulingGates",
    "PrioritySort",
    DEFAULT_PREEMPTION,
    "DefaultBinder",
    "NodeDeclaredFeatures",
    // Of 1.30 and 1.31: limits of volumes that no kubelet attaches any more.
    "EBSLimits",
    "GCEPDLimits",
    "AzureDiskLimits",
    "CinderLimits",
    // Of 1.36 and later: groups of pods, which are refused, and pods that wait for a resize.
    "TopologyPlacementGenerator",
    "PodGroupPodsCount",
    "DeferredPodScheduling",
];

/// The plugin that evicts pods.
pub(super) const DEFAULT_PREEMPTION: &str = "DefaultPreemption";

impl Reader {
    pub(super) fn plugins(&self, at: &str, plugins: &Plugins, profile: &mut Profile) -> Result<(), ConfigError> {
        let sets = [
            ("multiPoint", &plugins.multi_point),
            ("preFilter", &plugins.pre_filter),
            ("filter", &plugins.filter),
            ("preScore", &plugins.pre_score),
            ("score", &plugins.score),
            ("preEnqueue", &plugins.pre_enqueue),
            ("queueSort", &plugins.queue_sort),
            ("postFilter", &plugins.post_filter),
            ("reserve", &plugins.reserve),
            ("permit", &plugins.permit),
            ("preBind", &plugins.pre_bind),
            ("bind", &plugins.bind),
            ("postBind", &plugins.post_bind),
            ("placementGenerate", &plugins.placement_generate),
            ("placementScore", &plugins.placement_score),
            ("podGroupPostFilter", &plugins.pod_group_post_filter),
        ];
        for (point, set) in sets {
            self.check_names(&format!("{at}.{point}"), set)?;
        }
        let everywhere = merged(
            &PluginName::ALL.iter().map(|name| (*name, None)).collect::<Vec<_>>(),
            &plugins.multi_point,
        );
        let mut filters = at_point(&everywhere, &plugins.filter);
        filters.retain(|(name, _)| name.is_filter() && !is_disabled(name.as_str(), &plugins.pre_filter));
        profile.filters = filters.into_iter().map(|(name, _)| name).collect();
        let mut scores = at_point(&everywhere, &plugins.score);
        scores.retain(|(name, _)| name.default_weight().is_some() && !is_disabled(name.as_str(), &plugins.pre_score));
        profile.scores = scores
            .into_iter()
            .map(|(name, weight)| (name, weight.or(name.default_weight()).unwrap_or(1)))
            .collect();
        profile.preempts = match &plugins.post_filter {
            set if is_enabled(DEFAULT_PREEMPTION, set) => true,
            set if is_disabled(DEFAULT_PREEMPTION, set) => false,
            _ => !is_disabled(DEFAULT_PREEMPTION, &plugins.multi_point),
        };
        Ok(())
    }

    fn check_names(&self, at: &str, set: &PluginSet) -> Result<(), ConfigError> {
        for (list, plugins) in [("enabled", &set.enabled), ("disabled", &set.disabled)] {
            for (index, plugin) in plugins.iter().enumerate() {
                let at = format!("{at}.{list}[{index}]");
                self.check_name(&format!("{at}.name"), &plugin.name, list == "disabled")?;
                if plugin.weight.is_some_and(|weight| weight < 0) {
                    return Err(self.error(format!("{at}.weight"), "found a negative weight, expected 1 or more"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_name(&self, at: &str, name: &str, star: bool) -> Result<(), ConfigError> {
        if PluginName::from_name(name).is_some() || OTHER_PLUGINS.contains(&name) || (star && name == "*") {
            return Ok(());
        }
        let known = PluginName::ALL.iter().map(|name| name.as_str());
        let known: Vec<_> = known.chain(OTHER_PLUGINS.iter().copied()).collect();
        Err(self.error(
            at,
            format!("found {name:?}, expected a plugin: one of {}", known.join(", ")),
        ))
    }
}

/// A plugin and its weight in the file; `None` means the default.
type Weighted = (PluginName, Option<i64>);

fn is_enabled(name: &str, set: &PluginSet) -> bool {
    set.enabled.iter().any(|plugin| plugin.name == name)
}

fn is_disabled(name: &str, set: &PluginSet) -> bool {
    let mut disabled = set.disabled.iter();
    disabled.any(|plugin| plugin.name == "*" || plugin.name == name) && !is_enabled(name, set)
}

/// A plugin that the file enables has weight 1 by default.
fn weighted(plugin: &Plugin) -> Option<Weighted> {
    let name = PluginName::from_name(&plugin.name)?;
    let weight = plugin.weight.filter(|weight| *weight > 0).unwrap_or(1);
    Some((name, Some(weight.into())))
}

/// The defaults changed by a set: a plugin that is listed again stays in its place.
fn merged(defaults: &[Weighted], set: &PluginSet) -> Vec<Weighted> {
    let mut enabled: Vec<Weighted> = set.enabled.iter().filter_map(weighted).collect();
    let all_off = set.disabled.iter().any(|plugin| plugin.name == "*");
    let mut merged = Vec::new();
    for (name, weight) in defaults {
        if all_off || set.disabled.iter().any(|plugin| plugin.name == name.as_str()) {
            continue;
        }
        match enabled.iter().position(|(enabled, _)| enabled == name) {
            Some(at) => merged.push(enabled.remove(at)),
            None => merged.push((*name, *weight)),
        }
    }
    merged.extend(enabled);
    merged
}

/// The plugins at one point: first those listed for the point itself, then those enabled everywhere.
fn at_point(everywhere: &[Weighted], set: &PluginSet) -> Vec<Weighted> {
    let is_everywhere = |name: PluginName| everywhere.iter().any(|(other, _)| *other == name);
    let mut plugins: Vec<Weighted> = set.enabled.iter().filter_map(weighted).collect();
    plugins.sort_by_key(|(name, _)| !is_everywhere(*name));
    for (name, weight) in everywhere {
        if !is_disabled(name.as_str(), set) && !plugins.iter().any(|(other, _)| other == name) {
            plugins.push((*name, *weight));
        }
    }
    plugins
}
