//! Serves a component over TLS, with the flags of kube-scheduler.

use anyhow::Context as _;
use berth_apiserver::Tls;
use berth_kube::component::SecureOptions;
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Flags about TLS.
#[derive(Args, Debug)]
pub struct SecureArgs {
    /// Port to serve what --listen serves over TLS. 0 disables it. The API server authorizes requests.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub secure_port: u16,
    /// Address of --secure-port.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Certificate of --secure-port, with its chain. Generated if omitted.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Paths that anyone can read on --secure-port.
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    pub authorization_always_allow_paths: Vec<String>,
}

impl SecureArgs {
    /// What to serve over TLS, if anything.
    ///
    /// # Errors
    /// If the certificate cannot be read or generated.
    pub(crate) fn options(&self) -> anyhow::Result<Option<SecureOptions>> {
        if self.secure_port == 0 {
            return Ok(None);
        }
        let tls = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                Tls::read(certificate, key).with_context(|| format!("--tls-cert-file {}", certificate.display()))?
            }
            _ => Tls::generate(&[self.bind_address])?,
        };
        Ok(Some(SecureOptions {
            address: SocketAddr::new(self.bind_address, self.secure_port),
            tls: tls.for_http1(),
            open_paths: self.authorization_always_allow_paths.clone(),
        }))
    }
}
