//! The Secrets and ConfigMaps that a pod needs before its containers can be created.

use crate::field;
use crate::objects::View;
use serde_json::Value;
use std::collections::BTreeMap;

/// The ConfigMap that kube-controller-manager publishes in every namespace. Pods that an API server admitted mount it.
const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

/// What is missing, as worded by a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The source of a volume is missing.
    Volume(String),
    /// The environment of containers is incomplete: the reason, by container name.
    Environment(BTreeMap<String, String>),
}

/// Checks every reference of a pod; those of volumes first, as they are mounted before containers are created.
pub(super) fn check(view: &dyn View, pod: &Value) -> Result<(), Missing> {
    let namespace = field::namespace(pod);
    for volume in field::items(pod, "/spec/volumes") {
        let found = volume_references(volume).try_for_each(|reference| reference.mounted(view, namespace));
        found.map_err(|problem| {
            let name = field::text(volume, "/name");
            Missing::Volume(format!("MountVolume.SetUp failed for volume {name:?} : {problem}"))
        })?;
    }
    let containers = ["/spec/initContainers", "/spec/containers"];
    let containers = containers.iter().flat_map(|part| field::items(pod, part));
    let problems: BTreeMap<String, String> = containers
        .filter_map(|container| {
            let problem = environment(container, view, namespace).err()?;
            Some((field::text(container, "/name").to_owned(), problem))
        })
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Missing::Environment(problems))
}

/// A reference in a field of a pod.
struct Reference<'a> {
    kind: &'static str,
    name: &'a str,
    keys: Vec<&'a str>,
    is_optional: bool,
}

impl<'a> Reference<'a> {
    /// `name_field` is the field of the name in this kind of reference.
    fn new(kind: &'static str, source: &'a Value, name_field: &str) -> Option<Self> {
        let name = source.get(name_field)?.as_str()?;
        let items = field::items(source, "/items").iter();
        Some(Self {
            kind,
            name,
            keys: items.map(|item| field::text(item, "/key")).collect(),
            is_optional: field::flag(source, "/optional"),
        })
    }

    fn find<'v>(&self, view: &'v dyn View, namespace: &str) -> Result<Option<&'v Value>, String> {
        let found = view.get(self.kind, namespace, self.name);
        if found.is_none() && !self.is_optional && self.name != ROOT_CERTIFICATE {
            return Err(format!("{} {:?} not found", self.kind.to_lowercase(), self.name));
        }
        Ok(found)
    }

    fn missing_key(&self, object: &Value) -> Option<&'a str> {
        let has = |key: &str| {
            let mut parts = ["data", "binaryData", "stringData"].iter();
            parts.any(|part| object[*part].get(key).is_some())
        };
        let mut keys = self.keys.iter().filter(|_| !self.is_optional);
        keys.find(|key| !has(key)).copied()
    }

    fn mounted(&self, view: &dyn View, namespace: &str) -> Result<(), String> {
        let found = self.find(view, namespace)?;
        let what = if self.kind == "Secret" { "secret" } else { "config" };
        match found.and_then(|object| self.missing_key(object)) {
            Some(key) => Err(format!("references non-existent {what} key: {key}")),
            None => Ok(()),
        }
    }

    fn read(&self, view: &dyn View, namespace: &str) -> Result<(), String> {
        let found = self.find(view, namespace)?;
        match found.and_then(|object| self.missing_key(object)) {
            Some(key) => Err(format!(
                "couldn't find key {key} in {} {namespace}/{}",
                self.kind, self.name
            )),
            None => Ok(()),
        }
    }
}

fn volume_references(volume: &Value) -> impl Iterator<Item = Reference<'_>> {
    let own = [
        Reference::new("Secret", &volume["secret"], "secretName"),
        Reference::new("ConfigMap", &volume["configMap"], "name"),
    ];
    let projected = field::items(volume, "/projected/sources").iter().flat_map(|source| {
        [
            Reference::new("Secret", &source["secret"], "name"),
            Reference::new("ConfigMap", &source["configMap"], "name"),
        ]
    });
    own.into_iter().chain(projected).flatten()
}

fn environment(container: &Value, view: &dyn View, namespace: &str) -> Result<(), String> {
    for source in field::items(container, "/envFrom") {
        let references = [
            Reference::new("ConfigMap", &source["configMapRef"], "name"),
            Reference::new("Secret", &source["secretRef"], "name"),
        ];
        for reference in references.into_iter().flatten() {
            reference.read(view, namespace)?;
        }
    }
    for variable in field::items(container, "/env") {
        let from = &variable["valueFrom"];
        for (kind, source) in [
            ("ConfigMap", &from["configMapKeyRef"]),
            ("Secret", &from["secretKeyRef"]),
        ] {
            if let Some(mut reference) = Reference::new(kind, source, "name") {
                reference.keys = vec![field::text(source, "/key")];
                reference.read(view, namespace)?;
            }
        }
    }
    Ok(())
}
