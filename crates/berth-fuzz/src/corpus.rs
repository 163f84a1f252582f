//! The seeds in this repository.

use std::path::{Path, PathBuf};

/// The seeds of a target, in the order of their names.
///
/// # Errors
/// If there is no directory with its name, or a seed cannot be read.
pub fn seeds(target: &str) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut paths = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    paths
        .into_iter()
        .map(|path| std::fs::read(&path).map(|bytes| (path, bytes)))
        .collect()
}
