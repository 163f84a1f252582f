//! Ingress classes. They are stored and served; traffic is not routed.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, NONE, made, text};
use crate::kind::{Generation, Kind};
use crate::meta;

/// Ingress classes.
pub const KIND: Kind = Kind {
    generation: Generation::Counted,
    columns: &[
        NAME,
        text("Controller", &["spec", "controller"], ""),
        made("Parameters", |class, _| json!(parameters(&class["spec"]["parameters"]))),
        AGE,
    ],
    defaults: |class| {
        if class["spec"]["parameters"].is_object() {
            meta::default(class, &["spec", "parameters", "scope"], "Cluster");
        }
    },
    ..Kind::cluster("networking.k8s.io", "v1", "IngressClass", "ingressclasses")
};

fn parameters(parameters: &Value) -> String {
    let part = |key: &str| meta::text(parameters, &[key]);
    match (parameters.is_null(), part("apiGroup")) {
        (true, _) => NONE.to_owned(),
        (_, "") => format!("{}/{}", part("kind"), part("name")),
        (_, group) => format!("{}.{group}/{}", part("kind"), part("name")),
    }
}
