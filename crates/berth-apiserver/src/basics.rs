//! Objects that every cluster has by default: some namespaces and classes; in each namespace a service account and the
//! certificate of the API server; and the service of the API server.
//!
//! In a cluster, controllers and the API server itself maintain them. Here the server creates them at startup, and again whenever
//! they are changed or deleted (see [`crate::collector`]).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use berth_kinds::kinds::{pod, priority_class};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api::Api;
use crate::error::ApiError;
use crate::meta;
use crate::patch::merge;
use crate::server::BuildError;
use crate::store::{Object, Ticket};
use crate::types::Served;
use crate::write::{Change, Outcome};

/// The initial namespaces of a cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// The namespace of the API server's service and its related objects.
const HOME: &str = "default";
/// The service of the API server, and its endpoints.
const SERVICE: &str = "kubernetes";
/// Its address: the first one for services.
const SERVICE_ADDRESS: &str = "10.96.0.1";
/// The ConfigMap with the CA certificate of the server.
const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

/// The server's address and how clients authenticate it.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) address: SocketAddr,
    pub(crate) authority_pem: String,
}

/// A default object, with its required content.
struct Basic {
    api_version: &'static str,
    kind: &'static str,
    name: &'static str,
    object: Value,
}

/// Creates the initial objects of a cluster, unless they exist.
pub(crate) fn make(api: &Api) -> Result<(), BuildError> {
    let mut tickets = Vec::new();
    for name in NAMESPACES {
        let failed = |error: ApiError| BuildError::Basics {
            name,
            reason: error.to_string(),
        };
        tickets.extend(create_namespace(api, name).map_err(failed)?);
        let furnished = furnish(api, name);
        if let Some((_, error)) = furnished.failed.into_iter().next() {
            return Err(failed(error));
        }
        tickets.extend(furnished.tickets.into_iter().map(|(_, ticket)| ticket));
    }
    for class in priority_class::system_classes() {
        let name = class.name;
        let made = create_if_served(api, "scheduling.k8s.io/v1", "PriorityClass", name, class.object());
        tickets.extend(made.map_err(|error| BuildError::Basics {
            name,
            reason: error.to_string(),
        })?);
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    Ok(())
}

/// Creates a namespace unless it exists.
pub(crate) fn create_namespace(api: &Api, name: &str) -> Result<Option<Ticket>, ApiError> {
    create_if_served(api, "v1", "Namespace", name, json!({}))
}

/// How long a repaired object is left alone.
const PEACE: SignedDuration = SignedDuration::from_secs(1);

/// Recently repaired objects, with the time. A client that alternates writes with this server wins: a reverted repair is not
/// repeated at once.
#[derive(Default)]
pub(crate) struct Mended(Mutex<HashMap<(Arc<str>, String), Timestamp>>);

impl Mended {
    fn has(&self, table: &Arc<str>, key: &str, now: Timestamp) -> bool {
        let mut mended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mended.retain(|_, at| now.duration_since(*at) < PEACE);
        mended.contains_key(&(table.clone(), key.to_owned()))
    }

    fn note(&self, table: &Arc<str>, key: &str, now: Timestamp) {
        let mut mended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mended.insert((table.clone(), key.to_owned()), now);
    }
}

/// Creates what a namespace lacks, and repairs what differs. Returns the affected tables. An object that cannot be created or repaired
/// does not prevent the others.
pub(crate) fn furnish(api: &Api, namespace: &str) -> Furnished {
    let mut furnished = Furnished::default();
    for basic in of_namespace(api, namespace) {
        let Some(served) = api.types().by_kind(basic.api_version, basic.kind).cloned() else {
            continue;
        };
        let (kind, name) = (basic.kind, basic.name);
        match furnish_with(api, namespace, basic, &served) {
            Ok(made) => furnished
                .tickets
                .extend(made.map(|ticket| (served.table.clone(), ticket))),
            Err(error) => furnished.failed.push((format!("{kind} {namespace}/{name}"), error)),
        }
    }
    furnished
}

/// The result for a namespace.
#[derive(Default)]
pub(crate) struct Furnished {
    /// The writes, by table.
    pub(crate) tickets: Vec<(Arc<str>, Ticket)>,
    /// The failures, with reasons.
    pub(crate) failed: Vec<(String, ApiError)>,
}

fn furnish_with(api: &Api, namespace: &str, basic: Basic, served: &Arc<Served>) -> Result<Option<Ticket>, ApiError> {
    let (key, now) = (meta::key(namespace, basic.name), api.now());
    if api.store.latest(&served.table, &key).is_none() {
        return create(api, served, namespace, basic.name, basic.object);
    }
    if api.collector.mended.has(&served.table, &key, now) {
        return Ok(None);
    }
    let mut change = Change::internal(api, served.clone(), namespace, basic.name);
    let mended = change.change(true, |old| {
        let mut new = merge::apply(old, &basic.object);
        // The address of a service is kept.
        meta::copy(old, &mut new, &["spec", "clusterIP"]);
        Ok(new)
    });
    Ok(match mended? {
        Outcome::Stored(ticket) => {
            api.collector.mended.note(&served.table, &key, now);
            Some(ticket)
        }
        Outcome::Unchanged(_) | Outcome::Tried(_) => None,
    })
}

/// Whether an object is one of the default ones, by its table.
pub(crate) fn is_basic(table: &str, object: &Object) -> bool {
    match table {
        "serviceaccounts" => object.name() == pod::DEFAULT_ACCOUNT,
        "configmaps" => object.name() == ROOT_CERTIFICATE,
        "services" | "endpoints" | "endpointslices.discovery.k8s.io" => {
            object.name() == SERVICE && object.namespace() == HOME
        }
        _ => false,
    }
}

/// The objects that a namespace must have.
fn of_namespace(api: &Api, namespace: &str) -> Vec<Basic> {
    let basic = |api_version, kind, name, object| Basic {
        api_version,
        kind,
        name,
        object,
    };
    let mut basics = Vec::new();
    if api.features.service_accounts {
        basics.push(basic("v1", "ServiceAccount", pod::DEFAULT_ACCOUNT, json!({})));
    }
    let Some(Published { address, authority_pem }) = api.published() else {
        return basics;
    };
    let certificate = json!({"data": {"ca.crt": authority_pem}});
    basics.push(basic("v1", "ConfigMap", ROOT_CERTIFICATE, certificate));
    if namespace == HOME {
        let (ip, port) = (address.ip().to_string(), address.port());
        let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let service = json!({"metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"type": "ClusterIP", "clusterIP": SERVICE_ADDRESS, "ports": [
                {"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]}});
        let endpoints = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": ip}], "ports": ports}]});
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": SERVICE}}, "addressType": family,
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}], "ports": ports});
        basics.push(basic("v1", "Service", SERVICE, service));
        basics.push(basic("v1", "Endpoints", SERVICE, endpoints));
        basics.push(basic("discovery.k8s.io/v1", "EndpointSlice", SERVICE, slice));
    }
    basics
}

/// Creates an object that lives in no namespace, unless it exists or its kind is not served.
fn create_if_served(
    api: &Api,
    api_version: &str,
    kind: &str,
    name: &str,
    object: Value,
) -> Result<Option<Ticket>, ApiError> {
    match api.types().by_kind(api_version, kind).cloned() {
        Some(served) if api.store.latest(&served.table, &meta::key("", name)).is_none() => {
            create(api, &served, "", name, object)
        }
        _ => Ok(None),
    }
}

/// Creates an object. If it was created meanwhile, that one stays.
fn create(
    api: &Api,
    served: &Arc<Served>,
    namespace: &str,
    name: &str,
    object: Value,
) -> Result<Option<Ticket>, ApiError> {
    let mut change = Change::internal(api, served.clone(), namespace, name);
    match change.create(object, &[]) {
        Ok(Outcome::Stored(ticket)) => Ok(Some(ticket)),
        Ok(Outcome::Unchanged(_) | Outcome::Tried(_)) => Ok(None),
        Err(error) if error.reason == "AlreadyExists" => Ok(None),
        Err(error) => Err(error),
    }
}
