//! Volumes, claims and classes in the form that decisions use: small, with interned strings.

use crate::api;
use crate::binder::PodVolumes;
use crate::clean;
use crate::hold::{Hold, VolumeHold};
use crate::label::{LabelSelector, Labels};
use crate::migration::{InTreePlugin, TranslationError};
use crate::names;
use crate::nodes::SelectorId;
use crate::slots::SlotId;
use crate::symbols::{Symbol, Symbols};
use crate::time;
use crate::trace::{Marks, Trace};
use std::sync::Arc;

/// The ID of a volume. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub(crate) SlotId);

/// The ID of a claim. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub(crate) SlotId);

/// A set of access modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessModes(u8);

impl AccessModes {
    /// The mode that allows a single pod.
    pub const READ_WRITE_ONCE_POD: Self = Self(8);

    /// The set of the modes in a list. Unknown modes are ignored; decoded objects have none.
    #[must_use]
    pub fn new(modes: &[String]) -> Self {
        Self(modes.iter().fold(0, |set, mode| {
            set | match mode.as_str() {
                "ReadWriteOnce" => 1,
                "ReadOnlyMany" => 2,
                "ReadWriteMany" => 4,
                "ReadWriteOncePod" => 8,
                _ => 0,
            }
        }))
    }

    /// Whether every mode of another set is in this one.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// How many modes there are.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The modes in the short form that kubectl prints: `RWO,ROX`.
    #[must_use]
    pub fn abbreviated(self) -> String {
        [(1, "RWO"), (2, "ROX"), (4, "RWX"), (8, "RWOP")]
            .iter()
            .filter(|(bit, _)| self.0 & bit != 0)
            .map(|(_, name)| *name)
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// How a volume is presented to a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeMode {
    /// A directory.
    #[default]
    Filesystem,
    /// A raw device.
    Block,
}

impl VolumeMode {
    fn new(mode: Option<&str>) -> Self {
        if mode == Some("Block") {
            Self::Block
        } else {
            Self::Filesystem
        }
    }
}

/// The claim that a volume is bound to or reserved for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: Symbol,
    /// Its name.
    pub name: Box<str>,
    /// Its UID; empty if the writer of the reference did not know it.
    pub uid: Box<str>,
}

crate::trace!(ClaimRef { namespace; name, uid });

/// The disk behind a volume, as attach limits count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// A CSI driver's volume.
    Csi {
        /// The driver.
        driver: Symbol,
        /// The driver's name for the volume.
        handle: Box<str>,
    },
    /// A volume of an in-tree plugin that a CSI driver serves on nodes where the plugin is migrated.
    InTree {
        /// The plugin.
        plugin: InTreePlugin,
        /// The CSI driver's name for the volume.
        handle: Result<Box<str>, TranslationError>,
        /// The nodes that can reach it where it is migrated.
        migrated_affinity: SelectorId,
    },
}

impl Trace for Disk {
    fn trace(&self, marks: &mut Marks) {
        match self {
            Self::Csi { driver, handle: _ } => driver.trace(marks),
            Self::InTree {
                plugin: _,
                handle: _,
                migrated_affinity: _,
            } => {}
        }
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: Arc<str>,
    /// Its class; empty for none.
    pub class: Symbol,
    /// Its size in bytes.
    pub capacity: i64,
    /// The ways in which it can be mounted.
    pub access_modes: AccessModes,
    /// How it is presented to a container.
    pub volume_mode: VolumeMode,
    /// Its attributes class; empty for none.
    pub attributes_class: Symbol,
    /// Whether its phase is `Available`.
    pub available: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Labels,
    /// The nodes that can reach it.
    pub affinity: SelectorId,
    /// The nodes that its zone and region labels allow.
    pub zones: SelectorId,
    /// The claim it is bound to or reserved for.
    pub claim_ref: Option<Box<ClaimRef>>,
    /// The attempt that holds it for that claim.
    pub hold: Option<Box<VolumeHold>>,
    /// The disk behind it.
    pub disk: Option<Box<Disk>>,
    /// The driver that attaches it, including one that replaces an in-tree plugin; empty for none.
    pub driver: Symbol,
    /// Its resource version; 0 if unknown.
    pub version: u64,
    /// When it was created, in seconds since 1970; 0 if unknown.
    pub created: i64,
}

crate::trace!(Volume {
    class, attributes_class, labels, claim_ref, disk, driver;
    name, capacity, access_modes, volume_mode, available, deleting, affinity, zones, hold, version, created
});

impl Volume {
    /// Whether an unbound claim may use it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.available && !self.deleting && self.claim_ref.is_none()
    }

    /// Whether it is reserved for or bound to exactly this claim. A volume created for a finished attempt belongs to no
    /// claim.
    #[must_use]
    pub fn is_for(&self, claim: &Claim) -> bool {
        let hold = self.hold.as_ref();
        let is_orphan = hold.is_some_and(|hold| hold.is_orphan(claim.hold.as_deref()));
        if is_orphan && *claim.volume_name != *self.name {
            return false;
        }
        self.claim_ref.as_ref().is_some_and(|reference| {
            reference.namespace == claim.namespace
                && reference.name == claim.name
                && (reference.uid.is_empty() || reference.uid == claim.uid)
        })
    }
}

/// What a claim requires of a volume, apart from its class: claims of one shape are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimShape {
    /// At least this many bytes.
    pub request: i64,
    /// At least these access modes.
    pub access_modes: AccessModes,
    /// Presented in this way.
    pub volume_mode: VolumeMode,
    /// With this attributes class.
    pub attributes_class: Symbol,
    /// With labels that match, if there is a selector.
    pub selector: Option<Arc<LabelSelector>>,
}

crate::trace!(ClaimShape { attributes_class, selector; request, access_modes, volume_mode });

impl ClaimShape {
    /// Whether a volume with these properties suits, regardless of size and labels.
    pub(crate) fn suits(&self, access_modes: AccessModes, volume_mode: VolumeMode, attributes_class: Symbol) -> bool {
        access_modes.contains(self.access_modes)
            && volume_mode == self.volume_mode
            && attributes_class == self.attributes_class
    }

    /// Whether a volume's labels match.
    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        let selector = self.selector.as_ref();
        selector.is_none_or(|selector| selector.matches(labels))
    }

    /// Whether a free volume that a node can reach suits.
    pub(crate) fn is_met_by(&self, volume: &Volume) -> bool {
        volume.capacity >= self.request && self.is_met_if_large(volume)
    }

    /// Whether a free volume that a node can reach suits, regardless of its size.
    #[must_use]
    pub fn is_met_if_large(&self, volume: &Volume) -> bool {
        self.suits(volume.access_modes, volume.volume_mode, volume.attributes_class) && self.selects(&volume.labels)
    }
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its namespace.
    pub namespace: Symbol,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its class. `None` if not set, which differs from an empty name.
    pub class: Option<Symbol>,
    /// What it requires of a volume.
    pub shape: ClaimShape,
    /// The volume it is bound to or requests; empty for none.
    pub volume_name: Box<str>,
    /// Whether the binding to that volume is complete.
    pub bind_completed: bool,
    /// Whether its volume has been lost.
    pub lost: bool,
    /// Whether it is being deleted, or given back, which ends with that.
    pub deleting: bool,
    /// Whether it is bound and no pod has ever used it.
    pub clean: bool,
    /// Whether it may be given back then, if the claim says so itself.
    pub rollback: Option<bool>,
    /// The node to provision its volume for; empty for none.
    pub selected_node: Symbol,
    /// The attempt for which that node was selected, if the claim is held.
    pub hold: Option<Box<Hold>>,
    /// The UID of its controller; empty for none.
    pub controller_uid: Box<str>,
    /// Its resource version; 0 if unknown.
    pub version: u64,
}

crate::trace!(Claim {
    namespace, class, shape, selected_node;
    name, uid, volume_name, bind_completed, lost, deleting, clean, rollback, hold, controller_uid, version
});

impl Claim {
    /// Converts a claim to the model.
    #[must_use]
    pub fn new(symbols: &mut Symbols, claim: &api::PersistentVolumeClaim) -> Self {
        let selector = claim.spec.selector.as_ref();
        let controller = claim
            .metadata
            .owner_references
            .iter()
            .find(|owner| owner.controller == Some(true));
        Self {
            namespace: symbols.intern(&claim.metadata.namespace),
            name: claim.metadata.name.as_str().into(),
            uid: claim.metadata.uid.as_str().into(),
            class: claim.class_name().map(|class| symbols.intern(class)),
            shape: ClaimShape {
                request: claim.requested_bytes(),
                access_modes: AccessModes::new(&claim.spec.access_modes),
                volume_mode: VolumeMode::new(claim.spec.volume_mode.as_deref()),
                attributes_class: symbols.intern(claim.spec.volume_attributes_class_name.as_deref().unwrap_or("")),
                selector: selector.map(|selector| Arc::new(LabelSelector::new(symbols, Some(selector)))),
            },
            volume_name: claim.spec.volume_name.as_str().into(),
            bind_completed: claim.metadata.annotation(names::BIND_COMPLETED).is_some(),
            lost: claim.status.phase == "Lost",
            deleting: claim.metadata.is_deleting() || clean::Rollback::of_claim(claim).is_some(),
            clean: clean::is_clean(claim),
            rollback: clean::choice(&claim.metadata),
            selected_node: symbols.intern(claim.selected_node().unwrap_or("")),
            hold: Hold::of_claim(claim).map(Box::new),
            controller_uid: controller.map_or("", |owner| &owner.uid).into(),
            version: version_of(&claim.metadata),
        }
    }

    /// Whether the claim was created for an ephemeral volume of this pod, which is its controller.
    #[must_use]
    pub fn is_made_for(&self, pod: &PodVolumes) -> bool {
        !self.controller_uid.is_empty() && self.controller_uid == pod.uid
    }

    /// Whether the claim is fully bound to a volume.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.bind_completed && !self.volume_name.is_empty()
    }
}

/// A storage class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The provisioner that creates its volumes.
    pub provisioner: Symbol,
    /// The name of the `CSIDriver` object that publishes its capacity.
    pub driver: Symbol,
    /// Whether the class has a provisioner.
    pub provisions: bool,
    /// Whether binding waits for the first consumer.
    pub delayed: bool,
    /// Where volumes may be created.
    pub allowed_topologies: SelectorId,
    /// Its weight in the capacity score, if set.
    pub weight: Option<i64>,
    /// Whether its claims may be given back that no pod has ever used.
    pub rollback: bool,
    /// Changes whenever any of these fields changed or the class was recreated.
    pub(crate) number: u64,
}

crate::trace!(Class { provisioner, driver; provisions, delayed, allowed_topologies, weight, rollback, number });

/// The resource version as a number; 0 if it is not a number, as in files.
pub(crate) fn version_of(metadata: &api::ObjectMeta) -> u64 {
    metadata.resource_version.parse().unwrap_or(0)
}

/// When an object was created, in seconds since 1970; 0 if unknown.
fn created_at(metadata: &api::ObjectMeta) -> i64 {
    let created = metadata.creation_timestamp.as_deref();
    created.and_then(time::since_1970).unwrap_or(0)
}

/// The parts of a volume that do not need the node table.
pub(crate) fn volume_without_selectors(symbols: &mut Symbols, volume: &api::PersistentVolume) -> Volume {
    let claim_ref = volume.spec.claim_ref.as_ref().map(|reference| {
        Box::new(ClaimRef {
            namespace: symbols.intern(&reference.namespace),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
        })
    });
    Volume {
        name: volume.metadata.name.as_str().into(),
        class: symbols.intern(volume.class_name()),
        capacity: volume
            .spec
            .capacity
            .get("storage")
            .map_or(0, |quantity| quantity.value()),
        access_modes: AccessModes::new(&volume.spec.access_modes),
        volume_mode: VolumeMode::new(volume.spec.volume_mode.as_deref()),
        attributes_class: symbols.intern(volume.spec.volume_attributes_class_name.as_deref().unwrap_or("")),
        available: volume.status.phase == "Available",
        deleting: volume.metadata.is_deleting(),
        labels: Labels::new(symbols, &volume.metadata.labels),
        affinity: SelectorId::ALL,
        zones: SelectorId::ALL,
        claim_ref,
        hold: VolumeHold::of(volume).map(Box::new),
        disk: None,
        driver: Symbol::EMPTY,
        version: version_of(&volume.metadata),
        created: created_at(&volume.metadata),
    }
}
