//! Plays the scenario of `berth simulate`, and records it for the page.

use berth_cluster::simulation::scenario::{PerformError, Scenario};
use berth_cluster::simulation::{Onlooker, Simulation};
use berth_core::effect::ObjectKey;
use berth_view::Recording;
use std::collections::BTreeSet;

/// Plays a scenario from moment to moment. Occasionally reports how many pods were bound.
///
/// # Errors
/// If an action refers to an object that does not exist.
pub fn play_recorded(
    simulation: &mut Simulation,
    scenario: &Scenario,
    progress: &mut dyn FnMut(u64),
) -> Result<Recording, PerformError> {
    let mut recorder = Recorder {
        recording: Recording::of(simulation),
        progress,
    };
    simulation.play_before(scenario, &mut recorder)?;
    Ok(recorder.recording)
}

struct Recorder<'a> {
    recording: Recording,
    progress: &'a mut dyn FnMut(u64),
}

impl Onlooker for Recorder<'_> {
    fn stops(&mut self, simulation: &Simulation) -> bool {
        (self.progress)(simulation.scheduled());
        false
    }

    fn follows(&self) -> bool {
        true
    }

    fn moment(&mut self, simulation: &Simulation, touched: BTreeSet<ObjectKey>) {
        self.recording.moment(simulation, &touched);
    }

    fn step(&mut self, simulation: &Simulation) {
        self.recording.step(simulation);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::play_recorded;
    use crate::simulate::scenario::read_text;
    use berth_cluster::sample::{self, Shape};
    use berth_cluster::simulation::{Options, Simulation};
    use berth_view::{Moment, Recording, State};
    use serde_json::json;
    use std::path::Path;

    const SCENARIO: &str = "{apiVersion: berth.dev/v1alpha1, kind: Scenario, steps: [
        {at: 10m, name: dark, do: [{stopNodes: {zone: zone-a}}]},
        {at: 30m, name: nothing, do: [{uncordon: {nodes: [node-b1]}}]},
        {at: 40m, name: given up, do: [{deleteNodes: {nodes: [node-a1]}}, {cordon: {nodes: [node-b1]}}]}]}";

    fn played() -> (Simulation, Recording) {
        let mut simulation = Simulation::new(Options::default());
        let mut objects = sample::objects(&Shape::default());
        let template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}});
        objects.push(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template}}),
        );
        simulation.load(objects).unwrap();
        let scenario = read_text(&"scenario".into(), SCENARIO, Path::new("")).unwrap();
        let recording = play_recorded(&mut simulation, &scenario, &mut |_| {}).unwrap();
        (simulation, recording)
    }

    fn placed(state: &State) -> usize {
        state.pods.values().filter(|pod| !pod.node.is_empty()).count()
    }

    /// The rows when a step is over.
    fn after(recording: &Recording, step: usize) -> State {
        let last = recording.steps()[step].last;
        let history = recording.history();
        history.state_after(history.ticks().filter(|tick| tick.number <= last).count())
    }

    #[test]
    fn every_step_can_be_shown_again() {
        let (_, recording) = played();
        let steps: Vec<(&str, &str)> = recording
            .steps()
            .iter()
            .map(|step| (step.at.as_str(), step.name.as_str()))
            .collect();
        assert_eq!(
            steps,
            [
                ("0s", "start"),
                ("10m", "dark"),
                ("30m", "nothing"),
                ("40m", "given up")
            ]
        );
        assert_eq!(placed(&recording.history().state_after(0)), 0, "what was loaded");
        assert_eq!(placed(&after(&recording, 0)), 4);
        let dark = after(&recording, 1);
        let silent: Vec<&String> = dark
            .nodes
            .iter()
            .filter(|(_, node)| !node.ready)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(silent, ["node-a1", "node-a2", "node-a3"]);
        assert_eq!(after(&recording, 2), dark, "a step that changes nothing");
        let end = after(&recording, 3);
        assert!(!end.nodes.contains_key("node-a1"));
        assert!(end.nodes["node-b1"].cordoned);
    }

    #[test]
    fn the_last_moment_is_the_outcome() {
        let (simulation, recording) = played();
        let (end, outcome) = (after(&recording, 3), simulation.outcome());
        let pods: Vec<(&str, &str)> = end.pods.iter().map(|(name, pod)| (&**name, &*pod.node)).collect();
        let expected: Vec<(&str, &str)> = outcome.pods.iter().map(|pod| (&*pod.pod, &*pod.node)).collect();
        assert_eq!(pods, expected);
        let nodes: Vec<_> = end
            .nodes
            .iter()
            .map(|(name, node)| (&**name, node.ready, !node.cordoned))
            .collect();
        let expected: Vec<_> = outcome
            .nodes
            .iter()
            .map(|node| (&*node.node, node.ready, node.schedulable))
            .collect();
        assert_eq!(nodes, expected);
    }

    #[test]
    fn moments_are_at_their_virtual_times() {
        let (_, recording) = played();
        let ticks: Vec<i64> = recording.history().ticks().map(|tick| tick.at).collect();
        assert!(ticks.is_sorted_by(|one, next| one < next), "{ticks:?}");
        let begin = Options::default().start.as_millisecond();
        assert_eq!(ticks.first(), Some(&begin));
        let fell_silent = recording.history().ticks().find(|tick| {
            let is_silent = |moment: &Moment| matches!(moment, Moment::NodeReady { ready: false, .. });
            tick.moments.iter().any(is_silent)
        });
        let after = fell_silent.unwrap().at - begin;
        assert!((600_000..900_000).contains(&after), "{after}");
    }
}
