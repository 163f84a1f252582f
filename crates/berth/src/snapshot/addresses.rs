//! Removes the addresses of network volumes from a snapshot.
//!
//! Decisions do not depend on the server of a volume. Two volumes on one Ceph cluster are recognized by their shared
//! monitors, and one volume in two objects by its handle, so monitors and handles with an address are replaced by numbers.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// Removes them from all objects.
pub(super) fn hide(objects: &mut [Value]) {
    let mut servers = Servers::default();
    objects.iter_mut().for_each(|object| servers.hide(object));
}

#[derive(Default)]
struct Servers {
    monitors: Numbers,
    handles: Numbers,
}

/// Texts by the order in which they were first seen.
#[derive(Default)]
struct Numbers(BTreeMap<String, usize>);

impl Numbers {
    fn of(&mut self, text: &str) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(text.to_owned()).or_insert(next)
    }
}

impl Servers {
    fn hide(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match (key.as_str(), value) {
                        ("iscsi", Value::Object(disk)) => drop_portals(disk),
                        ("rbd", Value::Object(disk)) => self.number_monitors(disk),
                        ("volumeHandle", Value::String(handle)) if has_address(handle) => {
                            *handle = format!("handle-{}", self.handles.of(handle));
                        }
                        (_, value) => self.hide(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn number_monitors(&mut self, disk: &mut Map<String, Value>) {
        let monitors = disk.get_mut("monitors").and_then(Value::as_array_mut);
        for monitor in monitors.into_iter().flatten() {
            let number = self.monitors.of(monitor.as_str().unwrap_or_default());
            *monitor = format!("monitor-{number}").into();
        }
    }
}

/// Whether a handle contains an address or the name of a host, as those of drivers for NFS and SMB do.
fn has_address(handle: &str) -> bool {
    let is_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ['.', '-'].contains(&c);
    let is_six = |c: char| c.is_ascii_hexdigit() || c == ':';
    let mut sixes = handle
        .split(|c| !is_six(c))
        .filter(|part| part.matches(':').count() >= 2);
    handle.split(|c| !is_host(c)).any(is_host_name) || sixes.any(|part| part.parse::<Ipv6Addr>().is_ok())
}

/// A name with a domain, or four numbers. Names of types, such as `Microsoft.Compute`, have capital letters.
fn is_host_name(text: &str) -> bool {
    let labels: Vec<&str> = text.split('.').collect();
    let is_number = |label: &&str| label.parse::<u8>().is_ok();
    let is_four = labels.len() == 4 && labels.iter().all(is_number);
    let is_label = |label: &&str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    let domain = labels.last().copied().unwrap_or_default();
    let is_named = labels.len() >= 2
        && labels.iter().all(is_label)
        && domain.len() >= 2
        && domain.bytes().all(|b| b.is_ascii_lowercase());
    is_four || is_named
}

fn drop_portals(disk: &mut Map<String, Value>) {
    disk.remove("targetPortal");
    disk.remove("portals");
}

#[cfg(test)]
mod tests {
    use super::{has_address, hide};
    use serde_json::json;

    #[test]
    fn handles_with_a_server_are_replaced_by_numbers() {
        for handle in [
            "nfs.example.com#share#pvc-1",
            "10.1.2.3/export/a",
            "smb-server.corp.example.com/share#x",
            "//[fd00::1:2]/share",
            "fs-1@10.0.0.5@tcp:/lustre",
        ] {
            assert!(has_address(handle), "{handle}");
        }
        for handle in [
            "vol-0abc123",
            "projects/p/zones/europe-west1-b/disks/d-1.2",
            "/subscriptions/a-b/resourceGroups/g/providers/Microsoft.Compute/disks/d",
            "0001-0024-6f1d2c3b-1234-4321-9876-123456789abc-0000000000000001",
            "pvc-6f1d2c3b-1234-4321-9876-123456789abc",
        ] {
            assert!(!has_address(handle), "{handle}");
        }
        let volume = |handle: &str| json!({"kind": "PersistentVolume", "spec": {"csi": {"volumeHandle": handle}}});
        let mut objects = [
            volume("10.1.2.3/a"),
            volume("10.1.2.3/b"),
            volume("10.1.2.3/a"),
            volume("vol-1"),
        ];
        hide(&mut objects);
        assert_eq!(objects, ["handle-1", "handle-2", "handle-1", "vol-1"].map(volume));
    }

    #[test]
    fn servers_go_and_what_they_have_in_common_stays() {
        let volume = |monitors: &[&str]| json!({"kind": "PersistentVolume", "spec": {"rbd": {"monitors": monitors, "image": "i"}}});
        let mut objects = [
            volume(&["10.0.0.1:6789", "ceph.example.com"]),
            volume(&["10.0.0.2:6789", "10.0.0.1:6789"]),
            json!({"kind": "Pod", "spec": {"volumes": [
                {"name": "a", "iscsi": {"targetPortal": "10.0.0.3:3260", "portals": ["10.0.0.4"], "iqn": "q", "lun": 1}},
                {"name": "b", "rbd": {"monitors": ["ceph.example.com"], "image": "i"}}]}}),
        ];
        hide(&mut objects);
        let [one, two, pod] = &objects;
        assert_eq!(one, &volume(&["monitor-1", "monitor-2"]));
        assert_eq!(two, &volume(&["monitor-3", "monitor-1"]));
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "a", "iscsi": {"iqn": "q", "lun": 1}}, {"name": "b", "rbd": {"monitors": ["monitor-2"], "image": "i"}}])
        );
    }
}
