//! The storage classes of KEP-490 (volume topology), verbatim.

/// The class of the end-to-end example.
pub const STANDARD: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
provisioner: kubernetes.io/gce-pd
bindingMode: WaitForFirstConsumer
parameters:
  type: pd-standard
";

/// Volumes in one of two zones.
pub const ZONAL: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: zonal-class
provisioner: kubernetes.io/gce-pd
parameters:
  type: pd-standard
allowedTopologies:
- matchLabelExpressions:
  - key: failure-domain.beta.kubernetes.io/zone
    values:
    - us-central1-a
    - us-central1-b
";

/// Volumes in two of three zones at once.
pub const MULTI_ZONAL: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: multi-zonal-class
provisioner: kubernetes.io/gce-pd
parameters:
  type: pd-standard
  replication-type: regional-pd
allowedTopologies:
- matchLabelExpressions:
  - key: failure-domain.beta.kubernetes.io/zone
    values:
    - us-central1-a
    - us-central1-b
    - us-central1-c
";

/// Volumes in racks of zones: the example with several labels.
pub const FANCY: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: something-fancy
provisioner: rack-based-provisioner
parameters:
allowedTopologies:
- matchLabelExpressions:
  - key: zone
    values:
    - us-central1-a
  - key: rack
    values:
    - rack1
- matchLabelExpressions:
  - key: zone
    values:
    - us-central1-b
  - key: rack
    values:
    - rack1
    - rack2
";

/// [`MULTI_ZONAL`] with only one zone: no volume can be created.
#[must_use]
pub fn multi_zonal_in_one_zone() -> String {
    let text = MULTI_ZONAL.replace("    - us-central1-b\n    - us-central1-c\n", "");
    assert_ne!(text, MULTI_ZONAL);
    text
}
