//! A real Kubernetes control plane for tests and measurements, and Berth's tests on it.
//!
//! It runs etcd and kube-apiserver on loopback, with TLS and RBAC, and whatever else a test needs:
//! kube-controller-manager, kube-scheduler, and the components of Berth as separate processes. There are no kubelets:
//! nodes are objects, and a pod counts as placed when it has a node. `e2e/kube/build` builds the binaries. Nothing here
//! depends on Berth's internals: it is observed only through the API.
//!
//! Map: [`cluster`] starts and stops; [`kube`] reads and writes objects; [`objects`] creates them; [`wait`] waits for
//! conditions; [`audit`] reads who requested what from the API server; [`components`] runs Berth's components on it.

pub mod audit;
pub mod cluster;
pub mod components;
pub mod kube;
pub mod objects;
pub mod wait;
