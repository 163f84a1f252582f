//! Why pods are refused and what events mean: codes and wordings from the code, meaning and remedy from here.
//!
//! A new reason needs a line here; the tests list what is missing.

use berth::explain::cause::Cause;
use berth_core::reason::VolumeReason;
use berth_scheduler::reason::Reason;
use std::fmt::Write as _;

/// What a code means, and what to do about it.
const REFUSALS: &[(&str, &str, &str)] = &[
    (
        "NodeUnschedulable.Unschedulable",
        "The node is cordoned.",
        "`kubectl uncordon`, or wait until the node's maintenance is over.",
    ),
    (
        "NodeName.OtherNode",
        "The pod's `spec.nodeName` names another node.",
        "Remove `nodeName` from the pod, or correct it.",
    ),
    (
        "TaintToleration.UntoleratedTaint",
        "The node has a taint that the pod does not tolerate.",
        "Add a toleration, or remove the taint.",
    ),
    (
        "NodeAffinity.Mismatch",
        "The node's labels do not match the pod's `nodeSelector` or required node affinity.",
        "Label the node, or loosen the selector.",
    ),
    (
        "NodeAffinity.ConflictingTerms",
        "The pod's node affinity names nodes that exclude each other, so no node can match.",
        "Correct the terms: requirements within one term are ANDed.",
    ),
    (
        "NodePorts.Taken",
        "A pod on the node uses the same host port.",
        "Use another host port, or none; prefer a Service.",
    ),
    (
        "NodeResourcesFit.TooManyPods",
        "The node runs as many pods as its `allocatable.pods` allows.",
        "Add a node, or raise the kubelet's `maxPods`.",
    ),
    (
        "NodeResourcesFit.InsufficientCpu",
        "The requests of the pods on the node leave too little cpu.",
        "Request less, free some, or add a node.",
    ),
    (
        "NodeResourcesFit.InsufficientMemory",
        "The requests of the pods on the node leave too little memory.",
        "Request less, free some, or add a node.",
    ),
    (
        "NodeResourcesFit.InsufficientEphemeralStorage",
        "The requests of the pods on the node leave too little local disk.",
        "Request less `ephemeral-storage`, free some, or add a node.",
    ),
    (
        "NodeResourcesFit.InsufficientResource",
        "Too little of an extended resource is left, or the node has none.",
        "Check that the device plugin runs on the node; request less, or add a node.",
    ),
    (
        "VolumeRestrictions.DiskConflict",
        "A disk that the pod spec names directly is in use on the node and cannot be shared.",
        "Use a claim, or mount it read-only on both sides where the disk allows that.",
    ),
    (
        "VolumeRestrictions.ClaimInUse",
        "A claim with access mode ReadWriteOncePod is used by another pod.",
        "Stop the other pod, or use ReadWriteOnce.",
    ),
    (
        "VolumeRestrictions.ClaimNotFound",
        "The pod names a claim that does not exist.",
        "Create the claim in the pod's namespace, or correct the name.",
    ),
    (
        "NodeVolumeLimits.TooManyVolumes",
        "The node has reached the attach limit of the driver (CSINode).",
        "Add a node, or use fewer and larger volumes.",
    ),
    (
        "NodeVolumeLimits.DriverNotInstalled",
        "The node lacks the CSI driver, and the driver asks that pods stay away from such nodes.",
        "Install the driver on the node; look at `kubectl get csinode`.",
    ),
    (
        "NodeVolumeLimits.ClaimNotFound",
        "The pod names a claim that does not exist.",
        "Create the claim in the pod's namespace, or correct the name.",
    ),
    (
        "NodeVolumeLimits.ClaimNotOwned",
        "A claim with the name that an ephemeral volume would get belongs to something else.",
        "Rename the pod or its volume, or delete the claim.",
    ),
    (
        "NodeVolumeLimits.NotTranslatable",
        "A disk of an old built-in plugin cannot be expressed for the CSI driver that took over.",
        "Correct the volume's source; the message names the problem.",
    ),
    (
        "VolumeZone.Conflict",
        "The zone or region label of a bound volume differs from the node's.",
        "Run the pod in the volume's zone. If the label is wrong, correct it.",
    ),
    (
        "VolumeZone.ClaimNotFound",
        "The pod names a claim that does not exist.",
        "Create the claim in the pod's namespace, or correct the name.",
    ),
    (
        "VolumeZone.ClaimNotNamed",
        "A volume of the pod refers to a claim without saying its name.",
        "Set `claimName`.",
    ),
    (
        "VolumeZone.NeitherVolumeNorClass",
        "A claim has no volume yet, and no class says when it gets one.",
        "Set `storageClassName`, or make a class the default one.",
    ),
    (
        "VolumeZone.ClassNotFound",
        "The claim's storage class does not exist.",
        "Create the class, or correct the name in the claim.",
    ),
    (
        "VolumeZone.VolumeNotNamed",
        "The claim's class binds immediately, but the claim is not bound yet.",
        "Look at the claim's events: `kubectl describe pvc`.",
    ),
    (
        "VolumeZone.VolumeNotFound",
        "The volume that the claim is bound to does not exist.",
        "Restore the volume, or recreate the claim.",
    ),
    (
        "PodTopologySpread.MissingLabel",
        "The node lacks the label that the pod is to be spread over.",
        "Label the node.",
    ),
    (
        "PodTopologySpread.Skew",
        "With the pod on this node, its zone (or whatever is spread over) would hold too many more matching pods than another.",
        "Make room in the other zones, raise `maxSkew`, or use `ScheduleAnyway`.",
    ),
    (
        "InterPodAffinity.Affinity",
        "No pod that matches the pod affinity runs there.",
        "Start those pods first, or check the selector and `topologyKey`.",
    ),
    (
        "InterPodAffinity.AntiAffinity",
        "A pod that matches the pod anti-affinity runs there.",
        "Add nodes or zones, or prefer instead of require.",
    ),
    (
        "InterPodAffinity.ExistingPods",
        "A pod there has anti-affinity to this pod.",
        "Add nodes or zones, or change the other pod's anti-affinity.",
    ),
    (
        "DynamicResources.NotAllocated",
        "The pod has `resourceClaims`, and Berth allocates no devices: the pod would start without them.",
        "Give the pod to kube-scheduler: set its `schedulerName` to one that kube-scheduler serves.",
    ),
    (
        "GangScheduling.NotTogether",
        "The pod is to be placed together with others (`workloadRef` or `schedulingGroup`), and Berth places pods one by one.",
        "Give the pods of the group to kube-scheduler: set their `schedulerName` to one that kube-scheduler serves.",
    ),
    (
        "Extender.Refused",
        "An extender of the scheduler's configuration refused the node; the message is its own.",
        "Look at the extender: its address is in the `KubeSchedulerConfiguration`.",
    ),
    (
        "Framework.OnlyNodes",
        "A plugin restricted the pod to other nodes, for example because its node affinity names them.",
        "Look at the pod's node affinity.",
    ),
    (
        "VolumeBinding.NodeConflict",
        "A claim of the pod is bound to a volume that this node cannot reach.",
        "The pod can run only where its volume is. If the volume is bound in the wrong place, use a class with \
         `WaitForFirstConsumer` for the next one.",
    ),
    (
        "VolumeBinding.BindConflict",
        "Some claim finds no free volume that fits and can be reached from this node, and none can be made for it there.",
        "Provide a volume (see `berth explain`: it says how much is there), ask for less, or let the class provision.",
    ),
    (
        "VolumeBinding.NotEnoughSpace",
        "The driver publishes its capacity, and no pool that the node can reach has room for the claims together.",
        "Ask for less, free room, or add storage. `kubectl get csistoragecapacities -A` shows what is published.",
    ),
    (
        "VolumeBinding.VolumeNotFound",
        "A claim is bound to a volume that does not exist.",
        "Restore the volume, or recreate the claim.",
    ),
    (
        "VolumeBinding.UnboundImmediateClaims",
        "A claim whose class binds immediately is not bound yet.",
        "Look at the claim's events. Prefer `WaitForFirstConsumer`: the volume then follows the pod.",
    ),
    (
        "VolumeBinding.ClaimNotFound",
        "The pod names a claim that does not exist.",
        "Create the claim in the pod's namespace, or correct the name.",
    ),
    (
        "VolumeBinding.EphemeralClaimNotFound",
        "The claim for an ephemeral volume is not there yet.",
        "Wait a moment. If it stays, look at the events of the pod for why the claim cannot be made.",
    ),
    (
        "VolumeBinding.ClaimLost",
        "The claim's volume is gone.",
        "Restore the volume, or recreate the claim; the data on the volume is lost.",
    ),
    (
        "VolumeBinding.ClaimDeleting",
        "The claim is being deleted.",
        "Wait until it is gone and create it again, or use another claim.",
    ),
    (
        "VolumeBinding.ClaimNotOwned",
        "A claim with the name that an ephemeral volume would get belongs to something else.",
        "Rename the pod or its volume, or delete the claim.",
    ),
    (
        "VolumeBinding.NotTranslatable",
        "A volume of an old built-in plugin cannot be expressed for the CSI driver that took over.",
        "Correct the volume's source; the message names the problem.",
    ),
];

struct EventLine {
    who: &'static str,
    reason: &'static str,
    about: &'static str,
    meaning: &'static str,
    cure: &'static str,
}

const fn event(
    who: &'static str,
    reason: &'static str,
    about: &'static str,
    meaning: &'static str,
    cure: &'static str,
) -> EventLine {
    EventLine {
        who,
        reason,
        about,
        meaning,
        cure,
    }
}

const SCHEDULER: &str = "scheduler";
const CONTROLLER: &str = "controller";
const PROVISIONER: &str = "provisioner";
const NOTHING: &str = "Nothing.";

const EVENTS: &[EventLine] = &[
    event(SCHEDULER, "Scheduled", "pod", "It has a node.", NOTHING),
    event(
        SCHEDULER,
        "FailedScheduling",
        "pod",
        "No node fits, binding the volumes failed, or the API server refused the node. The message counts the nodes by reason, or says what failed; the pod is tried again.",
        "See the table above, and `berth explain --pod`.",
    ),
    event(
        SCHEDULER,
        "Preempted",
        "pod",
        "It was evicted to make room for a pod of higher priority.",
        "Add nodes, or look at the priorities.",
    ),
    event(
        CONTROLLER,
        "ClaimLost",
        "claim",
        "Its volume is gone.",
        "Restore the volume, or delete the claim: what was on it is lost.",
    ),
    event(
        CONTROLLER,
        "ClaimMisbound",
        "claim",
        "Another claim holds the volume that this one names.",
        "Delete this claim, or correct its `volumeName`.",
    ),
    event(
        CONTROLLER,
        "DelayedBindingUnavailable",
        "claim",
        "Its class waits for the first pod, but no scheduler announces that it can bind such claims: it is bound at once.",
        "Start `berth scheduler`, or set `requireDelayedBindingScheduler: false`.",
    ),
    event(
        CONTROLLER,
        "ExternalProvisioning",
        "claim",
        "It waits for an external provisioner to make a volume.",
        "If it stays, check that the driver's provisioner runs.",
    ),
    event(
        CONTROLLER,
        "FailedBinding",
        "claim",
        "No volume fits and no class makes one, or the volume that it names is taken.",
        "Create a volume, or set `storageClassName`.",
    ),
    event(
        CONTROLLER,
        "ProvisioningFailed",
        "claim",
        "Its class does not exist, or nothing provisions for it.",
        "Create the class, or correct the name.",
    ),
    event(
        CONTROLLER,
        "RolledBack",
        "claim",
        "No pod ever used its volume, and its pod fits nowhere with it: it is deleted, and its owner makes another one.",
        "Nothing; see [rollback](binding.md#rollback-of-claims-that-no-pod-has-used).",
    ),
    event(
        CONTROLLER,
        "VolumeDelete",
        "volume",
        "Deleting it has to wait.",
        "The message says for what.",
    ),
    event(
        CONTROLLER,
        "VolumeFailedDelete",
        "volume",
        "It was released, and nothing here can delete it.",
        "Delete it by hand, or run the provisioner that made it.",
    ),
    event(
        CONTROLLER,
        "VolumeFailedRecycle",
        "volume",
        "Its reclaim policy is Recycle, which nothing does here.",
        "Use Retain or Delete.",
    ),
    event(
        CONTROLLER,
        "VolumeMismatch",
        "claim or volume",
        "A claim and a volume that name each other do not fit: size, class, access or volume mode.",
        "Correct one of the two; the message says what differs.",
    ),
    event(
        CONTROLLER,
        "VolumeUnknownReclaimPolicy",
        "volume",
        "Its reclaim policy is not known.",
        "Use Retain or Delete.",
    ),
    event(
        CONTROLLER,
        "WaitForFirstConsumer",
        "claim",
        "Its class binds with the first pod, and there is none yet.",
        "Nothing: create the pod.",
    ),
    event(
        CONTROLLER,
        "WaitForPodScheduled",
        "claim",
        "Its pod has no node yet.",
        "Look at the pod's events.",
    ),
    event(
        CONTROLLER,
        "ZoneUpgradeSkipped",
        "volume",
        "Its zone labels were not turned into node affinity.",
        "The message says why; correct the labels.",
    ),
    event(
        PROVISIONER,
        "Provisioning",
        "claim",
        "The driver is asked for a volume.",
        NOTHING,
    ),
    event(
        PROVISIONER,
        "ProvisioningSucceeded",
        "claim",
        "The volume is made.",
        NOTHING,
    ),
    event(
        PROVISIONER,
        "ProvisionedElsewhere",
        "claim",
        "The driver created the volume where the selected node cannot reach it. The pod is rescheduled, and waits if it fits on no node there.",
        "Let the pod run where the volume is, or restrict `allowedTopologies` of the class, and delete claim and pod.",
    ),
    event(
        PROVISIONER,
        "ProvisioningFailed",
        "claim",
        "The driver did not create a volume. After a final error the pod is rescheduled.",
        "The message is the driver's.",
    ),
    event(
        PROVISIONER,
        "VolumeFailedDelete",
        "volume",
        "The driver did not delete it. It is tried again.",
        "The message is the driver's.",
    ),
    event(
        PROVISIONER,
        "VolumeResizeSuccessful",
        "claim",
        "A volume of a built-in provisioner has the size that the claim requests.",
        "Nothing.",
    ),
    event(
        PROVISIONER,
        "VolumeResizeFailed",
        "claim",
        "A volume of a built-in provisioner could not grow. It is tried again.",
        "Make room in the pool that the message names.",
    ),
];

/// Codes and wordings from the code.
fn coded() -> Vec<(String, String)> {
    let of_volumes = VolumeReason::samples();
    let of_volumes = of_volumes
        .iter()
        .map(|reason| (reason.code().to_owned(), reason.to_string()));
    let of_nodes = Reason::TABLE
        .iter()
        .map(|(code, words)| ((*code).to_owned(), (*words).to_owned()));
    of_volumes.chain(of_nodes).collect()
}

/// The events of each component, from the code.
fn told() -> Vec<(&'static str, String)> {
    // Those of the scheduler are literals where they are reported.
    let scheduler = ["Scheduled", "FailedScheduling", "Preempted"];
    let scheduler = scheduler.iter().map(|reason| (SCHEDULER, (*reason).to_owned()));
    let controller = berth_controller::Reason::ALL.iter();
    let controller = controller.map(|reason| (CONTROLLER, reason.as_str().to_owned()));
    let provisioner = berth_provisioner::change::Reason::ALL.iter();
    let provisioner = provisioner.map(|reason| (PROVISIONER, reason.name().to_owned()));
    scheduler.chain(controller).chain(provisioner).collect()
}

/// The table of refusals.
pub(crate) fn refusals() -> String {
    let mut out = "| code | plugin | wording | what it means | what to do |\n|---|---|---|---|---|\n".to_owned();
    for (code, wording) in coded() {
        let line = REFUSALS.iter().find(|(known, ..)| *known == code);
        let (_, meaning, cure) = line.unwrap_or_else(|| panic!("say in {} what {code} means", file!()));
        let (plugin, _) = code.split_once('.').unwrap();
        let wording = wording.replace('|', "\\|");
        let _ = writeln!(out, "| `{code}` | {plugin} | {wording} | {meaning} | {cure} |");
    }
    out
}

/// The table of events.
pub(crate) fn events() -> String {
    let mut out = "| reason | by | about | what it means | what to do |\n|---|---|---|---|---|\n".to_owned();
    for (who, reason) in told() {
        let line = EVENTS.iter().find(|event| event.who == who && event.reason == reason);
        let event = line.unwrap_or_else(|| panic!("say in {} what {reason} of the {who} means", file!()));
        let (about, meaning, cure) = (event.about, event.meaning, event.cure);
        let _ = writeln!(out, "| `{reason}` | {who} | {about} | {meaning} | {cure} |");
    }
    out
}

#[test]
fn nothing_is_explained_that_there_is_not() {
    let coded = coded();
    for (code, ..) in REFUSALS {
        assert!(coded.iter().any(|(known, _)| known == code), "{code}");
    }
    let told = told();
    for event in EVENTS {
        assert!(
            told.iter()
                .any(|(who, reason)| *who == event.who && reason == event.reason),
            "{}",
            event.reason
        );
    }
    assert_eq!((coded.len(), told.len()), (REFUSALS.len(), EVENTS.len()));
}

/// The causes of one kind of object, for example `Claim`.
pub(crate) fn causes(about: &str) -> String {
    let mut out = "| code | what it means | what to do |\n|---|---|---|\n".to_owned();
    let mut known = Cause::TABLE
        .iter()
        .filter(|(code, ..)| code.split('.').next() == Some(about))
        .peekable();
    assert!(known.peek().is_some(), "no cause is about {about}");
    for (code, meaning, remedy) in known {
        let _ = writeln!(out, "| `{code}` | {meaning} | {remedy} |");
    }
    out
}
