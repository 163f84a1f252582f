//! `berth snapshot`: writes the cluster of a kubeconfig to a file that `explain` and `simulate` read.
//!
//! Only what decisions read is written, so that the file can be shared: secrets are never read, and environments,
//! commands, annotations of other programs and the like are omitted (see `reduce`). The cluster is only read.

mod addresses;
mod anonymize;
mod names;
mod reduce;
pub(crate) mod yaml;

pub use names::{Names, TranslateArgs, translate};

use crate::cluster::{self, Connection, EVIDENCE, ListError, Listed, NOT_ALLOWED, REQUEST_TIMEOUT, WORKLOADS};
use crate::duration::duration;
use crate::input::Gaps;
use crate::input::head::Head;
use anyhow::Context;
use berth_core::api::Kind;
use berth_kube::REPORTS;
use berth_kube::connect::ConnectError;
use berth_kube::resource::Resource;
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `berth snapshot`.
#[derive(Args, Debug)]
pub struct SnapshotArgs {
    /// Output file, replaced atomically, or `-` for standard output.
    #[arg(short, long, value_name = "FILE|-", default_value = "-")]
    pub output: PathBuf,
    /// Path to the kubeconfig. Defaults to KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Defaults to the current context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Include only this namespace and cluster-scoped objects. Can be repeated. Defaults to all namespaces.
    ///
    /// Pods of other namespaces use resources of nodes, too: without them, nodes look emptier than they are.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Vec<String>,
    /// Replace names, labels and images with pseudonyms, consistently.
    ///
    /// Numbers, quantities, kinds, the keys of Kubernetes' own labels and taints, and the names of drivers, resources and
    /// schedulers are kept.
    #[arg(long)]
    pub anonymize: bool,
    /// Write the pseudonyms and what they stand for to this file, to translate answers back with berth translate.
    ///
    /// Keep it to yourself.
    #[arg(long, value_name = "FILE", requires = "anonymize")]
    pub names: Option<PathBuf>,
    /// Include leases, and events about claims and scheduling, so that explain can tell why a pod that fits is pending.
    ///
    /// Messages of events may quote anything; --anonymize leaves them out.
    #[arg(long)]
    pub events: bool,
    /// Timeout of a request to the cluster, e.g. 30s.
    #[arg(long, value_name = "DURATION", default_value = REQUEST_TIMEOUT, value_parser = duration)]
    pub request_timeout: Duration,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is no connection to the cluster.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Listing its objects failed.
    #[error(transparent)]
    List(#[from] ListError),
}

/// What to include.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these namespaces; all if empty.
    pub namespaces: Vec<String>,
    /// Replace names.
    pub anonymize: bool,
    /// Include events and leases.
    pub events: bool,
}

/// The reduced objects of a cluster, in a stable order.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The objects.
    pub objects: Vec<Value>,
    /// What is missing from it, one line each.
    pub warnings: Gaps,
    /// The time of the cluster state.
    taken_at: Option<Timestamp>,
    /// Kinds that the server does not have.
    not_served: Vec<&'static str>,
    /// Kinds that were listed although decisions do not read them.
    listed: Vec<&'static str>,
    /// The originals of replaced names.
    names: Names,
    options: Options,
}

/// Takes a snapshot and writes it. Returns what is missing.
///
/// # Errors
/// If there is no cluster, it does not respond, or the file cannot be written.
pub fn snapshot(args: &SnapshotArgs) -> anyhow::Result<Gaps> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let options = Options {
        namespaces: args.namespace.clone(),
        anonymize: args.anonymize,
        events: args.events,
    };
    let taken: Result<Snapshot, SnapshotError> = runtime.block_on(async {
        let (kubeconfig, context) = (args.kubeconfig.as_deref(), args.context.as_deref());
        let connection = Connection::to(kubeconfig, context, args.request_timeout).await?;
        take(&connection, options).await
    });
    let taken = taken?;
    if let Some(path) = &args.names {
        let names = serde_json::to_vec_pretty(&taken.names)?;
        write(path, &names).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = taken.to_yaml();
    if args.output.as_os_str() == "-" {
        io::stdout().write_all(text.as_bytes())?;
    } else {
        let path = &args.output;
        write(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(taken.warnings)
}

/// Reads a cluster. Kinds that the server does not show to this user become warnings.
///
/// # Errors
/// If the server does not respond.
pub async fn take(connection: &Connection, options: Options) -> Result<Snapshot, SnapshotError> {
    let mut snapshot = Snapshot {
        taken_at: Some(Timestamp::now()),
        ..Snapshot::default()
    };
    let read = Kind::ALL.iter().map(|kind| Resource::of(*kind));
    for resource in read.chain(WORKLOADS).chain([REPORTS]) {
        let mut namespaces: Vec<Option<&str>> = options.namespaces.iter().map(|name| Some(name.as_str())).collect();
        if namespaces.is_empty() || !resource.namespaced {
            namespaces = vec![None];
        }
        for namespace in namespaces {
            snapshot.list(connection, resource, namespace, "").await?;
        }
    }
    if options.events {
        for (resource, fields) in EVIDENCE {
            if snapshot.list(connection, resource, None, fields).await? && !snapshot.listed.contains(&resource.plural) {
                snapshot.listed.push(resource.plural);
            }
        }
    }
    snapshot.finish(options);
    Ok(snapshot)
}

/// Appends a value as one YAML document, in the format that kubectl prints.
pub(crate) use yaml::write as write_yaml;

/// The object reduced to what decisions and simulations read.
pub(crate) fn reduce(object: Value) -> Result<Value, reduce::Unreadable> {
    reduce::reduce(object)
}

impl Snapshot {
    /// A snapshot of objects in memory. Kinds that nothing reads are omitted.
    #[must_use]
    pub fn of(objects: impl IntoIterator<Item = Value>, options: Options) -> Self {
        let mut snapshot = Self::default();
        let read = Kind::ALL.iter().map(|kind| Resource::of(*kind));
        let resources: Vec<Resource> = read.chain(WORKLOADS).chain([REPORTS]).collect();
        for object in objects {
            let known = resources.iter().find(|resource| object["kind"] == resource.kind);
            if let Some(resource) = known {
                snapshot.add(*resource, object);
            }
        }
        snapshot.finish(options);
        snapshot
    }

    /// Adds the objects of a kind, of one namespace or all, that match the fields, if specified. Returns whether they could be
    /// listed.
    async fn list(
        &mut self,
        connection: &Connection,
        resource: Resource,
        namespace: Option<&str>,
        fields: &str,
    ) -> Result<bool, ListError> {
        match cluster::list(connection, resource, namespace, fields).await {
            Ok(Listed::Items(items)) => {
                items.into_iter().for_each(|item| self.add(resource, item));
                return Ok(true);
            }
            Ok(Listed::NotServed) => self.not_served.push(resource.plural),
            // Without list permission it is unknown whether the cluster has the kind; most do not.
            Err(error) if error.is_forbidden() && resource == REPORTS => {}
            Err(error) if error.is_forbidden() => {
                let place = namespace
                    .map(|name| format!(" in namespace {name}"))
                    .unwrap_or_default();
                self.warnings.add(format!("{}: {NOT_ALLOWED}{place}", resource.plural));
            }
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    fn add(&mut self, resource: Resource, mut object: Value) {
        if let Value::Object(fields) = &mut object {
            // The items of a list have no kind.
            fields.insert("apiVersion".to_owned(), resource.api_version().into());
            fields.insert("kind".to_owned(), resource.kind.into());
        }
        match reduce::reduce(object) {
            Ok(object) => self.objects.push(object),
            Err(error) => self.warnings.add(format!("left out, it cannot be read: {error}")),
        }
    }

    fn finish(&mut self, options: Options) {
        self.objects.sort_by_cached_key(place);
        // An event may match twice.
        self.objects.dedup();
        addresses::hide(&mut self.objects);
        if options.anonymize {
            self.names = anonymize::anonymize(&mut self.objects);
            self.objects.sort_by_cached_key(place);
            // Names of objects in warnings would undo it.
            let warnings = std::mem::take(&mut self.warnings);
            for warning in warnings.iter() {
                self.warnings.add(match warning {
                    warning if warning.starts_with("left out") => "an object is left out, it cannot be read",
                    warning => warning,
                });
            }
        }
        if !options.namespaces.is_empty() {
            let names = options.namespaces.join(", ");
            let scope = if options.anonymize { "some namespaces" } else { &names };
            self.warnings.add(format!(
                "of {scope} only: what pods of other namespaces use on nodes is not counted"
            ));
        }
        self.options = options;
    }

    /// The snapshot as YAML documents, with descriptive comments.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = Head::begin(self.taken_at, &mut text);
        text.push_str("# It holds what decisions read; secrets, environments and commands are not in it.\n");
        if self.options.anonymize {
            text.push_str("# Names, labels and images are pseudonyms.\n");
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for object in &self.objects {
            *counts.entry(object["kind"].as_str().unwrap_or_default()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let _ = writeln!(text, "# Objects: {}", counts.join(", "));
        if !self.not_served.is_empty() {
            let _ = writeln!(text, "# The server does not have: {}", self.not_served.join(", "));
        }
        let _ = Head::listed(&self.listed, &mut text);
        for warning in self.warnings.iter() {
            let _ = Head::gap(warning, &mut text);
        }
        for object in &self.objects {
            text.push_str("---\n");
            let _ = yaml::write(&mut text, object);
        }
        text
    }
}

/// The sort key of an object: the kinds in listing order, then by name.
fn place(object: &Value) -> (usize, String, String) {
    let kind = object["kind"].as_str().unwrap_or_default();
    let known = Kind::ALL.iter().map(|kind| kind.name());
    let mut kinds = known
        .chain(WORKLOADS.iter().map(|resource| resource.kind))
        .chain([REPORTS.kind]);
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let index = kinds.position(|known| known == kind).unwrap_or(usize::MAX);
    (index, text("namespace"), text("name"))
}

/// Replaces a file atomically, readable only by its owner. Other kinds of files, such as a pipe, are written to.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A link stays a link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.exists() && !path.is_file() {
        return std::fs::OpenOptions::new().write(true).open(&path)?.write_all(bytes);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(())
}
