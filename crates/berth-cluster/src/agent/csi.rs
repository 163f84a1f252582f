//! What a kubelet passes to a CSI driver about the volumes of a pod, as far as it can be derived from objects.
//!
//! Nothing is called here. The code that runs agents next to a driver requests the plan, reads the secrets it refers
//! to, and makes the calls.

use super::mount::{MountProblem, volume_of_source};
use crate::field;
use crate::hash;
use crate::objects::View;
use berth_core::names::CSI_PREFIX;
use berth_provisioner::builtin::PROVISIONERS;
use berth_provisioner::node_volume::NodeVolume;
use berth_provisioner::parameters::SecretReference;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// One volume of a pod that a driver must publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiMount {
    /// The driver.
    pub driver: String,
    /// The name of the volume in the pod.
    pub volume_name: String,
    /// The parameters for the driver, without the secrets.
    pub volume: NodeVolume,
    /// The secret for staging.
    pub stage_secret: Option<SecretReference>,
    /// The secret for publishing.
    pub publish_secret: Option<SecretReference>,
}

/// The volumes of a pod that CSI drivers must publish, with paths under `root`. Volumes of built-in provisioners have
/// no driver to call.
///
/// # Errors
/// If a claim of the pod has no volume.
pub fn csi_mounts(view: &dyn View, pod: &Value, root: &Path) -> Result<Vec<CsiMount>, MountProblem> {
    let mut mounts = Vec::new();
    for source in field::items(pod, "/spec/volumes") {
        let mount = if source["csi"].is_object() {
            Some(inline(view, pod, source, root))
        } else {
            volume_of_source(view, pod, source)?.and_then(|volume| persistent(view, pod, source, volume, root))
        };
        mounts.extend(mount.filter(|mount| !PROVISIONERS.contains(&mount.driver.as_str())));
    }
    Ok(mounts)
}

fn inline(view: &dyn View, pod: &Value, source: &Value, root: &Path) -> CsiMount {
    let driver = field::text(source, "/csi/driver");
    let name = field::text(source, "/name");
    let mut volume_context = texts(&source["csi"]["volumeAttributes"]);
    let mut publish_context = BTreeMap::new();
    let size_key = format!("{CSI_PREFIX}size");
    let attribute = volume_context.remove(&size_key);
    // A driver that does not request pod information may refuse unknown attributes.
    if wants_pod(view, driver) {
        let size = field::at(source, "/csi/fsSize").and_then(quantity_text);
        publish_context.insert(size_key.clone(), size.or(attribute).unwrap_or_default());
        volume_context.extend(about_pod(pod, true));
    }
    let secret = field::text(source, "/csi/nodePublishSecretRef/name");
    CsiMount {
        driver: driver.to_owned(),
        volume_name: name.to_owned(),
        volume: NodeVolume {
            handle: format!("csi-{}-{name}", field::uid(pod)),
            staging_path: None,
            target_path: target_path(root, pod, name),
            access_mode: "ReadWriteOnce".to_owned(),
            fs_type: field::text(source, "/csi/fsType").to_owned(),
            read_only: field::flag(source, "/csi/readOnly"),
            volume_context,
            publish_context,
            ..NodeVolume::default()
        },
        stage_secret: None,
        publish_secret: secret_reference(field::namespace(pod), secret),
    }
}

fn persistent(view: &dyn View, pod: &Value, source: &Value, volume: &Value, root: &Path) -> Option<CsiMount> {
    let csi = field::at(volume, "/spec/csi").filter(|csi| csi.is_object())?;
    let driver = field::text(csi, "/driver");
    let handle = field::text(csi, "/volumeHandle");
    let mut volume_context = texts(&csi["volumeAttributes"]);
    if wants_pod(view, driver) {
        volume_context.extend(about_pod(pod, false));
    }
    let modes = field::items(volume, "/spec/accessModes");
    let access_mode = modes.first().and_then(Value::as_str).unwrap_or("ReadWriteOnce");
    let options = field::items(volume, "/spec/mountOptions").iter();
    let staged = format!("{:016x}", hash::of_text(handle));
    let staging_path = root.join("plugins").join(driver).join(staged).join("globalmount");
    let secret = |reference: &str| {
        let reference = &csi[reference];
        secret_reference(field::text(reference, "/namespace"), field::text(reference, "/name"))
    };
    Some(CsiMount {
        driver: driver.to_owned(),
        volume_name: field::name(volume).to_owned(),
        volume: NodeVolume {
            handle: handle.to_owned(),
            staging_path: Some(staging_path.display().to_string()),
            target_path: target_path(root, pod, field::name(volume)),
            access_mode: access_mode.to_owned(),
            is_block: field::text(volume, "/spec/volumeMode") == "Block",
            fs_type: field::text(csi, "/fsType").to_owned(),
            mount_options: options.filter_map(Value::as_str).map(str::to_owned).collect(),
            read_only: field::flag(csi, "/readOnly") || field::flag(source, "/persistentVolumeClaim/readOnly"),
            volume_context,
            ..NodeVolume::default()
        },
        stage_secret: secret("nodeStageSecretRef"),
        publish_secret: secret("nodePublishSecretRef"),
    })
}

fn secret_reference(namespace: &str, name: &str) -> Option<SecretReference> {
    (!name.is_empty()).then(|| SecretReference {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Whether a driver requests pod information on mount.
fn wants_pod(view: &dyn View, driver: &str) -> bool {
    let found = view.get("CSIDriver", "", driver);
    found.is_some_and(|found| field::flag(found, "/spec/podInfoOnMount"))
}

fn about_pod(pod: &Value, is_ephemeral: bool) -> [(String, String); 5] {
    let account = match field::text(pod, "/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };
    [
        ("pod.name", field::name(pod)),
        ("pod.namespace", field::namespace(pod)),
        ("pod.uid", field::uid(pod)),
        ("serviceAccount.name", account),
        ("ephemeral", if is_ephemeral { "true" } else { "false" }),
    ]
    .map(|(key, value)| (format!("{CSI_PREFIX}{key}"), value.to_owned()))
}

fn target_path(root: &Path, pod: &Value, volume: &str) -> String {
    let pods = root.join("pods").join(field::uid(pod));
    let volume = pods.join("volumes").join("kubernetes.io~csi").join(volume);
    volume.join("mount").display().to_string()
}

/// Quantities may also be written as numbers.
fn quantity_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    let texts = entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Objects;
    use serde_json::json;

    fn view(pod_info: bool) -> Objects {
        let mut view = Objects::default();
        view.insert(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d"},
            "spec": {"podInfoOnMount": pod_info}}),
        );
        view
    }

    fn pod(csi: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"volumes": [{"name": "v", "csi": csi}, {"name": "e", "emptyDir": {}}]}})
    }

    /// The size of an inline volume as passed to the driver: in the publish context, and in the volume's own.
    fn size(pod_info: bool, csi: &Value) -> (Option<String>, Option<String>) {
        let mounts = csi_mounts(&view(pod_info), &pod(csi), Path::new("/r")).unwrap();
        assert_eq!(mounts.len(), 1);
        let key = "csi.storage.k8s.io/size";
        let volume = &mounts[0].volume;
        (
            volume.publish_context.get(key).cloned(),
            volume.volume_context.get(key).cloned(),
        )
    }

    #[test]
    fn the_size_of_an_inline_volume_is_told_only_to_drivers_that_ask_for_the_pod() {
        let text = |text: &str| Some(text.to_owned());
        let with_size = json!({"driver": "d", "fsSize": "4Gi"});
        assert_eq!(size(true, &with_size), (text("4Gi"), None));
        assert_eq!(size(false, &with_size), (None, None));
        let attribute = json!({"driver": "d", "volumeAttributes": {"csi.storage.k8s.io/size": "3Gi"}});
        assert_eq!(size(true, &attribute), (text("3Gi"), None));
        assert_eq!(size(false, &attribute), (None, None));
        assert_eq!(
            size(true, &json!({"driver": "d"})),
            (text(""), None),
            "unset is told as nothing"
        );
        assert_eq!(size(true, &json!({"driver": "d", "fsSize": 7})), (text("7"), None));
    }

    #[test]
    fn pod_info_is_told_on_request() {
        let csi = json!({"driver": "d", "volumeAttributes": {"kind": "fast"}, "nodePublishSecretRef": {"name": "s"}});
        let mount = &csi_mounts(&view(true), &pod(&csi), Path::new("/r")).unwrap()[0];
        let context = &mount.volume.volume_context;
        let expected = [
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.name", "p"),
            ("csi.storage.k8s.io/pod.namespace", "ns"),
            ("csi.storage.k8s.io/pod.uid", "u"),
            ("csi.storage.k8s.io/serviceAccount.name", "default"),
            ("kind", "fast"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(*context, expected.into());
        assert_eq!(mount.publish_secret, secret_reference("ns", "s"));
        assert_eq!(mount.volume.target_path, "/r/pods/u/volumes/kubernetes.io~csi/v/mount");
        let plain = &csi_mounts(&view(false), &pod(&csi), Path::new("/r")).unwrap()[0];
        assert_eq!(plain.volume.volume_context.len(), 1);
    }

    #[test]
    fn a_persistent_volume_brings_its_own_attributes() {
        let mut view = view(true);
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "ns", "uid": "cu"}, "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound"}});
        let volume = |driver: &str| {
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
                "spec": {"accessModes": ["ReadWriteMany"], "mountOptions": ["noatime"], "claimRef": {"uid": "cu"},
                    "csi": {"driver": driver, "volumeHandle": "h", "fsType": "xfs", "volumeAttributes": {"a": "b"},
                        "nodeStageSecretRef": {"name": "s", "namespace": "sn"}}}})
        };
        view.insert(claim);
        view.insert(volume("d"));
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}}]}});
        let mount = csi_mounts(&view, &pod, Path::new("/r")).unwrap().remove(0);
        let volume_told = &mount.volume;
        assert_eq!(
            (volume_told.handle.as_str(), volume_told.fs_type.as_str()),
            ("h", "xfs")
        );
        assert_eq!(volume_told.access_mode, "ReadWriteMany");
        assert!(volume_told.read_only && !volume_told.is_block);
        assert_eq!(volume_told.mount_options, ["noatime"]);
        assert_eq!(volume_told.volume_context["a"], "b");
        assert_eq!(volume_told.volume_context["csi.storage.k8s.io/ephemeral"], "false");
        assert!(volume_told.publish_context.is_empty());
        assert_eq!(mount.stage_secret, secret_reference("sn", "s"));
        view.insert(volume("berth.dev/zonal"));
        assert!(csi_mounts(&view, &pod, Path::new("/r")).unwrap().is_empty());
        let lost = json!({"metadata": {"namespace": "ns"},
            "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "lost"}}]}});
        assert!(csi_mounts(&view, &lost, Path::new("/r")).is_err());
    }
}
