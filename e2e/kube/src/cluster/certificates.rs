//! Keys and certificates of a cluster, generated for each.

use super::{ClusterError, write_private};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::path::{Path, PathBuf};

/// What clients need to trust the API server.
pub(super) struct Certificates {
    pub(super) authority_pem: String,
    pub(super) authority_path: PathBuf,
}

/// The files in the cluster's directory.
pub(super) const AUTHORITY: &str = "ca.crt";
pub(super) const SERVER_CERTIFICATE: &str = "apiserver.crt";
pub(super) const SERVER_KEY: &str = "apiserver.key";
pub(super) const ACCOUNT_KEY: &str = "service-account.key";
pub(super) const ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";

impl Certificates {
    /// Generates an authority, a certificate signed by it for the loopback address, and the key that signs service
    /// account tokens.
    pub(super) fn write(root: &Path) -> Result<Self, ClusterError> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "berth-e2e");
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let names = ["localhost", "127.0.0.1", "10.96.0.1", "kubernetes.default.svc"];
        let mut server = CertificateParams::new(names.map(str::to_owned).to_vec())?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let certificate = server.signed_by(&server_key, &issuer)?;

        let account_key = KeyPair::generate()?;
        let authority_path = root.join(AUTHORITY);
        write_private(&authority_path, &authority_pem)?;
        write_private(&root.join(SERVER_CERTIFICATE), &certificate.pem())?;
        write_private(&root.join(SERVER_KEY), &server_key.serialize_pem())?;
        write_private(&root.join(ACCOUNT_KEY), &account_key.serialize_pem())?;
        write_private(&root.join(ACCOUNT_PUBLIC_KEY), &account_key.public_key_pem())?;
        Ok(Self {
            authority_pem,
            authority_path,
        })
    }
}
