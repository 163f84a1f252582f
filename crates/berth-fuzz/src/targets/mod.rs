//! The readers of outside bytes.

mod csi;
mod files;
mod objects;
mod patches;
mod server;
mod wire;

use crate::Target;

/// Every target.
pub const ALL: &[Target] = &[
    Target {
        name: "json-patch",
        read: patches::json,
    },
    Target {
        name: "merge-patch",
        read: patches::merge,
    },
    Target {
        name: "strategic-patch",
        read: patches::strategic,
    },
    Target {
        name: "apply",
        read: patches::apply,
    },
    Target {
        name: "definition",
        read: objects::definition,
    },
    Target {
        name: "selector",
        read: objects::selector,
    },
    Target {
        name: "quantity",
        read: objects::quantity,
    },
    Target {
        name: "object",
        read: objects::object,
    },
    Target {
        name: "watch",
        read: wire::watch,
    },
    Target {
        name: "protobuf",
        read: wire::protobuf,
    },
    Target {
        name: "csi",
        read: csi::create,
    },
    Target {
        name: "csi-status",
        read: csi::status,
    },
    Target {
        name: "csi-capacity",
        read: csi::capacity,
    },
    Target {
        name: "csi-identity",
        read: csi::identity,
    },
    Target {
        name: "csi-source",
        read: csi::source,
    },
    Target {
        name: "extender",
        read: wire::extender,
    },
    Target {
        name: "query",
        read: server::query,
    },
    Target {
        name: "request",
        read: server::request,
    },
    Target {
        name: "input",
        read: files::input,
    },
    Target {
        name: "scenario",
        read: files::scenario,
    },
    Target {
        name: "configuration",
        read: files::configuration,
    },
    Target {
        name: "candidates",
        read: files::candidates,
    },
    Target {
        name: "names",
        read: files::names,
    },
];
