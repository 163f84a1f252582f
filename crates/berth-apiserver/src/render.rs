//! Renders objects, lists and watch events in the form that the client accepts.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::filter::View;
use crate::meta;
use crate::request::{Form, Parameters};
use crate::store::{EventKind, Object};
use crate::table::{self, IncludeObject, TableOptions};
use crate::types::Served;

/// What follows the elements of a list and the rows of a table.
pub(crate) const LIST_TAIL: &str = "]}";

/// How objects of one type are rendered for one client.
#[derive(Debug, Clone)]
pub(crate) struct Renderer {
    pub(crate) served: Arc<Served>,
    pub(crate) form: Form,
    pub(crate) include_object: IncludeObject,
    pub(crate) now: Timestamp,
    /// Whether tables describe their columns: the first one of a watch does, the others do not.
    pub(crate) with_columns: bool,
}

/// The `includeObject` parameter.
pub(crate) fn include_object(parameters: &Parameters) -> IncludeObject {
    match parameters.text("includeObject") {
        "None" => IncludeObject::None,
        "Object" => IncludeObject::Object,
        _ => IncludeObject::Metadata,
    }
}

pub(crate) fn json_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

impl Renderer {
    /// One stored object.
    pub(crate) fn object(&self, object: &Object) -> Bytes {
        if self.form == Form::Whole && !self.served.is_converted() {
            return object.body().clone();
        }
        self.value(self.served.present(object.value()))
    }

    /// One object in its served form.
    pub(crate) fn value(&self, value: Value) -> Bytes {
        match self.form {
            Form::Whole => json_bytes(&value),
            Form::Metadata => json_bytes(&metadata_only(&value)),
            Form::Table => json_bytes(&self.table(&value, &value["metadata"])),
        }
    }

    fn table_options(&self) -> TableOptions<'_> {
        let custom = self.served.custom.as_ref();
        TableOptions {
            now: self.now,
            include_object: self.include_object,
            columns: self.served.kind.map(|kind| kind.columns),
            printer_columns: custom.map_or(&Value::Null, |custom| &custom.columns),
        }
    }

    fn table(&self, object: &Value, list_metadata: &Value) -> Value {
        let mut table = table::table(Some(object), list_metadata, &self.table_options());
        if !self.with_columns {
            table["columnDefinitions"] = Value::Null;
        }
        table
    }

    /// What precedes the elements of a list. `metadata` is that of the list.
    pub(crate) fn list_head(&self, metadata: &Value) -> String {
        let (kind, api_version) = match self.form {
            Form::Table => {
                let table = table::table(None, metadata, &self.table_options()).to_string();
                // The rows come last, and there are none yet.
                return table.strip_suffix(LIST_TAIL).unwrap_or_default().to_owned();
            }
            Form::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
            Form::Whole => (
                self.served.resource.list_kind.as_str(),
                self.served.resource.api_version(),
            ),
        };
        format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            json!(kind),
            json!(api_version),
        )
    }

    /// An element of a list.
    pub(crate) fn list_item(&self, object: &Object, out: &mut BytesMut) {
        let present = || self.served.present(object.value());
        match self.form {
            Form::Table => out.put(json_bytes(&table::row(&present(), &self.table_options()))),
            Form::Metadata => out.put(json_bytes(&metadata_only(&present()))),
            Form::Whole => self.whole_item(object, out),
        }
    }

    /// Only elements of custom kinds contain their kind: for the others the list specifies it.
    fn whole_item(&self, object: &Object, out: &mut BytesMut) {
        if self.served.custom.is_some() {
            return out.put(self.object(object));
        }
        match object.body_without_kind().filter(|_| !self.served.is_converted()) {
            Some(rest) => {
                out.put_u8(b'{');
                out.put(rest);
            }
            None => {
                let mut value = self.served.present(object.value());
                for name in ["kind", "apiVersion"] {
                    meta::set(&mut value, &[name], Value::Null);
                }
                out.put(json_bytes(&value));
            }
        }
    }

    /// One watch event as a line.
    pub(crate) fn event(&self, view: &View<'_>, out: &mut BytesMut) {
        let kind = match view.kind {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        };
        let body = if view.object.version() == view.version {
            self.object(view.object)
        } else {
            let mut value = self.served.present(view.object.value());
            let version = view.version.to_string().into();
            meta::set(&mut value, &["metadata", "resourceVersion"], version);
            self.value(value)
        };
        line(kind, &body, out);
    }

    /// A bookmark: nothing changed up to this version. `initial` marks the end of the initial state.
    pub(crate) fn bookmark(&self, version: u64, initial: bool, out: &mut BytesMut) {
        let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.form {
            Form::Whole => (self.served.resource.kind.clone(), self.served.resource.api_version()),
            Form::Metadata => ("PartialObjectMetadata".into(), "meta.k8s.io/v1".into()),
            Form::Table => {
                let table = self.table(&json!({"metadata": metadata}), &metadata);
                return line("BOOKMARK", &json_bytes(&table), out);
            }
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        line("BOOKMARK", &json_bytes(&object), out);
    }
}

/// One line of a watch.
pub(crate) fn line(kind: &str, object: &[u8], out: &mut BytesMut) {
    out.reserve(object.len() + kind.len() + 24);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}

fn metadata_only(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}
