//! Calls to a driver, with timeouts.

use super::address::{AddressError, socket_path};
use super::calls;
use super::classify::{classify, describe};
use super::identity::{self, Identity};
use super::proto;
use crate::answer::Answer;
use crate::capacity::Available;
use crate::parameters::SecretReference;
use crate::request::{Backing, Failure, Request};
use crate::topology::Segment;
use hyper_util::rt::TokioIo;
use proto::controller_client::ControllerClient;
use proto::identity_client::IdentityClient;
use proto::plugin_capability::service::Type as Service;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tower::service_fn;

/// Reads the content of secrets. It is sent only to the driver.
pub trait Secrets: Send + Sync {
    /// The content of a secret.
    fn resolve(
        &self,
        secret: &SecretReference,
    ) -> impl Future<Output = Result<BTreeMap<String, String>, SecretError>> + Send;
}

/// Why a secret could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("secret {namespace}/{name}: {problem}")]
pub struct SecretError {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What went wrong.
    pub problem: String,
    /// The secret does not exist.
    pub missing: bool,
}

/// For drivers that need no secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl Secrets for NoSecrets {
    async fn resolve(&self, secret: &SecretReference) -> Result<BTreeMap<String, String>, SecretError> {
        Err(SecretError {
            namespace: secret.namespace.clone(),
            name: secret.name.clone(),
            problem: "secrets cannot be read here".to_owned(),
            missing: false,
        })
    }
}

/// Timeouts for a driver.
#[derive(Clone, Copy, Debug)]
pub struct ClientSettings {
    /// How long to wait for the driver to become ready at startup.
    pub ready_timeout: Duration,
    /// Timeout of one call.
    pub call_timeout: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            ready_timeout: Duration::from_secs(60),
            // The default of the CSI sidecars. Creating a volume may take longer; the call is repeated anyway.
            call_timeout: Duration::from_secs(10),
        }
    }
}

/// Why there is no connection to a driver.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The driver does not respond.
    #[error("the CSI driver at {address} was not ready within {waited:?}: {last}")]
    NotReady {
        /// The address.
        address: String,
        /// How long the connection was tried.
        waited: Duration,
        /// The last problem.
        last: String,
    },
    /// The driver does not identify itself.
    #[error("the CSI driver at {address} did not respond to {call}: {problem}")]
    Refused {
        /// The address.
        address: String,
        /// The call.
        call: &'static str,
        /// The error.
        problem: String,
    },
}

/// Why an idempotent call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// A message for the user.
    pub message: String,
}

/// Is told about each call when it has ended: its method, its status as gRPC spells it, and how long it took.
pub type Observer = Arc<dyn Fn(&'static str, &str, Duration) + Send + Sync>;

/// A connection to a driver. It reconnects whenever it breaks.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    identity: Identity,
    settings: ClientSettings,
    observer: Option<Observer>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// How often a driver that is not ready is probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

impl Client {
    /// Connects, waits until the driver is ready, and asks for its identity.
    ///
    /// # Errors
    /// If the driver is not ready in time or does not identify itself.
    pub async fn connect(address: &str, settings: ClientSettings) -> Result<Self, ConnectError> {
        let channel = open(address, settings).await?;
        let identity = ask_identity(address, &channel, settings).await?;
        Ok(Self {
            channel,
            identity,
            settings,
            observer: None,
        })
    }

    /// Tells an observer about each call.
    #[must_use]
    pub fn observed(self, observer: Observer) -> Self {
        let observer = Some(observer);
        Self { observer, ..self }
    }

    /// The identity of the driver.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// As classified by [`classify`]. If the secret cannot be read, the driver was not asked.
    pub async fn create(&self, request: &Request, secrets: &impl Secrets) -> Answer {
        if !self.identity.creates {
            return Err(Failure::last(format!(
                "CSI driver {:?} does not make volumes: it lacks the capability CREATE_DELETE_VOLUME",
                self.identity.name
            )));
        }
        let secret = resolve(request.parameters.provisioner_secret.as_ref(), secrets)
            .await
            .map_err(|error| Failure::not_asked(error.to_string()))?;
        let call = calls::create_volume(request, secret, self.identity.tells_pods_apart)?;
        let mut client = ControllerClient::new(self.channel.clone());
        match self
            .within("/csi.v1.Controller/CreateVolume", client.create_volume(call))
            .await
        {
            Err(status) => Err(Failure {
                kind: classify(&status),
                message: describe(&status),
            }),
            Ok(response) => answer_of(&self.identity.name, response.into_inner(), self.identity.topology),
        }
    }

    /// Deletes a volume. A nonexistent one counts as deleted.
    ///
    /// # Errors
    /// If the driver did not confirm the deletion. Repeating the call is harmless.
    pub async fn delete(&self, backing: &Backing, secrets: &impl Secrets) -> Result<(), CallError> {
        let secrets = match resolve(backing.secret.as_ref(), secrets).await {
            Ok(secrets) => secrets,
            // It may have been deleted together with the claim. The driver decides whether it needs it.
            Err(error) if error.missing => BTreeMap::new(),
            Err(error) => {
                let message = error.to_string();
                return Err(CallError { message });
            }
        };
        let call = proto::DeleteVolumeRequest {
            volume_id: backing.handle.clone(),
            secrets,
        };
        let mut client = ControllerClient::new(self.channel.clone());
        match self
            .within("/csi.v1.Controller/DeleteVolume", client.delete_volume(call))
            .await
        {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(call_error(&status)),
        }
    }

    /// The free space for a class's parameters in a segment; without a segment, in total.
    ///
    /// # Errors
    /// If the driver does not report it.
    pub async fn capacity(
        &self,
        parameters: &BTreeMap<String, String>,
        segment: Option<&Segment>,
    ) -> Result<Available, CallError> {
        let call = calls::get_capacity(parameters, segment);
        let mut client = ControllerClient::new(self.channel.clone());
        let response = self
            .within("/csi.v1.Controller/GetCapacity", client.get_capacity(call))
            .await;
        let response = response.map_err(|status| call_error(&status))?;
        available_of(response.get_ref()).map_err(|message| CallError { message })
    }

    async fn within<T>(
        &self,
        method: &'static str,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<tonic::Response<T>, Status> {
        let (limit, started) = (self.settings.call_timeout, Instant::now());
        let answer = timeout(limit, answer).await.unwrap_or_else(|_| {
            let call = method.rsplit('/').next().unwrap_or(method);
            Err(Status::deadline_exceeded(format!(
                "{call}: no response within {limit:?}"
            )))
        });
        if let Some(observer) = &self.observer {
            let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
            observer(method, &status_name(code), started.elapsed());
        }
        answer
    }
}

/// A status as gRPC libraries of Go spell it, for metrics.
fn status_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

/// What a driver's response to CreateVolume says.
///
/// # Errors
/// If it names no volume: there may be one.
pub fn answer_of(driver: &str, response: proto::CreateVolumeResponse, with_topology: bool) -> Answer {
    match response.volume {
        Some(volume) => Ok(calls::created_volume(driver, volume, with_topology)),
        None => Err(Failure::in_doubt("CreateVolume: the driver answered without a volume")),
    }
}

/// What a driver's response to GetCapacity says.
///
/// # Errors
/// If no volume can have such a size: API servers refuse to store it.
pub fn available_of(response: &proto::GetCapacityResponse) -> Result<Available, String> {
    let negative = |bytes: &i64| *bytes < 0;
    let sizes = [Some(response.available_capacity), response.maximum_volume_size];
    match sizes.into_iter().flatten().find(negative) {
        Some(bytes) => Err(format!("GetCapacity: the driver answered with a size of {bytes} bytes")),
        None => Ok(calls::available(response)),
    }
}

/// A channel to a driver that is ready.
pub(super) async fn open(address: &str, settings: ClientSettings) -> Result<Channel, ConnectError> {
    let path = socket_path(address)?;
    // The host name is ignored: only the socket matters.
    let endpoint = Endpoint::from(Uri::from_static("http://localhost"));
    let channel = endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    }));
    wait_until_ready(address, &channel, settings).await?;
    Ok(channel)
}

pub(super) fn call_error(status: &Status) -> CallError {
    CallError {
        message: describe(status),
    }
}

async fn resolve(
    secret: Option<&SecretReference>,
    secrets: &impl Secrets,
) -> Result<BTreeMap<String, String>, SecretError> {
    match secret {
        Some(secret) => secrets.resolve(secret).await,
        None => Ok(BTreeMap::new()),
    }
}

async fn wait_until_ready(address: &str, channel: &Channel, settings: ClientSettings) -> Result<(), ConnectError> {
    let deadline = Instant::now() + settings.ready_timeout;
    loop {
        let mut client = IdentityClient::new(channel.clone());
        let last = match timeout_at(deadline, client.probe(proto::ProbeRequest {})).await {
            Ok(Ok(response)) if response.get_ref().ready != Some(false) => return Ok(()),
            Ok(Ok(_)) => "it says that it is not ready".to_owned(),
            Ok(Err(status)) => describe(&status),
            Err(_) => "no answer".to_owned(),
        };
        let next = Instant::now() + PROBE_INTERVAL;
        if next >= deadline {
            return Err(ConnectError::NotReady {
                address: address.to_owned(),
                waited: settings.ready_timeout,
                last,
            });
        }
        sleep_until(next).await;
    }
}

async fn ask_identity(address: &str, channel: &Channel, settings: ClientSettings) -> Result<Identity, ConnectError> {
    let refused = |call: &'static str, problem: String| ConnectError::Refused {
        address: address.to_owned(),
        call,
        problem,
    };
    let late = || Status::deadline_exceeded("no answer in time");
    let limit = settings.call_timeout;
    let mut client = IdentityClient::new(channel.clone());
    let plugin = timeout(limit, client.get_plugin_info(proto::GetPluginInfoRequest {}))
        .await
        .unwrap_or_else(|_| Err(late()))
        .map_err(|status| refused("GetPluginInfo", describe(&status)))?
        .into_inner();
    let services = timeout(
        limit,
        client.get_plugin_capabilities(proto::GetPluginCapabilitiesRequest {}),
    )
    .await
    .unwrap_or_else(|_| Err(late()))
    .map_err(|status| refused("GetPluginCapabilities", describe(&status)))?
    .into_inner();
    let mut calls = proto::ControllerGetCapabilitiesResponse::default();
    if identity::has_service(&services, Service::ControllerService) {
        let mut client = ControllerClient::new(channel.clone());
        calls = timeout(
            limit,
            client.controller_get_capabilities(proto::ControllerGetCapabilitiesRequest {}),
        )
        .await
        .unwrap_or_else(|_| Err(late()))
        .map_err(|status| refused("ControllerGetCapabilities", describe(&status)))?
        .into_inner();
    }
    identity::identity_of(plugin, &services, &calls).map_err(|problem| refused("GetPluginInfo", problem))
}
