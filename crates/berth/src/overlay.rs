//! What a command reads: files, the cluster of a kubeconfig, or files on top of either.
//!
//! On top means what `kubectl apply` would do: an object of a file that is below too is laid over it, so that its uid, its
//! status and what others filled in stay. Nothing is written to the cluster.

use crate::cluster::{ClusterArgs, ClusterError};
use crate::input::{self, Progress, Source, Summary};
use berth_kube::resource::Resource;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::io::Read;

/// What is read, and which namespace is meant where none is named.
#[derive(Debug)]
pub struct Gathered {
    /// What to read.
    pub sources: Vec<Source>,
    /// The namespace of what names none.
    pub namespace: String,
    /// What is to be told of files that were read already.
    pub summary: Summary,
}

/// Finds out what to read: the files, or without any the cluster, or both.
///
/// # Errors
/// If the cluster cannot be read, the files that go on top of it are broken, or it is named in vain.
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
    let mut sources = match (files.is_empty(), args.on_cluster) {
        (true, _) => args.sources(besides)?,
        // Read here and not by the caller: only here it is known what has no namespace.
        (false, false) if namespace != "default" => {
            let objects = reading.read(&files)?;
            reading.again(objects)
        }
        (false, false) => files,
        (false, true) => {
            let top = reading.read(&files)?;
            let below = reading.read(&args.sources(besides)?)?;
            reading.again(lay(top, below))
        }
    };
    if !overlay.is_empty() {
        let below = reading.read(&sources)?;
        let top = reading.read(&overlay)?;
        sources = reading.again(lay(top, below));
    }
    let summary = reading.summary;
    Ok(Gathered {
        sources,
        namespace,
        summary,
    })
}

/// Reads here what a caller would read otherwise.
struct Reading<'a> {
    namespace: &'a str,
    standard_input: &'a mut dyn Read,
    progress: &'a mut dyn Progress,
    summary: Summary,
}

impl Reading<'_> {
    fn read(&mut self, sources: &[Source]) -> Result<Vec<Value>, ClusterError> {
        let mut objects = Vec::new();
        let read = input::read_parts_in(
            self.namespace,
            sources,
            &mut *self.standard_input,
            &mut *self.progress,
            &mut |value| objects.push(value),
        )?;
        self.summary.add(read);
        Ok(objects)
    }

    /// Objects that were read and checked, to be read again, and what was missing.
    fn again(&self, objects: Vec<Value>) -> Vec<Source> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let gaps = self.summary.gaps.iter();
        let mut sources: Vec<Source> = gaps.map(|gap| Source::Gap(gap.to_owned())).collect();
        sources.push(Source::Text {
            name: "what was read".into(),
            bytes: list.to_string().into_bytes(),
        });
        sources
    }
}

type Identity = (String, String, String);

fn identity(object: &Value) -> Identity {
    let text = |pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// Lays objects over those that are below them.
fn lay(top: Vec<Value>, mut objects: Vec<Value>) -> Vec<Value> {
    let mut places: HashMap<Identity, usize> = objects.iter().map(identity).zip(0..).collect();
    for object in top {
        match places.entry(identity(&object)) {
            Entry::Occupied(place) => merge(&mut objects[*place.get()], object),
            Entry::Vacant(place) => {
                place.insert(objects.len());
                objects.push(object);
            }
        }
    }
    objects
}

/// A JSON merge: objects field by field, `null` takes a field away, everything else replaces.
fn merge(below: &mut Value, top: Value) {
    match (below, top) {
        (Value::Object(below), Value::Object(top)) => {
            for (key, value) in top {
                if value.is_null() {
                    below.remove(&key);
                } else {
                    merge(below.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (below, top) => *below = top,
    }
}

#[cfg(test)]
mod tests {
    use super::lay;
    use serde_json::json;

    #[test]
    fn what_a_file_does_not_say_stays() {
        let pod = |name: &str| json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name}});
        let mut below = pod("web");
        below["metadata"]["uid"] = json!("u");
        below["metadata"]["labels"] = json!({"a": "1", "b": "2"});
        below["spec"] = json!({"nodeName": "n1", "tolerations": [1, 2]});
        let mut top = pod("web");
        top["metadata"]["labels"] = json!({"a": "3", "b": null});
        top["spec"] = json!({"tolerations": [3]});
        let mut expected = pod("web");
        expected["metadata"]["uid"] = json!("u");
        expected["metadata"]["labels"] = json!({"a": "3"});
        expected["spec"] = json!({"nodeName": "n1", "tolerations": [3]});
        let laid = lay(vec![top, pod("new")], vec![below, pod("other")]);
        assert_eq!(laid, [expected, pod("other"), pod("new")]);
    }
}
