//! The upgrade examples of KEP-490 (Zonal PV Upgrade and Downgrade), in its own YAML.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_controller::{Settings, ZoneUpgrade};
use berth_testing::Cluster;
use common::{Controller, create, volume};
use serde_json::Value;

/// Upgrades a volume and compares it, field by field and in order, with the expected one.
fn check(before: &str, after: &str) {
    let before: Value = serde_saphyr::from_str(before).unwrap();
    let mut after: Value = serde_saphyr::from_str(after).unwrap();
    let name = before["metadata"]["name"].as_str().unwrap().to_owned();
    // The second example renames the volume by mistake; a name cannot change.
    after["metadata"]["name"] = Value::from(name.clone());
    let settings = Settings {
        zone_upgrade: ZoneUpgrade::On,
        ..Settings::default()
    };
    let mut upgraded = stored(before);
    Controller::new(settings).run_until_quiet(&mut upgraded);
    assert_eq!(plain(&upgraded, &name), plain(&stored(after), &name));
}

/// A cluster with one volume.
fn stored(volume: Value) -> Cluster {
    let mut cluster = Cluster::default();
    create(&mut cluster, volume);
    cluster
}

/// The volume without server-generated fields and the controller's phase.
fn plain(cluster: &Cluster, name: &str) -> Value {
    let mut plain = volume(cluster, name).unwrap().clone();
    plain.as_object_mut().unwrap().remove("status");
    let metadata = plain["metadata"].as_object_mut().unwrap();
    for counted in ["uid", "resourceVersion", "generation"] {
        metadata.remove(counted);
    }
    plain
}

#[test]
fn a_zonal_volume() {
    check(
        "
apiVersion: v1
kind: PersistentVolume
metadata:
  name: zonal-volume-1
  labels:
    failure-domain.beta.kubernetes.io/zone: us-central1-a
    failure-domain.beta.kubernetes.io/region: us-central1
spec:
  capacity:
    storage: 100Gi
  storageClassName: my-class
  gcePersistentDisk:
    diskName: my-disk
    fsType: ext4
",
        "
apiVersion: v1
kind: PersistentVolume
metadata:
  name: zonal-volume-1
  labels:
    failure-domain.beta.kubernetes.io/zone: us-central1-a
    failure-domain.beta.kubernetes.io/region: us-central1
spec:
  capacity:
    storage: 100Gi
  storageClassName: my-class
  gcePersistentDisk:
    diskName: my-disk
    fsType: ext4
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - key: failure-domain.beta.kubernetes.io/zone
          operator: In
          values:
          - us-central1-a
        - key: failure-domain.beta.kubernetes.io/region
          operator: In
          values:
          - us-central1
",
    );
}

#[test]
fn a_volume_of_two_zones() {
    check(
        "
apiVersion: v1
kind: PersistentVolume
metadata:
  name: multi-zonal-volume-1
  labels:
    failure-domain.beta.kubernetes.io/zone: us-central1-a__us-central1-b
    failure-domain.beta.kubernetes.io/region: us-central1
spec:
  capacity:
    storage: 100Gi
  storageClassName: my-class
  gcePersistentDisk:
    diskName: my-disk
    fsType: ext4
",
        "
apiVersion: v1
kind: PersistentVolume
metadata:
  name: zonal-volume-1
  labels:
    failure-domain.beta.kubernetes.io/zone: us-central1-a__us-central1-b
    failure-domain.beta.kubernetes.io/region: us-central1
spec:
  capacity:
    storage: 100Gi
  storageClassName: my-class
  gcePersistentDisk:
    diskName: my-disk
    fsType: ext4
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - key: failure-domain.beta.kubernetes.io/zone
          operator: In
          values:
          - us-central1-a
          - us-central1-b
        - key: failure-domain.beta.kubernetes.io/region
          operator: In
          values:
          - us-central1
",
    );
}
