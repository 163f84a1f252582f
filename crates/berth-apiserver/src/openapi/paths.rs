//! The operations on each resource, with their kind and parameters.

use serde_json::{Map, Value, json};

use super::types::definition_name;
use crate::registry::ResourceType;

/// The version of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// How a definition is referred to.
    pub(super) fn reference(self, name: &str) -> String {
        match self {
            Dialect::V2 => format!("#/definitions/{name}"),
            Dialect::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

/// The last one is only for built-in kinds.
const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// One operation: the HTTP method, its Kubernetes name, its parameters and response.
struct Operation<'a> {
    method: &'static str,
    action: &'static str,
    takes: Option<&'a str>,
    answers: &'a str,
}

/// The type of a path.
struct Subject<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    plural: &'a str,
    is_custom: bool,
    dialect: Dialect,
}

/// Adds the paths of a resource and its subresources.
///
/// Custom resources have no strategic patch: their lists have no merge keys for it.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &ResourceType, is_custom: bool, dialect: Dialect) {
    let prefix = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let everywhere = format!("{prefix}/{}", resource.plural);
    let collection = if resource.namespaced {
        format!("{prefix}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        everywhere.clone()
    };
    let subject = Subject {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        plural: &resource.plural,
        is_custom,
        dialect,
    };
    let object = definition_name(&resource.group, &resource.version, &resource.kind);
    let list = definition_name(&resource.group, &resource.version, &resource.list_kind);
    if resource.namespaced && resource.has_verb("list") {
        insert(paths, &everywhere, &subject, &[read("list", &list)]);
    }
    insert(
        paths,
        &collection,
        &subject,
        &collection_operations(resource, &object, &list),
    );
    if !resource.has_verb("get") {
        return;
    }
    let item = format!("{collection}/{{name}}");
    insert(paths, &item, &subject, &item_operations(&object));
    for sub in &resource.subresources {
        let definition = definition_name(&sub.group, &sub.version, &sub.kind);
        let subject = Subject {
            group: &sub.group,
            version: &sub.version,
            kind: &sub.kind,
            ..subject
        };
        let operations: Vec<_> = if sub.verbs.iter().any(|verb| verb == "create") {
            vec![write("post", "post", &definition)]
        } else {
            item_operations(&definition)
                .into_iter()
                .filter(|op| op.method != "delete")
                .collect()
        };
        insert(paths, &format!("{item}/{}", sub.name), &subject, &operations);
    }
}

fn read<'a>(action: &'static str, answers: &'a str) -> Operation<'a> {
    Operation {
        method: "get",
        action,
        takes: None,
        answers,
    }
}

fn write<'a>(method: &'static str, action: &'static str, definition: &'a str) -> Operation<'a> {
    Operation {
        method,
        action,
        takes: Some(definition),
        answers: definition,
    }
}

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

fn delete(action: &'static str) -> Operation<'static> {
    Operation {
        method: "delete",
        action,
        takes: Some(DELETE_OPTIONS),
        answers: STATUS,
    }
}

fn collection_operations<'a>(resource: &ResourceType, object: &'a str, list: &'a str) -> Vec<Operation<'a>> {
    let mut operations = vec![write("post", "post", object)];
    if resource.has_verb("list") {
        operations.push(read("list", list));
        operations.push(delete("deletecollection"));
    }
    operations
}

fn item_operations(object: &str) -> Vec<Operation<'_>> {
    vec![
        read("get", object),
        write("put", "put", object),
        write("patch", "patch", object),
        delete("delete"),
    ]
}

fn insert(paths: &mut Map<String, Value>, path: &str, subject: &Subject<'_>, operations: &[Operation<'_>]) {
    let mut item = Map::new();
    for operation in operations {
        item.insert(operation.method.to_owned(), document(operation, path, subject));
    }
    let in_path: Vec<_> = [("name", "name of the object"), ("namespace", "namespace of the object")]
        .into_iter()
        .filter(|(name, _)| path.contains(&format!("{{{name}}}")))
        .map(|(name, description)| {
            let mut parameter = parameter(name, description, "string", subject.dialect);
            parameter["in"] = json!("path");
            parameter["required"] = json!(true);
            parameter
        })
        .collect();
    if !in_path.is_empty() {
        item.insert("parameters".to_owned(), Value::Array(in_path));
    }
    paths.insert(path.to_owned(), Value::Object(item));
}

fn document(operation: &Operation<'_>, path: &str, subject: &Subject<'_>) -> Value {
    let dialect = subject.dialect;
    let mut document = json!({
        "description": format!("{} objects of kind {}", operation.action, subject.kind),
        "operationId": format!("{}{}", operation.action, path.replace(['/', '{', '}', '.', '-'], "_")),
        "tags": [subject.plural],
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind":
            {"group": subject.group, "version": subject.version, "kind": subject.kind},
    });
    let mut parameters = parameters(operation, dialect);
    let answer = json!({"$ref": dialect.reference(operation.answers)});
    let body = operation.takes.map(|name| json!({"$ref": dialect.reference(name)}));
    let body_types = if operation.method == "patch" && subject.is_custom {
        &PATCH_TYPES[..PATCH_TYPES.len() - 1]
    } else if operation.method == "patch" {
        &PATCH_TYPES[..]
    } else {
        &["application/json"][..]
    };
    match dialect {
        Dialect::V2 => {
            parameters.extend(body.map(|schema| json!({"name": "body", "in": "body", "schema": schema})));
            document["consumes"] = json!(body_types);
            document["produces"] = json!(["application/json"]);
            document["responses"] = json!({"200": {"description": "OK", "schema": answer}});
        }
        Dialect::V3 => {
            if let Some(schema) = body {
                let content: Map<String, Value> = body_types
                    .iter()
                    .map(|t| ((*t).to_owned(), json!({"schema": schema})))
                    .collect();
                document["requestBody"] = json!({"content": content});
            }
            document["responses"] =
                json!({"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}});
        }
    }
    document["parameters"] = Value::Array(parameters);
    document
}

fn parameter(name: &str, description: &str, schema_type: &str, dialect: Dialect) -> Value {
    let mut parameter = json!({"name": name, "in": "query", "description": description});
    match dialect {
        Dialect::V2 => parameter["type"] = json!(schema_type),
        Dialect::V3 => parameter["schema"] = json!({"type": schema_type}),
    }
    parameter
}

fn parameters(operation: &Operation<'_>, dialect: Dialect) -> Vec<Value> {
    let dry_run = ("dryRun", "All means that nothing is stored.", "string");
    let writes = [
        dry_run,
        ("fieldManager", "The name of the writer, for managedFields.", "string"),
        (
            "fieldValidation",
            "What to do with unknown fields: Ignore, Warn or Strict.",
            "string",
        ),
    ];
    let selects = [
        ("labelSelector", "Restricts the objects by their labels.", "string"),
        ("fieldSelector", "Restricts the objects by their fields.", "string"),
        ("limit", "The most objects to answer at once.", "integer"),
        ("continue", "Where to continue a list that was limited.", "string"),
        ("resourceVersion", "The version to read at or to watch from.", "string"),
        ("resourceVersionMatch", "How resourceVersion is understood.", "string"),
        ("timeoutSeconds", "How long the answer may take.", "integer"),
    ];
    let watches = [
        ("watch", "Watch for changes rather than list.", "boolean"),
        (
            "allowWatchBookmarks",
            "Allow events that tell only the version.",
            "boolean",
        ),
    ];
    let deletes = [
        dry_run,
        ("gracePeriodSeconds", "How long the object may take to end.", "integer"),
        (
            "propagationPolicy",
            "What becomes of dependents: Orphan, Background or Foreground.",
            "string",
        ),
    ];
    let force = [("force", "Take fields over from other managers that apply.", "boolean")];
    let named: Vec<_> = match operation.action {
        "list" => selects.into_iter().chain(watches).collect(),
        "deletecollection" => selects.into_iter().chain(deletes).collect(),
        "delete" => deletes.to_vec(),
        "patch" => writes.into_iter().chain(force).collect(),
        "post" | "put" => writes.to_vec(),
        _ => Vec::new(),
    };
    let pretty = ("pretty", "If 'true', the output is indented.", "string");
    named
        .into_iter()
        .chain([pretty])
        .map(|(name, description, schema_type)| parameter(name, description, schema_type, dialect))
        .collect()
}
