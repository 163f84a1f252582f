//! What a command reads: files, the cluster of a kubeconfig, or files on top of either.
//!
//! "On top" means what `kubectl apply` would do: an object that also exists below is merged, so that its UID, its status and
//! fields of other managers are kept. A manifest that is already applied changes nothing. Nothing is written to the cluster.

use crate::cluster::{ClusterArgs, ClusterError};
use crate::input::{self, Progress, Source, Summary};
use crate::snapshot;
use berth_apiserver::apply::{Writer, apply};
use berth_apiserver::patch::merge;
use berth_apiserver::schema::Schema;
use berth_kube::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::io::Read;

/// What is read, and the default namespace.
#[derive(Debug)]
pub struct Gathered {
    /// What to read.
    pub sources: Vec<Source>,
    /// What is below the files on top, if there are any.
    pub below: Option<Vec<Source>>,
    /// The namespace of objects that set none.
    pub namespace: String,
    /// Remarks about files that were already read.
    pub summary: Summary,
}

/// Determines what to read: the files, or the cluster if there are none, or both.
///
/// # Errors
/// If the cluster cannot be read, the files on top of it are invalid, or a cluster is specified but not used.
pub fn gather(
    args: &ClusterArgs,
    files: &[OsString],
    besides: &[Resource],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Gathered, ClusterError> {
    let reads_cluster = files.is_empty() || args.on_cluster;
    if !reads_cluster {
        let unused = [
            (args.kubeconfig.is_some(), "--kubeconfig"),
            (args.context.is_some(), "--context"),
        ];
        if let Some((_, flag)) = unused.into_iter().find(|(given, _)| *given) {
            return Err(ClusterError::Unused(flag));
        }
    }
    let namespace = args.namespace(reads_cluster)?;
    let named = |names: &[OsString]| -> Vec<Source> { names.iter().map(|name| name.as_os_str().into()).collect() };
    let (files, overlay) = (named(files), named(&args.overlay));
    let mut reading = Reading {
        namespace: &namespace,
        standard_input,
        progress,
        summary: Summary::default(),
    };
    let mut lowest = None;
    let mut sources = match (files.is_empty(), args.on_cluster) {
        (true, _) => args.sources(besides)?,
        // Read here and not by the caller: only here is it known which objects have no namespace.
        (false, false) if namespace != "default" => {
            let objects = reading.read(&files)?;
            reading.again(objects)
        }
        (false, false) => files,
        (false, true) => {
            let top = reading.read(&files)?;
            let below = reading.read(&args.sources(besides)?)?;
            lowest = Some(reading.again(below.clone()));
            reading.again(lay(top, below))
        }
    };
    if !overlay.is_empty() {
        let below = reading.read(&sources)?;
        lowest = lowest.or_else(|| Some(reading.again(below.clone())));
        let top = reading.read(&overlay)?;
        sources = reading.again(lay(top, below));
    }
    let summary = reading.summary;
    Ok(Gathered {
        sources,
        below: lowest,
        namespace,
        summary,
    })
}

/// Reads here what a caller would otherwise read.
struct Reading<'a> {
    namespace: &'a str,
    standard_input: &'a mut dyn Read,
    progress: &'a mut dyn Progress,
    summary: Summary,
}

impl Reading<'_> {
    /// Reads objects of every kind: the caller decides which of them matter, and reports the others.
    fn read(&mut self, sources: &[Source]) -> Result<Vec<Value>, ClusterError> {
        let mut objects = Vec::new();
        let read = input::read_all_parts_in(
            self.namespace,
            sources,
            &mut *self.standard_input,
            &mut *self.progress,
            &mut |value| objects.push(value),
        )?;
        self.summary.add(read);
        Ok(objects)
    }

    /// Objects that were read and validated, to be read again, and what was missing.
    fn again(&self, objects: Vec<Value>) -> Vec<Source> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let gaps = self.summary.gaps.iter();
        let mut sources: Vec<Source> = gaps.map(|gap| Source::Gap(gap.to_owned())).collect();
        sources.extend(self.summary.taken_at.map(Source::TakenAt));
        sources.extend(self.summary.listed.iter().cloned().map(Source::Listed));
        sources.push(Source::Text {
            name: "what was read".into(),
            bytes: list.to_string().into_bytes(),
        });
        sources
    }
}

/// Group, kind, namespace and name: other groups have kinds of the same name.
type Identity = [String; 4];

fn identity(object: &Value) -> Identity {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    [
        group,
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    ]
    .map(str::to_owned)
}

/// Merges objects into those below them.
#[must_use]
pub fn lay(top: Vec<Value>, mut objects: Vec<Value>) -> Vec<Value> {
    let mut places: HashMap<Identity, usize> = objects.iter().map(identity).zip(0..).collect();
    for object in top {
        match places.entry(identity(&object)) {
            Entry::Occupied(place) => {
                let below = &mut objects[*place.get()];
                *below = applied(below, object);
            }
            Entry::Vacant(place) => {
                place.insert(objects.len());
                objects.push(object);
            }
        }
    }
    objects
}

/// The manager name that `kubectl apply` records in objects.
const MANAGER: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The result of `kubectl apply` on an object: it sets what the manifest specifies, removes what the last applied
/// manifest specified and this one does not, and keeps the rest. `null` removes a field. A part of a workload removes
/// nothing else: an API server would not accept it as a manifest.
fn applied(below: &Value, mut top: Value) -> Value {
    if is_reduced(below)
        && let Ok(reduced) = snapshot::reduce(top.clone())
    {
        top = reduced;
    }
    let Some(schema) = schema_of(below) else {
        return merge::apply(below, &top);
    };
    let removed = top.clone();
    drop_nulls(&mut top);
    let writer = |api_version| Writer {
        manager: MANAGER,
        api_version,
        subresource: "",
        time: Timestamp::UNIX_EPOCH,
        reset: &[],
    };
    let api_version = below["apiVersion"].as_str().unwrap_or_default();
    let mut noted = below.clone();
    // The manager owns what was last applied; other managers' fields are not considered.
    let fields = last_applied(below)
        .filter(|last| !is_part(&top, last))
        .and_then(|last| apply(None, &last, writer(api_version), true, schema).ok())
        .map(|last| last["metadata"]["managedFields"].clone());
    set(&mut noted, "managedFields", fields.unwrap_or_default());
    let Ok(mut merged) = apply(Some(&noted), &top, writer(api_version), true, schema) else {
        // It is unknown how its lists merge: an invalid object, which is refused when it is read.
        return merge::apply(below, &removed);
    };
    set(&mut merged, "managedFields", below["metadata"]["managedFields"].clone());
    remove_nulls(&mut merged, &removed);
    merged
}

/// Whether the template of a workload lacks what every API server fills in: then it was reduced to what decisions read, or was
/// never in a cluster, and its missing fields mean nothing.
fn is_reduced(object: &Value) -> bool {
    let template = object.pointer("/spec/template/spec");
    template.is_some_and(|template| template["dnsPolicy"].is_null())
}

/// Whether an object is a part of a workload, compared with its last applied manifest: it has no containers.
fn is_part(top: &Value, last: &Value) -> bool {
    let has_containers = |object: &Value| !object["spec"]["template"]["spec"]["containers"].is_null();
    has_containers(last) && !has_containers(top)
}

fn schema_of(object: &Value) -> Option<&'static Schema> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Schema::builtin(group, version, object["kind"].as_str()?)
}

fn last_applied(object: &Value) -> Option<Value> {
    let note = object["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    serde_json::from_str(note).ok().filter(Value::is_object)
}

/// Sets a field of an object's metadata; null removes it.
fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if value.is_null() {
            metadata.remove(field);
        } else {
            metadata.insert(field.to_owned(), value);
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes the fields that a manifest sets to null.
fn remove_nulls(object: &mut Value, manifest: &Value) {
    let (Value::Object(fields), Value::Object(manifest)) = (object, manifest) else {
        return;
    };
    for (name, value) in manifest {
        if value.is_null() {
            fields.remove(name);
        } else if let Some(field) = fields.get_mut(name) {
            remove_nulls(field, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::lay;
    use serde_json::json;

    #[test]
    fn what_a_file_does_not_say_stays() {
        let pod =
            |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": name}});
        let mut below = pod("web");
        below["metadata"]["uid"] = json!("u");
        below["metadata"]["labels"] = json!({"a": "1", "b": "2"});
        below["spec"] = json!({"nodeName": "n1", "tolerations": [{"key": "a"}, {"key": "b"}]});
        let mut top = pod("web");
        top["metadata"]["labels"] = json!({"a": "3", "b": null});
        top["spec"] = json!({"tolerations": [{"key": "c"}]});
        let mut expected = pod("web");
        expected["metadata"]["uid"] = json!("u");
        expected["metadata"]["labels"] = json!({"a": "3"});
        expected["spec"] = json!({"nodeName": "n1", "tolerations": [{"key": "c"}]});
        let laid = lay(vec![top, pod("new")], vec![below, pod("other")]);
        assert_eq!(laid, [expected, pod("other"), pod("new")]);
    }

    fn deployment(container: serde_json::Value) -> serde_json::Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"template": {"spec": {"containers": [container]}}}})
    }

    #[test]
    fn containers_keep_what_a_server_filled_in() {
        let mut below = deployment(json!({"name": "c", "image": "x", "imagePullPolicy": "Always", "ports":
            [{"containerPort": 80, "protocol": "TCP"}]}));
        below["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        let top = deployment(json!({"name": "c", "image": "x", "ports": [{"containerPort": 80}]}));
        assert_eq!(lay(vec![top], vec![below.clone()]), [below]);
    }

    #[test]
    fn what_was_applied_before_and_is_gone_is_taken_away() {
        let last = deployment(json!({"name": "c", "image": "x", "tty": true, "stdin": true}));
        let mut below = last.clone();
        below["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        below["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string(), "other": "kept"});
        let top = deployment(json!({"name": "c", "image": "y", "stdin": true}));
        let laid = lay(vec![top], vec![below]);
        let container = &laid[0]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container, &json!({"name": "c", "image": "y", "stdin": true}));
        assert_eq!(laid[0]["metadata"]["annotations"]["other"], "kept");
    }

    #[test]
    fn a_part_of_a_workload_takes_nothing_away() {
        let mut last = deployment(json!({"name": "c", "image": "x"}));
        last["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
        let mut below = last.clone();
        below["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        below["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
        let mut top = deployment(json!(null));
        top["spec"] = json!({"replicas": 8});
        let mut expected = below["spec"].clone();
        expected["replicas"] = json!(8);
        assert_eq!(lay(vec![top], vec![below])[0]["spec"], expected);
    }

    #[test]
    fn kinds_of_other_groups_are_other_objects() {
        let service =
            |api_version: &str| json!({"apiVersion": api_version, "kind": "Service", "metadata": {"name": "web"}});
        let (core, other) = (service("v1"), service("serving.knative.dev/v1"));
        assert_eq!(lay(vec![core.clone()], vec![other.clone()]), [other, core]);
    }

    #[test]
    fn what_snapshots_leave_out_is_no_change() {
        let below = deployment(json!({"name": "c", "image": "x"}));
        let top = deployment(json!({"name": "c", "image": "x", "env": [{"name": "A", "value": "b"}], "tty": true}));
        assert_eq!(lay(vec![top], vec![below.clone()]), [below]);
    }
}
