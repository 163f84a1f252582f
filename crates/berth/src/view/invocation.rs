//! How the page was started, as far as another command needs it to see the same cluster and decide alike.

use crate::config::{ConfigArgs, EmbeddedControllerArgs};
use clap::ValueEnum as _;
use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The cluster and the configuration that a page was started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Invocation {
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The variable `KUBECONFIG`, if no file was named.
    pub(crate) variable: Option<OsString>,
    /// The name of the context, also if it is the current one: another may be the current one later.
    pub(crate) context: Option<String>,
    pub(crate) decisions: ConfigArgs,
    pub(crate) controller: EmbeddedControllerArgs,
}

impl Invocation {
    /// The command that plays a scenario on the same cluster in the same way, for a shell.
    pub(super) fn simulate(&self, scenario: &str) -> String {
        let mut words = Vec::new();
        if let Some(variable) = self.variable.as_ref().filter(|_| self.kubeconfig.is_none()) {
            words.push(format!("KUBECONFIG={}", quoted(&variable.to_string_lossy())));
        }
        words.push("berth simulate".to_owned());
        let mut option = |name: &str, value: &str| words.push(format!("--{name} {}", quoted(value)));
        option("scenario", scenario);
        if let Some(path) = &self.kubeconfig {
            option("kubeconfig", &anywhere(path));
        }
        if let Some(context) = &self.context {
            option("context", context);
        }
        if let Some(path) = &self.decisions.config {
            option("config", &anywhere(path));
        }
        let gates = &self.decisions.gates.feature_gates;
        if !gates.is_empty() {
            option("feature-gates", &gates.join(","));
        }
        if let Some(value) = self
            .controller
            .protection
            .and_then(|protection| protection.to_possible_value())
        {
            option("protection", value.get_name());
        }
        if self.controller.zone_upgrade {
            words.push("--zone-upgrade".to_owned());
        }
        words.join(" ")
    }
}

/// A path that is good in any directory.
fn anywhere(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    absolute.as_deref().unwrap_or(path).to_string_lossy().into_owned()
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::{Invocation, quoted};
    use crate::cli::{Cli, Command};
    use crate::config::{ConfigArgs, EmbeddedControllerArgs, GateArgs, ProtectionName};
    use clap::Parser as _;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them_differently() {
        for (word, expected) in [
            ("/etc/berth/config.yaml", "/etc/berth/config.yaml"),
            ("", "''"),
            ("my cluster", "'my cluster'"),
            ("arn:aws:eks:eu-1:1:cluster/a", "arn:aws:eks:eu-1:1:cluster/a"),
            ("it's; $(rm -r .)", r"'it'\''s; $(rm -r .)'"),
            ("~/config", "'~/config'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn the_command_names_the_cluster_and_the_configuration() {
        let plain = Invocation::default();
        assert_eq!(plain.simulate("what-if.yaml"), "berth simulate --scenario what-if.yaml");
        let variable = Invocation {
            variable: Some("/a b:/c".into()),
            context: Some("kind-kind".to_owned()),
            ..Invocation::default()
        };
        assert_eq!(
            variable.simulate("what-if.yaml"),
            "KUBECONFIG='/a b:/c' berth simulate --scenario what-if.yaml --context kind-kind"
        );
        let all = Invocation {
            kubeconfig: Some("/my configs/one".into()),
            variable: Some("/another".into()),
            context: Some("berth".to_owned()),
            decisions: ConfigArgs {
                config: Some("/etc/scheduler.yaml".into()),
                gates: GateArgs {
                    feature_gates: vec!["VolumeScheduling=true".to_owned(), "Topology=false".to_owned()],
                },
            },
            controller: EmbeddedControllerArgs {
                zone_upgrade: true,
                protection: Some(ProtectionName::UsedByPods),
            },
        };
        let command = all.simulate("what-if.yaml");
        assert_eq!(
            command,
            "berth simulate --scenario what-if.yaml --kubeconfig '/my configs/one' --context berth --config /etc/scheduler.yaml \
             --feature-gates VolumeScheduling=true,Topology=false --protection UsedByPods --zone-upgrade"
        );
        // Every option is one of the command.
        let words = command.replace("'/my configs/one'", "/one");
        let Command::Simulate(parsed) = Cli::try_parse_from(words.split(' ')).unwrap().command else {
            panic!("{command}")
        };
        assert_eq!(parsed.cluster.context.as_deref(), Some("berth"));
    }
}
