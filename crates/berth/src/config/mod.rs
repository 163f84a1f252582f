//! The scheduler's configuration: a `KubeSchedulerConfiguration` of version `v1`, and feature gates.
//!
//! A file written for kube-scheduler has the same meaning here. A setting that Berth cannot implement is an error,
//! never ignored, and so is every unknown field.

mod arguments;
mod controller;
mod extenders;
mod file;
mod gates;
mod other_gates;
mod plugin_args;
mod plugins;
mod process;
mod show;

pub use arguments::{ConfigArgs, GateArgs};
pub(crate) use controller::ControllerFile;
pub use controller::{EmbeddedControllerArgs, ProtectionName};
pub use extenders::ConfiguredExtender;
pub use gates::{
    ATTRIBUTES_CLASSES, CONTROLLER_GATES, CROSS_NAMESPACE_SOURCES, FEATURE_GATES, FeatureGateError, FixedGate,
    OBEYED_PROVISIONER_GATES, PROVISIONER_GATES, SCHEDULER_GATES, TOPOLOGY, feature_gates,
};
pub(crate) use gates::{given_gates, known_gates};
pub use other_gates::OTHER_GATES;
pub use process::{Election, ProcessSettings};

use crate::input;
use berth_core::api;
use berth_scheduler::profile::{FeatureGates, Profile};
use berth_scheduler::queue::QueueTimes;
use berth_scheduler::scheduler::{DEFAULT_SCHEDULER_NAME, Settings, Together, scheduler_name};
use file::{File, ProfileFile};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: {error}; check the path and its permissions")]
    Unreadable {
        /// The file.
        file: Arc<str>,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
    /// The file is not YAML.
    #[error(transparent)]
    Syntax(Box<input::Problem>),
    /// It is a configuration of another kind.
    #[error("{file}: found apiVersion {api_version:?} and kind {kind:?}, expected {API_VERSION:?} and {KIND:?}")]
    OtherKind {
        /// The file.
        file: Arc<str>,
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// A field's value is invalid or not supported.
    #[error("{file}: {field}: {problem}")]
    Field {
        /// The file.
        file: Arc<str>,
        /// The path of the field.
        field: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// Unknown fields.
    #[error("{file}: unknown fields: {}; check the spelling, or remove them", .fields.join(", "))]
    UnknownFields {
        /// The file.
        file: Arc<str>,
        /// Their paths.
        fields: Vec<String>,
    },
    /// No profile matches the pod's scheduler.
    #[error(
        "pod {pod} wants scheduler {wanted:?}, for which the configuration has no profile; it has {}", .known.join(", ")
    )]
    NoProfile {
        /// The pod.
        pod: String,
        /// Its scheduler name.
        wanted: String,
        /// The schedulers that have profiles.
        known: Vec<String>,
    },
    /// The feature gates are invalid.
    #[error("--feature-gates: {0}")]
    FeatureGates(#[from] FeatureGateError),
}

/// A profile of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerProfile {
    /// The name by which pods choose it.
    pub scheduler_name: String,
    /// What decides.
    pub profile: Profile,
    /// The arguments of plugins as the file gives them, by plugin.
    pub plugin_args: BTreeMap<String, Value>,
}

impl Default for SchedulerProfile {
    fn default() -> Self {
        Self {
            scheduler_name: DEFAULT_SCHEDULER_NAME.to_owned(),
            profile: Profile::default(),
            plugin_args: BTreeMap::new(),
        }
    }
}

/// The profiles of a scheduler, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The profiles.
    pub profiles: Vec<SchedulerProfile>,
    /// How long pods wait between attempts.
    pub times: QueueTimes,
    /// How pending pods are considered together.
    pub together: Together,
    /// The extenders, in the order in which they are asked.
    pub extenders: Vec<ConfiguredExtender>,
    /// How the process runs.
    pub process: ProcessSettings,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            profiles: vec![SchedulerProfile::default()],
            times: QueueTimes::default(),
            together: Together::default(),
            extenders: Vec::new(),
            process: ProcessSettings::default(),
        }
    }
}

impl Configuration {
    /// Reads a configuration from a file.
    ///
    /// # Errors
    /// If it cannot be read, is another kind of file, has unknown fields or unsupported settings.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let file: Arc<str> = path.display().to_string().into();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
            file: Arc::clone(&file),
            error,
        })?;
        Self::from_text(&file, &text)
    }

    /// Reads a configuration from a text; `file` is its name in errors.
    ///
    /// # Errors
    /// Like [`Configuration::from_file`].
    pub fn from_text(file: &Arc<str>, text: &str) -> Result<Self, ConfigError> {
        let value = input::value_of(file, text).map_err(ConfigError::Syntax)?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != API_VERSION || kind != KIND {
            return Err(ConfigError::OtherKind {
                file: Arc::clone(file),
                api_version,
                kind,
            });
        }
        let mut reader = Reader {
            file: Arc::clone(file),
            unknown: Vec::new(),
        };
        let configuration = reader.configuration(value)?;
        if reader.unknown.is_empty() {
            return Ok(configuration);
        }
        Err(ConfigError::UnknownFields {
            file: reader.file,
            fields: reader.unknown,
        })
    }

    /// Sets the gates of all profiles.
    pub fn set_feature_gates(&mut self, gates: &FeatureGates) {
        for profile in &mut self.profiles {
            profile.profile.gates = gates.clone();
        }
    }

    /// What does not happen on the objects of files, as a warning.
    #[must_use]
    pub fn files_warning(&self) -> Option<String> {
        let urls: Vec<_> = self.extenders.iter().map(|found| &*found.extender.url_prefix).collect();
        (!urls.is_empty()).then(|| {
            format!(
                "the extenders of the configuration are not asked ({}): they may refuse nodes, or prefer others",
                urls.join(", ")
            )
        })
    }

    /// The settings of a scheduler that can ask extenders.
    #[must_use]
    pub fn live_settings(&self) -> Settings {
        let extenders = self.extenders.iter().map(|found| found.extender.clone());
        Settings {
            extenders: extenders.collect(),
            ..self.settings()
        }
    }

    /// The scheduler settings: the only conversion from a configuration to decisions, for every command. Extenders are asked only where
    /// there is somebody to send the requests: see [`Self::live_settings`].
    #[must_use]
    pub fn settings(&self) -> Settings {
        // Without `..`, so that a new field cannot be forgotten.
        let Self {
            profiles,
            times,
            together,
            extenders: _,
            process: _,
        } = self;
        let profiles = profiles.iter().map(|profile| {
            let SchedulerProfile {
                scheduler_name,
                profile,
                plugin_args: _,
            } = profile;
            (scheduler_name.clone(), profile.clone())
        });
        Settings {
            profiles: profiles.collect(),
            times: *times,
            together: *together,
            // The caller knows which volume controller runs in the cluster.
            hold_volumes: false,
            extenders: Arc::new([]),
            replica: 0,
        }
    }

    /// The values of `schedulerName` that its profiles serve.
    pub fn scheduler_names(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().map(|profile| profile.scheduler_name.as_str())
    }

    /// The profile for a pod, by its scheduler name.
    ///
    /// # Errors
    /// If that scheduler has no profile.
    pub fn profile_for(&self, pod: &api::Pod) -> Result<&SchedulerProfile, ConfigError> {
        let wanted = scheduler_name(pod);
        let found = self.profiles.iter().find(|profile| profile.scheduler_name == wanted);
        found.ok_or_else(|| ConfigError::NoProfile {
            pod: pod.metadata.full_name(),
            wanted: wanted.to_owned(),
            known: self
                .profiles
                .iter()
                .map(|profile| format!("{:?}", profile.scheduler_name))
                .collect(),
        })
    }
}

/// Reads the parts of a configuration and collects unknown fields.
struct Reader {
    file: Arc<str>,
    unknown: Vec<String>,
}

impl Reader {
    fn error(&self, field: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError::Field {
            file: Arc::clone(&self.file),
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// Decodes the part of the file at `at`.
    fn typed<T: DeserializeOwned>(&mut self, at: &str, value: Value) -> Result<T, ConfigError> {
        let path = |field: String| match (at, field.as_str()) {
            (at, "." | "") => at.to_owned(),
            ("", field) => field.to_owned(),
            (at, field) => format!("{at}.{field}"),
        };
        let mut track = serde_path_to_error::Track::new();
        let mut unknown = Vec::new();
        let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
        let decoded = serde_ignored::deserialize(deserializer, |ignored| unknown.push(with_brackets(&ignored)));
        match decoded {
            Ok(decoded) => {
                self.unknown.extend(unknown.into_iter().map(path));
                Ok(decoded)
            }
            Err(error) => Err(self.error(path(track.path().to_string()), serde_json::Error::to_string(&error))),
        }
    }

    fn configuration(&mut self, value: Value) -> Result<Configuration, ConfigError> {
        let file: File = self.typed("", value)?;
        let times = self.times(&file)?;
        let together = self.together(&file)?;
        let process = self.process(&file)?;
        let extenders = self.extenders(file.extenders.unwrap_or_default())?;
        let percentage = self.percentage("", file.percentage_of_nodes_to_score)?;
        let profiles = file.profiles.filter(|profiles| !profiles.is_empty());
        // No profile means the default one.
        let profiles = profiles.unwrap_or_else(|| vec![ProfileFile::default()]);
        let mut names = BTreeSet::new();
        let mut configuration = Configuration {
            profiles: Vec::new(),
            times,
            together,
            extenders,
            process,
        };
        let ignored = configuration
            .extenders
            .iter()
            .flat_map(|found| &found.ignored_resources);
        let ignored: Vec<String> = ignored.cloned().collect();
        for (index, profile) in profiles.into_iter().enumerate() {
            let at = format!("profiles[{index}]");
            let own = self.percentage(&format!("{at}."), profile.percentage_of_nodes_to_score)?;
            let mut profile = self.profile(&at, profile)?;
            profile.profile.percentage_of_nodes_to_score = own.or(percentage).flatten();
            profile.profile.ignored_resources.extend(ignored.iter().cloned());
            if !names.insert(profile.scheduler_name.clone()) {
                let problem = format!(
                    "found {:?} a second time, expected another name",
                    profile.scheduler_name
                );
                return Err(self.error(format!("{at}.schedulerName"), problem));
            }
            configuration.profiles.push(profile);
        }
        Ok(configuration)
    }

    /// How long pods wait between attempts: 1 s, doubled up to 10 s, unless the file says otherwise.
    fn times(&self, file: &File) -> Result<QueueTimes, ConfigError> {
        let mut times = QueueTimes::default();
        let positive = |field: &str, seconds: i64| match u64::try_from(seconds) {
            Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
            _ => Err(self.error(field, format!("found {seconds}, expected 1 or more"))),
        };
        if let Some(seconds) = file.pod_initial_backoff_seconds {
            times.initial_backoff = positive("podInitialBackoffSeconds", seconds)?;
        }
        if let Some(seconds) = file.pod_max_backoff_seconds {
            times.max_backoff = positive("podMaxBackoffSeconds", seconds)?;
        }
        if times.max_backoff < times.initial_backoff {
            let (least, found) = (times.initial_backoff.as_secs(), times.max_backoff.as_secs());
            let problem = format!("found {found}, expected at least podInitialBackoffSeconds, which is {least}");
            return Err(self.error("podMaxBackoffSeconds", problem));
        }
        Ok(times)
    }

    /// How pending pods are considered together: a field of Berth.
    fn together(&self, file: &File) -> Result<Together, ConfigError> {
        let mut together = Together::default();
        if let Some(tries) = file.together.as_ref().and_then(|together| together.tries_per_pod) {
            together.tries_per_pod = usize::try_from(tries).map_err(|_| {
                let problem = format!("found {tries}, expected 0 (off) or more");
                self.error("together.triesPerPod", problem)
            })?;
        }
        if let Some(time) = file
            .together
            .as_ref()
            .and_then(|together| together.time_per_pod.as_deref())
        {
            together.time_per_pod = crate::duration::duration(time)
                .map_err(|problem| self.error("together.timePerPod", format!("found {time:?}: {problem}")))?;
        }
        Ok(together)
    }

    /// The percentage of nodes after which the search stops, if set. 0 leaves it to the scheduler; Berth then considers
    /// every node, as with 100.
    fn percentage(&self, at: &str, found: Option<i32>) -> Result<Option<Option<NonZero<u8>>>, ConfigError> {
        let Some(found) = found else {
            return Ok(None);
        };
        match u8::try_from(found) {
            Ok(percentage @ 0..=100) => Ok(Some(NonZero::new(percentage % 100))),
            _ => {
                let problem = format!("found {found}, expected 0 to 100");
                Err(self.error(format!("{at}percentageOfNodesToScore"), problem))
            }
        }
    }

    fn profile(&mut self, at: &str, file: ProfileFile) -> Result<SchedulerProfile, ConfigError> {
        let mut profile = SchedulerProfile::default();
        if let Some(name) = file.scheduler_name.filter(|name| !name.is_empty()) {
            profile.scheduler_name = name;
        }
        if let Some(plugins) = file.plugins {
            self.plugins(&format!("{at}.plugins"), &plugins, &mut profile.profile)?;
        }
        let mut configured = BTreeSet::new();
        for (index, config) in file.plugin_config.unwrap_or_default().into_iter().enumerate() {
            let at = format!("{at}.pluginConfig[{index}]");
            if !configured.insert(config.name.clone()) {
                let problem = format!("found {:?} a second time, expected one entry for a plugin", config.name);
                return Err(self.error(format!("{at}.name"), problem));
            }
            let args = (config.name.clone(), config.args.clone());
            self.plugin_config(&at, config, &mut profile)?;
            profile.plugin_args.extend([args]);
        }
        Ok(profile)
    }
}

/// A path with indexes in brackets, as Kubernetes writes them.
fn with_brackets(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", with_brackets(parent)),
        Path::Map { parent, key } => match with_brackets(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            with_brackets(parent)
        }
    }
}
