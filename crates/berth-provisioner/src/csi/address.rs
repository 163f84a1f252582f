//! The address of a driver.

use std::path::PathBuf;

/// Why an address is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address:?} is not the address of a CSI driver: expected a unix socket, such as unix:///csi/csi.sock")]
pub struct AddressError {
    address: String,
}

/// The path of a socket: `unix:///csi/csi.sock`, `unix:/csi/csi.sock` or a plain path.
///
/// # Errors
/// If it is another kind of address, or empty.
pub fn socket_path(address: &str) -> Result<PathBuf, AddressError> {
    let path = address
        .strip_prefix("unix://")
        .or_else(|| address.strip_prefix("unix:"))
        .unwrap_or(address);
    if path.is_empty() || path.contains("://") {
        return Err(AddressError {
            address: address.to_owned(),
        });
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_an_address() {
        for address in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(socket_path(address).unwrap(), PathBuf::from("/csi/csi.sock"));
        }
        assert_eq!(socket_path("csi.sock").unwrap(), PathBuf::from("csi.sock"));
        for address in ["", "unix://", "tcp://127.0.0.1:1"] {
            assert!(socket_path(address).is_err(), "{address}");
        }
    }
}
