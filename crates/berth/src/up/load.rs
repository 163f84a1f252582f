//! The initial objects of a cluster: those of the user's files, or the sample cluster.

use super::components::{Chosen, Component};
use berth_apiserver::{LeftOut, Server};
use berth_cluster::agent;
use berth_cluster::sample::{self, Shape};
use berth_kube::resource::Resource;
use serde_json::Value;
use std::collections::BTreeMap;

/// Why a cluster cannot be started from the files.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The API server does not serve a kind that matters here.
    #[error("{kind} {name:?}: the API server knows no kind {kind:?} in {api_version:?}")]
    UnknownKind {
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's `kind`.
        kind: String,
        /// The object's name.
        name: String,
    },
    /// The API server refuses an object.
    #[error(transparent)]
    Refused(#[from] berth_apiserver::LoadError),
}

/// The initial state of a cluster.
#[derive(Debug, Default)]
pub(super) struct Started {
    /// Number of nodes.
    pub(super) nodes: usize,
    /// Remarks about the files.
    pub(super) notes: Vec<String>,
}

/// Loads the objects unmodified from the files, or a cluster of this shape if there are no files. Existing objects are left
/// unchanged.
pub(super) async fn load(
    server: &Server,
    chosen: &Chosen,
    objects: Option<Vec<Value>>,
    shape: &Shape,
) -> Result<Started, LoadError> {
    let is_sample = objects.is_none();
    let mut objects = objects.unwrap_or_default();
    // A cluster that was started before keeps its objects, even if they differ from the sample.
    if is_sample && chosen.has(Component::Nodes) && count_nodes(server) == 0 {
        objects = sample::objects(shape);
    }
    objects.iter_mut().for_each(agent::stop_if_lost);
    let loaded = server.load(objects).await?;
    // A dump of a real cluster contains objects that nothing here needs.
    if let Some(LeftOut {
        api_version,
        kind,
        name,
    }) = loaded.left_out.iter().find(|left| is_needed(&left.kind)).cloned()
    {
        return Err(LoadError::UnknownKind {
            api_version,
            kind,
            name,
        });
    }
    let mut notes = Vec::new();
    notes.extend(left_out(&loaded.left_out));
    if loaded.without_owners > 0 {
        notes.push(format!(
            "owners that are not in the files: {} objects stay without them",
            loaded.without_owners
        ));
    }
    Ok(Started {
        nodes: count_nodes(server),
        notes,
    })
}

/// The skipped objects, by kind.
fn left_out(objects: &[LeftOut]) -> Option<String> {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for object in objects {
        *kinds.entry(&object.kind).or_default() += 1;
    }
    let named = |(kind, count): (&&str, &usize)| format!("{count} {}", crate::terminal::one_line(kind));
    let counts: Vec<String> = kinds.iter().map(named).collect();
    let note = format!("left out: {} (kinds that are not served here)", counts.join(", "));
    (!counts.is_empty()).then_some(note)
}

/// Whether some component of a control plane reads a kind. Volume attributes classes are only protected while they are used; a
/// dump may contain an older version of them.
fn is_needed(kind: &str) -> bool {
    let mut read = super::steps::resources().into_iter();
    read.any(|resource| resource.kind == kind && resource != Resource::VOLUME_ATTRIBUTES_CLASSES)
        || berth_core::api::Kind::ALL.iter().any(|one| one.name() == kind)
}

fn count_nodes(server: &Server) -> usize {
    let tables = server.store().tables();
    let nodes = tables.iter().find(|(table, _)| &**table == "nodes");
    nodes.map_or(0, |(_, count)| *count)
}
