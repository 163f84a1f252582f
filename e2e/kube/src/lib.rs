//! A real Kubernetes control plane for tests and measurements, and the tests that Berth passes on it.
//!
//! It runs etcd and kube-apiserver on loopback, with TLS and RBAC, and beside them whatever a test needs:
//! kube-controller-manager, kube-scheduler, and the components of Berth as processes of their own. There are no
//! kubelets: nodes are objects, and a pod counts as placed when it has a node. The binaries are made by
//! `e2e/kube/build`. Nothing here knows how Berth works inside: it is looked at through the API alone.
//!
//! Map: [`cluster`] starts and stops; [`kube`] reads and writes objects; [`objects`] makes them; [`wait`] waits for
//! conditions; [`audit`] reads who asked the API server for what; [`components`] runs Berth's components on it.

pub mod audit;
pub mod cluster;
pub mod components;
pub mod kube;
pub mod objects;
pub mod wait;
