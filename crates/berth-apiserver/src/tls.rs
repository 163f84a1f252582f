//! A certificate authority and a server certificate, generated at startup or stored.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::private_file;

/// The server names in every certificate.
const NAMES: [&str; 5] = ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default"];
/// The file of the authority in a directory: its key, then its certificate.
const AUTHORITY_FILE: &str = "authority.pem";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// A certificate cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate cannot be made.
    #[error("cannot generate a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refuses it.
    #[error("cannot use the certificate")]
    Config(#[from] rustls::Error),
    /// The authority cannot be stored.
    #[error("cannot store the certificate authority")]
    File(#[from] std::io::Error),
    /// A specified file is invalid.
    #[error("{path} is not a PEM file with the expected content")]
    NotPem {
        /// The file.
        path: PathBuf,
    },
    /// The stored authority is invalid.
    #[error("{path} does not hold a key and a certificate; remove it to generate new ones")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// Signs server certificates. Clients that trust it trust them.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Generates an authority whose key exists only in memory: a kubeconfig is valid for one run.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub fn generate() -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let pem = Self::params()?.self_signed(&key)?.pem();
        Self::new(key, pem)
    }

    /// The authority stored in a directory, generated if there is none, so that a kubeconfig outlives the process.
    ///
    /// # Errors
    /// If it cannot be made, written or read.
    pub fn kept_in(directory: &Path) -> Result<Self, TlsError> {
        private_file::create_directory(directory)?;
        let path = directory.join(AUTHORITY_FILE);
        let text = private_file::read_or_make(&path, || {
            let key = KeyPair::generate()?;
            let certificate = Self::params()?.self_signed(&key)?;
            Ok::<_, TlsError>(key.serialize_pem() + &certificate.pem())
        })?;
        let damaged = || TlsError::Damaged { path: path.clone() };
        let key = KeyPair::from_pem(&text).map_err(|_| damaged())?;
        let certificate = text.find(CERTIFICATE).map(|start| text[start..].to_owned());
        Self::new(key, certificate.ok_or_else(damaged)?)
    }

    fn new(key: KeyPair, pem: String) -> Result<Self, TlsError> {
        let issuer = Issuer::new(Self::params()?, key);
        Ok(Self { issuer, pem })
    }

    fn params() -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "berth");
        Ok(params)
    }
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// What a listener needs for TLS, and what clients need to trust it.
#[derive(Clone)]
pub struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    authority_pem: String,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Generates an authority, and a certificate signed by it for the loopback names and these addresses.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub fn generate(addresses: &[IpAddr]) -> Result<Self, TlsError> {
        let names: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        Self::issue(&Authority::generate()?, &names)
    }

    /// Generates a certificate for the loopback names and these names and addresses.
    ///
    /// # Errors
    /// If the certificate cannot be generated: an invalid DNS name is refused.
    pub fn issue(authority: &Authority, names: &[String]) -> Result<Self, TlsError> {
        let mut names: Vec<String> = NAMES.map(str::to_owned).into_iter().chain(names.to_vec()).collect();
        names.sort();
        names.dedup();
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "berth-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let certificate = server.signed_by(&server_key, &authority.issuer)?;

        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
        Ok(Self {
            config: Arc::new(server_config(vec![certificate.der().clone()], key)?),
            authority_pem: authority.pem.clone(),
        })
    }

    /// A certificate with its chain, and its key.
    ///
    /// # Errors
    /// If the files cannot be read, or do not match.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let damaged = |path: &Path| {
            let path = path.to_owned();
            move |_| TlsError::NotPem { path }
        };
        let pem = std::fs::read_to_string(certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let chain = chain.map_err(damaged(certificate))?;
        let key = PrivateKeyDer::from_pem_slice(&std::fs::read(key)?).map_err(damaged(key))?;
        Ok(Self {
            config: Arc::new(server_config(chain, key)?),
            authority_pem: pem,
        })
    }

    /// The configuration for a server that supports only HTTP/1.1.
    #[must_use]
    pub fn for_http1(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// The authority's certificate, for clients.
    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }
}
