//! The components of a control plane that can run.

use clap::ValueEnum;
use std::fmt;

/// A part of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Component {
    /// The API server (always runs).
    Api,
    /// The scheduler.
    Scheduler,
    /// The volume controller and the workload controllers.
    Controller,
    /// The built-in provisioners.
    Provisioner,
    /// Node agents that simulate kubelets, and the sample cluster if there are no files.
    Nodes,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Scheduler => "scheduler",
            Self::Controller => "controller",
            Self::Provisioner => "provisioner",
            Self::Nodes => "nodes",
        }
    }
}

/// The parts that run.
#[derive(Clone, Debug)]
pub(super) struct Chosen(Vec<Component>);

impl Chosen {
    pub(super) fn new(components: &[Component]) -> Self {
        let mut chosen = components.to_vec();
        chosen.push(Component::Api);
        chosen.sort();
        chosen.dedup();
        Self(chosen)
    }

    pub(super) fn has(&self, component: Component) -> bool {
        self.0.contains(&component)
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|component| component.name()).collect();
        f.write_str(&names.join(", "))
    }
}
