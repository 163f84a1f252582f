//! What a new volume is filled with: a snapshot, or the content of another volume.
//!
//! Claims and volumes are known ([`State`]). Snapshots, grants and volume attributes classes are read when they are needed
//! (`Preparation`), because roles for CSI sidecars do not allow to watch them. What was found is recorded on the claim with
//! the rest of the request, so that a repeated request is the same even if the snapshot is gone by then.

use crate::change::Change;
use crate::settings::{Abilities, Settings};
use crate::state::State;
use crate::step::Attempt;
use berth_core::api::{DataSource, ObjectMeta, PersistentVolumeClaim, VolumeSource};
use berth_core::effect::{Effect, Guard, Merge, ObjectKey, Patch, Target};
use berth_core::names;
use berth_core::quantity::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kind of a snapshot.
pub const SNAPSHOT: &str = "VolumeSnapshot";
/// The kind of what a snapshot is bound to.
pub const SNAPSHOT_CONTENT: &str = "VolumeSnapshotContent";
/// The kind of the parameters that can change.
pub const ATTRIBUTES_CLASS: &str = "VolumeAttributesClass";
/// The kind of the permission to use objects of another namespace.
pub const REFERENCE_GRANT: &str = "ReferenceGrant";

const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// What a volume is filled with, as the driver knows it, and where that came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// A snapshot or a volume.
    pub kind: ContentKind,
    /// The driver's name for it.
    pub handle: String,
    /// The namespace of the snapshot or claim.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The kind of [`Content`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentKind {
    /// A snapshot.
    Snapshot,
    /// A volume.
    Volume,
}

impl ContentKind {
    fn name(self) -> &'static str {
        match self {
            Self::Snapshot => SNAPSHOT,
            Self::Volume => "PersistentVolumeClaim",
        }
    }

    fn capability(self) -> &'static str {
        match self {
            Self::Snapshot => "CREATE_DELETE_SNAPSHOT",
            Self::Volume => "CLONE_VOLUME",
        }
    }

    fn is_among(self, abilities: Abilities) -> bool {
        match self {
            Self::Snapshot => abilities.snapshots,
            Self::Volume => abilities.clones,
        }
    }
}

impl Content {
    /// The snapshot that must exist until the volume does.
    #[must_use]
    pub fn snapshot(&self) -> Option<ObjectKey> {
        let is_snapshot = self.kind == ContentKind::Snapshot;
        is_snapshot.then(|| ObjectKey::new(SNAPSHOT, &self.namespace, &self.name))
    }
}

/// The source of a claim's volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// None: the volume is empty.
    Nothing,
    /// An object of a kind that drivers do not know. A volume populator creates another claim without a source, and hands over its
    /// volume.
    Populator,
    /// A snapshot or claim.
    Copy(Source),
}

/// A snapshot or claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    kind: ContentKind,
    namespace: String,
    name: String,
    /// It is in another namespace than the claim.
    is_foreign: bool,
}

/// The source of a claim's volume, or why it cannot be used.
pub(crate) fn wanted(claim: &PersistentVolumeClaim, settings: &Settings) -> Result<Wanted, String> {
    let (source, namespace) = match (&claim.spec.data_source, &claim.spec.data_source_ref) {
        (None, None) => return Ok(Wanted::Nothing),
        (Some(source), _) => (source, ""),
        (None, Some(reference)) => (reference, reference.namespace.as_str()),
    };
    let Some(kind) = kind_of(source) else {
        return Ok(Wanted::Populator);
    };
    if !namespace.is_empty() && !settings.cross_namespace_sources {
        let gate = "feature gate CrossNamespaceVolumeDataSource is off";
        return Err(format!("dataSourceRef names namespace {namespace:?}, and {gate}"));
    }
    if source.name.is_empty() {
        return Err("the data source has no name".to_owned());
    }
    let what = || format!("data source {} {:?} is not supported", source.kind, source.name);
    match settings.abilities {
        None => return Err(format!("{}: only empty volumes are made", what())),
        Some(abilities) if !kind.is_among(abilities) => {
            let capability = kind.capability();
            return Err(format!("{}: the driver lacks the capability {capability}", what()));
        }
        Some(_) => {}
    }
    let own = claim.metadata.namespace.as_str();
    let namespace = if namespace.is_empty() { own } else { namespace };
    Ok(Wanted::Copy(Source {
        kind,
        namespace: namespace.to_owned(),
        name: source.name.clone(),
        is_foreign: namespace != own,
    }))
}

fn kind_of(source: &DataSource) -> Option<ContentKind> {
    let kinds = [("", ContentKind::Volume), (SNAPSHOT_GROUP, ContentKind::Snapshot)];
    let is_it = |(group, kind): &(&str, ContentKind)| *group == source.api_group && kind.name() == source.kind;
    kinds.into_iter().find(is_it).map(|(_, kind)| kind)
}

/// Checks that the volume of a claim can be cloned now.
fn clone_of(claim: &PersistentVolumeClaim, source: &Source, state: &State, driver: &str) -> Result<Content, String> {
    let name = &source.name;
    let found = state.claim(&source.namespace, name);
    let found = found.ok_or_else(|| format!("claim {}/{name} does not exist", source.namespace))?;
    if found.metadata.is_deleting() {
        return Err(format!("claim {name:?} is being deleted"));
    }
    if found.status.phase != "Bound" || found.spec.volume_name.is_empty() {
        return Err(format!("claim {name:?} is not bound yet"));
    }
    let (asked, given) = (claim.requested_bytes(), found.requested_bytes());
    if asked < given {
        return Err(format!(
            "{asked} bytes are requested, and claim {name:?} has {given}: a clone cannot be smaller than its source"
        ));
    }
    let volume = state.volume(&found.spec.volume_name);
    let volume = volume.filter(|volume| {
        let reference = volume.spec.claim_ref.as_ref();
        volume.status.phase == "Bound" && reference.is_some_and(|one| one.uid == found.metadata.uid)
    });
    let volume = volume.ok_or_else(|| format!("claim {name:?} is not bound to its volume yet"))?;
    let VolumeSource::Csi(csi) = volume.spec.source() else {
        return Err(format!(
            "the volume of claim {name:?} is not one of CSI driver {driver:?}"
        ));
    };
    if csi.driver != driver {
        let other = &csi.driver;
        return Err(format!(
            "the volume of claim {name:?} is one of CSI driver {other:?}, not of {driver:?}"
        ));
    }
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let (from, to) = (mode(&volume.spec.volume_mode), mode(&claim.spec.volume_mode));
    if from != to {
        return Err(format!(
            "the volume of claim {name:?} has volume mode {from}, and a clone cannot have {to}"
        ));
    }
    Ok(Content {
        kind: ContentKind::Volume,
        handle: csi.volume_handle.clone(),
        namespace: source.namespace.clone(),
        name: name.clone(),
    })
}

/// The write that keeps the source of a clone until the clone exists, if its claim does not have the finalizer yet.
pub(crate) fn protect_claim(content: &Content, state: &State) -> Option<Effect> {
    let source = state.claim(&content.namespace, &content.name)?;
    let is_new = content.kind == ContentKind::Volume && !source.metadata.is_deleting();
    is_new.then(|| Change::ProtectSource.lower(&source.metadata))?
}

/// The write that no longer keeps a claim as the source of clones: it is being deleted, and no clone of it is being made.
pub(crate) fn unprotect_claim(claim: &PersistentVolumeClaim, state: &State) -> Option<Effect> {
    if !claim.metadata.is_deleting() || !has_finalizer(&claim.metadata, names::CLONE_PROTECTION) {
        return None;
    }
    let is_needed = state
        .claims()
        .any(|other| other.status.phase == "Pending" && is_clone_of(other, &claim.metadata));
    (!is_needed).then(|| Change::ReleaseSource.lower(&claim.metadata))?
}

/// The claim that a claim's volume is cloned from.
pub(crate) fn cloned_claim(claim: &PersistentVolumeClaim) -> Option<ObjectKey> {
    let source = claim
        .spec
        .data_source
        .as_ref()
        .or(claim.spec.data_source_ref.as_ref())?;
    let is_claim = kind_of(source) == Some(ContentKind::Volume);
    let namespace = match source.namespace.as_str() {
        "" => claim.metadata.namespace.as_str(),
        namespace => namespace,
    };
    is_claim.then(|| ObjectKey::claim(namespace, &source.name))
}

fn is_clone_of(claim: &PersistentVolumeClaim, source: &ObjectMeta) -> bool {
    cloned_claim(claim).is_some_and(|key| key.namespace == source.namespace && key.name == source.name)
}

fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().any(|one| one == finalizer)
}

/// Something to read from the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// One object.
    One(ObjectKey),
    /// All objects of a kind in a namespace, as a list.
    All {
        /// The kind.
        kind: &'static str,
        /// The namespace.
        namespace: String,
    },
}

/// What was read: `None` if there is no such object.
pub type Looked = Result<Option<Value>, String>;

/// What must be read before a volume is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    source: Option<Source>,
    attributes_class: Option<String>,
    /// A snapshot that was found before, which must be kept for a repeated request.
    kept: Option<ObjectKey>,
}

impl Needs {
    /// What the request for a claim needs, and the content that is already known.
    pub(crate) fn new(
        claim: &PersistentVolumeClaim,
        source: Option<Source>,
        attributes_class: Option<&str>,
        state: &State,
        settings: &Settings,
    ) -> Result<(Self, Option<Content>), String> {
        let content = source.as_ref().filter(|source| source.kind == ContentKind::Volume);
        let content = content.map(|source| {
            let content = clone_of(claim, source, state, &settings.provisioner);
            content.map_err(|problem| format!("data source {}: {problem}", source.kind.name()))
        });
        let needs = Self {
            source: source.filter(|source| source.is_foreign || source.kind == ContentKind::Snapshot),
            attributes_class: attributes_class.map(str::to_owned),
            kept: None,
        };
        Ok((needs, content.transpose()?))
    }

    /// For a request that is repeated.
    pub(crate) fn repeated(content: Option<&Content>) -> Self {
        Self {
            kept: content.and_then(Content::snapshot),
            ..Self::default()
        }
    }
}

/// The attributes class of a claim's volume, or why it cannot be used.
pub(crate) fn attributes_class<'a>(
    claim: &'a PersistentVolumeClaim,
    settings: &Settings,
) -> Result<Option<&'a str>, String> {
    let name = claim.spec.volume_attributes_class_name.as_deref();
    let Some(name) = name.filter(|name| !name.is_empty() && settings.attributes_classes) else {
        return Ok(None);
    };
    match settings.abilities {
        Some(abilities) if abilities.attributes => Ok(Some(name)),
        Some(_) => Err(format!(
            "volume attributes class {name:?} is not supported: the driver lacks the capability MODIFY_VOLUME"
        )),
        None => Err(format!(
            "volume attributes class {name:?} is not supported: a volume would be made without its parameters"
        )),
    }
}

/// Reads what a request needs, one object after the other, and checks it.
#[derive(Debug)]
pub(crate) struct Preparation {
    needs: Needs,
    /// The snapshot of the source, once it was read.
    snapshot: Option<Value>,
    /// The write that keeps the snapshot until the volume exists.
    protect: Option<Effect>,
}

impl Preparation {
    pub(crate) fn new(needs: Needs) -> Self {
        Self {
            needs,
            snapshot: None,
            protect: None,
        }
    }

    /// What to read next; `None` if everything was read.
    pub(crate) fn lookup(&self) -> Option<Lookup> {
        if let Some(snapshot) = &self.needs.kept {
            return Some(Lookup::One(snapshot.clone()));
        }
        match (&self.needs.source, &self.snapshot) {
            (Some(source), _) if source.is_foreign => Some(Lookup::All {
                kind: REFERENCE_GRANT,
                namespace: source.namespace.clone(),
            }),
            (Some(source), None) => Some(Lookup::One(ObjectKey::new(SNAPSHOT, &source.namespace, &source.name))),
            (Some(_), Some(snapshot)) => {
                let name = text(snapshot, "/status/boundVolumeSnapshotContentName");
                Some(Lookup::One(ObjectKey::new(SNAPSHOT_CONTENT, "", name)))
            }
            (None, _) => {
                let name = self.needs.attributes_class.as_ref()?;
                Some(Lookup::One(ObjectKey::new(ATTRIBUTES_CLASS, "", name)))
            }
        }
    }

    /// The result of [`Self::lookup`]. What it determines is added to the attempt.
    pub(crate) fn looked(&mut self, looked: Looked, attempt: &mut Attempt, settings: &Settings) -> Result<(), String> {
        let found = looked?;
        let claim = &attempt.request.claim;
        if self.needs.kept.take().is_some() {
            // A snapshot that is gone cannot be kept, but the driver may have a volume from it.
            self.protect = found.as_ref().and_then(protect_snapshot);
            return Ok(());
        }
        let Some(source) = &mut self.needs.source else {
            let class = found.ok_or_else(|| "the volume attributes class does not exist".to_owned())?;
            attempt.set_mutable_parameters(mutable_parameters(&class, settings)?);
            self.needs.attributes_class = None;
            return Ok(());
        };
        let prefix = |problem: String| format!("data source {} {:?}: {problem}", source.kind.name(), source.name);
        if source.is_foreign {
            let granted = found.as_ref().is_some_and(|list| is_granted(list, claim, source));
            if !granted {
                let namespace = &source.namespace;
                return Err(prefix(format!(
                    "no ReferenceGrant in namespace {namespace:?} allows its use here"
                )));
            }
            source.is_foreign = false;
            if source.kind == ContentKind::Volume {
                // The step has found its content.
                self.needs.source = None;
            }
            return Ok(());
        }
        match self.snapshot.take() {
            None => {
                let snapshot = found.ok_or_else(|| prefix("it does not exist".to_owned()))?;
                check_snapshot(&snapshot, claim).map_err(prefix)?;
                self.snapshot = Some(snapshot);
            }
            Some(snapshot) => {
                let content = found.ok_or_else(|| prefix("its VolumeSnapshotContent does not exist".to_owned()))?;
                let handle = check_content(&snapshot, &content, claim, settings).map_err(prefix)?;
                self.protect = protect_snapshot(&snapshot);
                attempt.set_content(Content {
                    kind: ContentKind::Snapshot,
                    handle,
                    namespace: source.namespace.clone(),
                    name: source.name.clone(),
                });
                self.needs.source = None;
            }
        }
        Ok(())
    }

    /// The write that keeps the snapshot until the volume exists.
    pub(crate) fn protect(&mut self) -> Option<Effect> {
        self.protect.take()
    }
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn check_snapshot(snapshot: &Value, claim: &PersistentVolumeClaim) -> Result<(), String> {
    if snapshot.pointer("/metadata/deletionTimestamp").is_some() && !has(snapshot, names::SNAPSHOT_PROTECTION) {
        return Err("it is being deleted".to_owned());
    }
    if text(snapshot, "/status/boundVolumeSnapshotContentName").is_empty() {
        return Err("it is not bound yet".to_owned());
    }
    if snapshot.pointer("/status/readyToUse") != Some(&Value::Bool(true)) {
        return Err("it is not ready yet".to_owned());
    }
    let size: Option<Quantity> = text(snapshot, "/status/restoreSize").parse().ok();
    let (asked, size) = (claim.requested_bytes(), size.map_or(0, Quantity::value));
    if asked < size {
        return Err(format!(
            "{asked} bytes are requested, and it has {size}: a volume cannot be smaller"
        ));
    }
    Ok(())
}

/// The driver's name for a snapshot.
fn check_content(
    snapshot: &Value,
    content: &Value,
    claim: &PersistentVolumeClaim,
    settings: &Settings,
) -> Result<String, String> {
    let name = text(content, "/metadata/name");
    let refers = ["uid", "namespace", "name"].into_iter().all(|field| {
        text(content, &format!("/spec/volumeSnapshotRef/{field}")) == text(snapshot, &format!("/metadata/{field}"))
    });
    if !refers {
        return Err(format!(
            "its VolumeSnapshotContent {name:?} belongs to another snapshot"
        ));
    }
    let (found, driver) = (text(content, "/spec/driver"), settings.provisioner.as_str());
    if found != driver {
        return Err(format!(
            "it was made by CSI driver {found:?}, and the class is one of {driver:?}"
        ));
    }
    if settings.prevent_mode_conversion {
        check_mode(content, claim)?;
    }
    match text(content, "/status/snapshotHandle") {
        "" => Err(format!("its VolumeSnapshotContent {name:?} names no handle yet")),
        handle => Ok(handle.to_owned()),
    }
}

/// A volume of another mode than the snapshot's needs permission: a file system made by a user can attack the kernel that
/// mounts it.
fn check_mode(content: &Value, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let (from, to) = (
        text(content, "/spec/sourceVolumeMode"),
        claim.spec.volume_mode.as_deref().unwrap_or(""),
    );
    if from.is_empty() || to.is_empty() || from == to {
        return Ok(());
    }
    let annotations = content.pointer("/metadata/annotations");
    let allowed = annotations
        .and_then(|all| all.get(names::ALLOW_MODE_CHANGE))
        .and_then(Value::as_str);
    if matches!(allowed, Some("1" | "t" | "T" | "true" | "True" | "TRUE")) {
        return Ok(());
    }
    let (name, key) = (text(content, "/metadata/name"), names::ALLOW_MODE_CHANGE);
    Err(format!(
        "it has volume mode {from}, and {to} is requested: VolumeSnapshotContent {name:?} lacks the annotation {key}: \"true\""
    ))
}

fn mutable_parameters(class: &Value, settings: &Settings) -> Result<BTreeMap<String, String>, String> {
    let (found, driver) = (text(class, "/driverName"), settings.provisioner.as_str());
    if found != driver {
        let name = text(class, "/metadata/name");
        return Err(format!(
            "volume attributes class {name:?} is one of driver {found:?}, not of {driver:?}"
        ));
    }
    let parameters = class.pointer("/parameters").and_then(Value::as_object);
    let pairs = parameters.into_iter().flatten().filter_map(|(key, value)| {
        let value = value.as_str()?;
        Some((key.clone(), value.to_owned()))
    });
    Ok(pairs.collect())
}

/// Whether one of these grants lets claims of the claim's namespace use the source.
fn is_granted(list: &Value, claim: &PersistentVolumeClaim, source: &Source) -> bool {
    let group = match source.kind {
        ContentKind::Snapshot => SNAPSHOT_GROUP,
        ContentKind::Volume => "",
    };
    let entries = |grant: &Value, field: &str| grant["spec"][field].as_array().cloned().unwrap_or_default();
    let field = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let is_from = |entry: &Value| {
        field(entry, "group").is_empty()
            && field(entry, "kind") == ContentKind::Volume.name()
            && field(entry, "namespace") == claim.metadata.namespace
    };
    let is_to = |entry: &Value| {
        field(entry, "group") == group
            && field(entry, "kind") == source.kind.name()
            && ["", source.name.as_str()].contains(&field(entry, "name").as_str())
    };
    let grants = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    grants
        .iter()
        .any(|grant| entries(grant, "from").iter().any(is_from) && entries(grant, "to").iter().any(is_to))
}

fn finalizers(object: &Value) -> Vec<&str> {
    let found = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    found.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn has(object: &Value, finalizer: &str) -> bool {
    finalizers(object).contains(&finalizer)
}

/// The write that keeps a snapshot, unless it is kept or on its way out.
fn protect_snapshot(snapshot: &Value) -> Option<Effect> {
    let is_deleting = snapshot.pointer("/metadata/deletionTimestamp").is_some();
    if is_deleting || has(snapshot, names::SNAPSHOT_PROTECTION) {
        return None;
    }
    let mut all = finalizers(snapshot);
    all.push(names::SNAPSHOT_PROTECTION);
    Some(set_finalizers(snapshot, &all, "protect_snapshot"))
}

/// The write that no longer keeps a snapshot.
pub(crate) fn unprotect_snapshot(snapshot: &Value) -> Option<Effect> {
    let all = finalizers(snapshot);
    let left: Vec<&str> = all
        .iter()
        .copied()
        .filter(|one| *one != names::SNAPSHOT_PROTECTION)
        .collect();
    (left.len() < all.len()).then(|| set_finalizers(snapshot, &left, "release_snapshot"))
}

fn set_finalizers(snapshot: &Value, finalizers: &[&str], name: &'static str) -> Effect {
    let metadata = |field| text(snapshot, field).to_owned();
    Effect::Patch(Patch {
        target: Target {
            api_version: "snapshot.storage.k8s.io/v1".into(),
            key: ObjectKey::new(SNAPSHOT, metadata("/metadata/namespace"), metadata("/metadata/name")),
            uid: metadata("/metadata/uid"),
            resource_version: metadata("/metadata/resourceVersion"),
        },
        guard: Guard::Version,
        subresource: None,
        merge: Merge::Json,
        body: json!({"metadata": {"finalizers": finalizers}}),
        name,
    })
}
