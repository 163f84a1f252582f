//! Standalone pod templates. They are stored and served; no pods are created from them.

use crate::columns::{NAME, each_of, labelled};
use crate::kind::{Generation, Kind};
use crate::workload;

/// Pod templates.
pub const KIND: Kind = Kind {
    generation: Generation::Counted,
    columns: &[
        NAME,
        each_of("Containers", &["template", "spec", "containers"], "name"),
        each_of("Images", &["template", "spec", "containers"], "image"),
        labelled("Pod Labels", &["template", "metadata", "labels"]),
    ],
    defaults: |object| workload::default_template(object, &["template"]),
    ..Kind::namespaced("", "v1", "PodTemplate", "podtemplates")
};
