//! The process settings of a configuration: leader election and the connection to the cluster.
//!
//! They do not affect decisions, so the commands that only decide ignore them.

use super::file::{ClientConnection, File, LeaderElection};
use super::{ConfigError, Reader};
use std::path::PathBuf;
use std::time::Duration;

/// The leader election settings of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Whether leader election is enabled.
    pub elect: bool,
    /// A leader that has not renewed for this long is replaced.
    pub lease_duration: Duration,
    /// A leader that could not renew for this long steps down.
    pub renew_deadline: Duration,
    /// Retry interval.
    pub retry_period: Duration,
    /// The lease, if set.
    pub name: Option<String>,
    /// The namespace of the lease, if set.
    pub namespace: Option<String>,
}

impl Default for Election {
    /// The defaults of kube-scheduler for missing fields.
    fn default() -> Self {
        Self {
            elect: true,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            name: None,
            namespace: None,
        }
    }
}

impl Election {
    /// No leader election, unless a flag enables it.
    #[must_use]
    pub fn off() -> Self {
        Self {
            elect: false,
            ..Self::default()
        }
    }

    /// The first time that is too short: its field, what it must exceed, and how long that is.
    #[must_use]
    pub fn too_short(&self) -> Option<(&'static str, &'static str, Duration)> {
        if self.lease_duration <= self.renew_deadline {
            return Some(("leaseDuration", "renewDeadline", self.renew_deadline));
        }
        // Somewhat more, as in kube-scheduler: the timing of retries is not exact.
        let is_short = self.renew_deadline <= self.retry_period * 6 / 5;
        is_short.then_some(("renewDeadline", "1.2 times retryPeriod", self.retry_period))
    }

    /// With a lease of this duration, and times in the proportions that Kubernetes components use.
    #[must_use]
    pub fn with_lease_duration(self, duration: Duration) -> Self {
        Self {
            lease_duration: duration,
            renew_deadline: duration * 2 / 3,
            retry_period: duration * 2 / 15,
            ..self
        }
    }
}

/// The process settings of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Leader election, if the file has such a block.
    pub election: Option<Election>,
    /// A replica opens its watches only when it leads.
    pub cold_standby: bool,
    /// The kubeconfig of the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Fields that have no effect, with what is done instead.
    pub unused: Vec<String>,
}

fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

impl Reader {
    pub(super) fn process(&self, file: &File) -> Result<ProcessSettings, ConfigError> {
        let mut settings = ProcessSettings {
            cold_standby: file.delay_cache_until_active.unwrap_or(false),
            ..ProcessSettings::default()
        };
        if let Some(election) = &file.leader_election {
            settings.election = Some(self.election(election)?);
        }
        if let Some(connection) = &file.client_connection {
            settings.kubeconfig = given(&connection.kubeconfig).map(PathBuf::from);
            settings.unused = unused(connection);
        }
        Ok(settings)
    }

    fn election(&self, file: &LeaderElection) -> Result<Election, ConfigError> {
        let usual = Election::default();
        let at = |field: &str| format!("leaderElection.{field}");
        let time = |field: &str, text: &Option<String>, usual: Duration| match given(text) {
            None => Ok(usual),
            Some(text) => crate::duration::duration(text)
                .map_err(|problem| self.error(at(field), format!("found {text:?}: {problem}"))),
        };
        if let Some(lock) = given(&file.resource_lock).filter(|lock| *lock != "leases") {
            let problem = format!("found {lock:?}, expected \"leases\"");
            return Err(self.error(at("resourceLock"), problem));
        }
        let election = Election {
            elect: file.leader_elect.unwrap_or(usual.elect),
            lease_duration: time("leaseDuration", &file.lease_duration, usual.lease_duration)?,
            renew_deadline: time("renewDeadline", &file.renew_deadline, usual.renew_deadline)?,
            retry_period: time("retryPeriod", &file.retry_period, usual.retry_period)?,
            name: given(&file.resource_name).map(str::to_owned),
            namespace: given(&file.resource_namespace).map(str::to_owned),
        };
        if let Some((field, more, than)) = election.too_short() {
            let problem = format!("expected more than {more}, which is {than:?}");
            return Err(self.error(at(field), problem));
        }
        Ok(election)
    }
}

fn unused(connection: &ClientConnection) -> Vec<String> {
    let mut unused = Vec::new();
    let fields = [("qps", connection.qps.is_some()), ("burst", connection.burst.is_some())];
    for (field, _) in fields.into_iter().filter(|(_, set)| *set) {
        unused.push(format!(
            "clientConnection.{field} is not used: Berth limits concurrent requests, not their rate"
        ));
    }
    let types = [given(&connection.content_type), given(&connection.accept_content_types)];
    if types.into_iter().flatten().any(|one| !one.contains("json")) {
        unused.push("clientConnection.contentType and acceptContentTypes are not used: Berth uses JSON".to_owned());
    }
    unused
}
