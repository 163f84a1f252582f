//! Finds the programs.

use std::path::PathBuf;

/// The version that `e2e/kube/build` builds.
const KUBERNETES: &str = "v1.36.3";
/// The required binaries.
const NAMES: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// A program is missing.
#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    /// The control plane was not built.
    #[error("{0} is not there: run e2e/kube/build, or set BERTH_KUBE_BINARIES to a directory with the binaries")]
    Kube(PathBuf),
    /// `berth` was not built.
    #[error("{0} is not there: run cargo build -p berth, or set BERTH to the binary")]
    Berth(PathBuf),
    /// There is no home directory to look in.
    #[error("neither BERTH_KUBE_BINARIES, XDG_CACHE_HOME nor HOME is set")]
    NoHome,
}

/// The directory of the control plane's binaries.
///
/// # Errors
/// If one of them is missing.
pub fn kube_binaries() -> Result<PathBuf, BinariesError> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let directory = match set("BERTH_KUBE_BINARIES") {
        Some(directory) => directory,
        None => set("XDG_CACHE_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".cache")))
            .ok_or(BinariesError::NoHome)?
            .join(format!("berth/kube-{KUBERNETES}")),
    };
    match NAMES
        .iter()
        .map(|name| directory.join(name))
        .find(|path| !path.is_file())
    {
        Some(missing) => Err(BinariesError::Kube(missing)),
        None => Ok(directory),
    }
}

/// The `berth` binary: `$BERTH`, or the one built next to this program.
///
/// # Errors
/// If it is missing.
pub fn berth_binary() -> Result<PathBuf, BinariesError> {
    let path = match std::env::var_os("BERTH") {
        Some(path) => PathBuf::from(path),
        None => {
            let this = std::env::current_exe().unwrap_or_default();
            let directory = this.parent().map(PathBuf::from).unwrap_or_default();
            // Tests and examples are one level deeper.
            let directory = match directory.file_name().and_then(|name| name.to_str()) {
                Some("deps" | "examples") => directory.parent().map(PathBuf::from).unwrap_or_default(),
                _ => directory,
            };
            directory.join("berth")
        }
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(BinariesError::Berth(path))
    }
}
