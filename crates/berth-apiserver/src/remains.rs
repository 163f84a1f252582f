//! The remaining content of a namespace that is being deleted, and the conditions that report it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::Api;
use crate::collector::PODS;
use crate::meta;
use crate::store::{Page, PageQuery};

/// Maximum number of objects of one kind that are examined one by one. A namespace with more of them is still being
/// emptied; if one is stuck, the few objects that block it are of interest.
const LOOKED_AT_MAX: usize = 100;

/// The remaining content of a namespace.
pub(crate) enum Remains {
    Nothing,
    /// So much that counting it after each deletion would take longer than the deletion itself.
    Many,
    Few(Few),
}

/// The number of objects by resource, and by finalizer.
#[derive(Default)]
pub(crate) struct Few {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

fn first(api: &Api, table: &str, prefix: &str, limit: usize) -> Option<Page> {
    let query = PageQuery {
        limit,
        ..PageQuery::all(prefix)
    };
    api.store.list(table, &query).ok()
}

/// Whether a table contains anything below a prefix.
pub(crate) fn has_any(api: &Api, table: &str, prefix: &str) -> bool {
    first(api, table, prefix, 1).is_some_and(|page| !page.objects.is_empty())
}

/// Examines a namespace.
pub(crate) fn of_namespace(api: &Api, name: &str) -> Remains {
    let prefix = format!("{name}/");
    let mut few = Few::default();
    // While there are pods, nothing else is being deleted yet.
    let has_pods = has_any(api, PODS, &prefix);
    for (table, _) in api.store.tables() {
        if has_pods && &*table != PODS {
            continue;
        }
        let Some(page) = first(api, &table, &prefix, LOOKED_AT_MAX) else {
            continue;
        };
        if page.next.is_some() {
            return Remains::Many;
        }
        for object in &page.objects {
            *few.resources.entry(table.to_string()).or_default() += 1;
            for finalizer in meta::finalizers(&object.value()) {
                *few.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }
    if few.resources.is_empty() {
        return Remains::Nothing;
    }
    Remains::Few(few)
}

impl Few {
    /// The namespace with conditions that report what blocks its deletion.
    pub(crate) fn noted_on(&self, namespace: &Value, time: &str) -> Value {
        // The core group has no name, but its dot is written.
        let resource = |name: &str| {
            if name.contains('.') {
                name.to_owned()
            } else {
                format!("{name}.")
            }
        };
        let list = |counts: &BTreeMap<String, usize>, show: &dyn Fn(&str, usize) -> String| {
            let parts: Vec<String> = counts.iter().map(|(name, count)| show(name, *count)).collect();
            parts.join(", ")
        };
        let resources = list(&self.resources, &|name, count| {
            format!("{} has {count} resource instances", resource(name))
        });
        let finalizers = list(&self.finalizers, &|name, count| {
            format!("{name} in {count} resource instances")
        });
        let (held, why, text) = if self.finalizers.is_empty() {
            let text = "All content-preserving finalizers finished".to_owned();
            ("False", "ContentHasNoFinalizers", text)
        } else {
            let text = format!("Some content in the namespace has finalizers remaining: {finalizers}");
            ("True", "SomeFinalizersRemain", text)
        };
        let remaining = format!("Some resources are remaining: {resources}");
        let conditions = [
            (
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            (
                "NamespaceDeletionContentFailure",
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            ("NamespaceContentRemaining", "True", "SomeResourcesRemain", &remaining),
            ("NamespaceFinalizersRemaining", held, why, &text),
        ];
        let before = meta::items(namespace, &["status", "conditions"]);
        let conditions = conditions.map(|(kind, status, reason, message)| {
            let same = before
                .iter()
                .find(|found| found["type"] == kind && found["status"] == status);
            let since = same.map_or_else(|| json!(time), |found| found["lastTransitionTime"].clone());
            json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
        });
        let mut noted = namespace.clone();
        meta::set(&mut noted, &["status", "conditions"], json!(conditions));
        noted
    }
}
