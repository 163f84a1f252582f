//! The kubeconfig that `berth up` writes: beside the data, where the user wants it, or in a directory of its own.

use crate::cli::UpArgs;
use anyhow::Context;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A kubeconfig on disk. One in a directory of its own goes with it.
pub(super) struct Kubeconfig {
    path: PathBuf,
    _directory: Option<TempDir>,
}

impl Kubeconfig {
    pub(super) fn write(args: &UpArgs, text: &str) -> anyhow::Result<Self> {
        let (path, directory) = match (&args.kubeconfig, &args.data_dir) {
            (Some(path), _) => (path.clone(), None),
            (None, Some(directory)) => (directory.join("kubeconfig"), None),
            (None, None) => {
                let directory = tempfile::Builder::new().prefix("berth-").tempdir();
                let directory = directory.context("cannot make a directory for the kubeconfig; give --kubeconfig")?;
                (directory.path().join("kubeconfig"), Some(directory))
            }
        };
        write_private(&path, text).with_context(|| format!("cannot write the kubeconfig {}", path.display()))?;
        let path = fs::canonicalize(&path).unwrap_or(path);
        Ok(Self {
            path,
            _directory: directory,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes a file that only its owner may read: it holds the token.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(text.as_bytes())
}
