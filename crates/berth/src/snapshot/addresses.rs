//! Removes the addresses of network volumes from a snapshot.
//!
//! Decisions do not depend on the server of a volume. Two volumes on one Ceph cluster are recognized by their shared
//! monitors, so monitors are replaced by numbers.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Removes them from all objects.
pub(super) fn hide(objects: &mut [Value]) {
    let mut monitors = Monitors::default();
    objects.iter_mut().for_each(|object| monitors.hide(object));
}

#[derive(Default)]
struct Monitors {
    numbers: BTreeMap<String, usize>,
}

impl Monitors {
    fn hide(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match (key.as_str(), value) {
                        ("iscsi", Value::Object(disk)) => drop_portals(disk),
                        ("rbd", Value::Object(disk)) => self.number(disk),
                        (_, value) => self.hide(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn number(&mut self, disk: &mut Map<String, Value>) {
        let monitors = disk.get_mut("monitors").and_then(Value::as_array_mut);
        for monitor in monitors.into_iter().flatten() {
            let next = self.numbers.len() + 1;
            let address = monitor.as_str().unwrap_or_default().to_owned();
            let number = self.numbers.entry(address).or_insert(next);
            *monitor = format!("monitor-{number}").into();
        }
    }
}

fn drop_portals(disk: &mut Map<String, Value>) {
    disk.remove("targetPortal");
    disk.remove("portals");
}

#[cfg(test)]
mod tests {
    use super::hide;
    use serde_json::json;

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
