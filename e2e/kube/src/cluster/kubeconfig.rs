//! Kubeconfig files.

use serde_json::json;

/// A kubeconfig for a server and a token. It is JSON, which is YAML too.
#[must_use]
pub fn token_kubeconfig(server: &str, authority_pem: &str, token: &str) -> String {
    let authority = base64(authority_pem.as_bytes());
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "e2e",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "e2e", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e", "namespace": "default"}}],
    });
    format!("{kubeconfig:#}\n")
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
