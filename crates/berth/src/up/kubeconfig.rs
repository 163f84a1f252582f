//! The kubeconfig that `berth up` writes: next to the data, at the specified path, or in a temporary directory.
//!
//! An existing file may contain other clusters. They are kept: only entries named `berth` are replaced, as kubectl
//! would do.

use crate::cli::UpArgs;
use crate::snapshot::yaml;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

/// The name of its context, as the API server writes it.
pub(super) const CONTEXT: &str = "berth";

/// A kubeconfig on disk. One in a temporary directory is removed with it.
pub(super) struct Kubeconfig {
    path: PathBuf,
    note: Option<String>,
    _directory: Option<TempDir>,
}

impl Kubeconfig {
    /// Writes the kubeconfig, or merges its entries into the existing one.
    pub(super) fn write(args: &UpArgs, own: &str) -> anyhow::Result<Self> {
        let (path, directory) = match (&args.kubeconfig, &args.data_dir) {
            (Some(path), _) => (path.clone(), None),
            (None, Some(directory)) => (directory.join("kubeconfig"), None),
            (None, None) => {
                let directory = tempfile::Builder::new().prefix("berth-").tempdir();
                let directory = directory.context("cannot make a directory for the kubeconfig; give --kubeconfig")?;
                (directory.path().join("kubeconfig"), Some(directory))
            }
        };
        let about = || format!("cannot write the kubeconfig {}", path.display());
        // A link is followed: its target is the kubeconfig.
        let path = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let existing = match fs::read_to_string(&path) {
            Ok(text) if text.trim().is_empty() => None,
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(about),
        };
        let (text, note) = match existing {
            None => (own.to_owned(), None),
            Some(existing) => merged(&existing, own).with_context(about)?,
        };
        write_private(&path, &text).with_context(about)?;
        let path = fs::canonicalize(&path).unwrap_or(path);
        Ok(Self {
            path,
            note,
            _directory: directory,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A remark about an existing file with other content.
    pub(super) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

/// The kubeconfig with the entries of another one replacing those with the same names, and a remark if it had other
/// content.
fn merged(existing: &str, own: &str) -> anyhow::Result<(String, Option<String>)> {
    let mut config: Value = serde_saphyr::from_str(existing).context("the existing file is not YAML")?;
    let own: Value = serde_saphyr::from_str(own)?;
    let kind = config["kind"].as_str().unwrap_or("Config");
    if !config.is_object() || kind != "Config" {
        bail!("the existing file is not a kubeconfig and would be lost; set another --kubeconfig, or remove it");
    }
    let mut others = 0;
    for list in ["clusters", "users", "contexts"] {
        let mut entries = match &config[list] {
            Value::Null => Vec::new(),
            Value::Array(entries) => entries.clone(),
            _ => bail!("`{list}` is not a list; set another --kubeconfig, or remove the file"),
        };
        let new = own[list].as_array().cloned().unwrap_or_default();
        entries.retain(|entry| new.iter().all(|new| new["name"] != entry["name"]));
        others += entries.len();
        entries.extend(new);
        config[list] = Value::Array(entries);
    }
    let before = config["current-context"].as_str().unwrap_or_default().to_owned();
    let context = own["current-context"].clone();
    let note = (others > 0).then(|| {
        let mut note = "the context \"berth\" was added to it and is the current one".to_owned();
        if !before.is_empty() && context != before.as_str() {
            note += &format!("; `kubectl config use-context {before}` goes back");
        }
        note
    });
    config["current-context"] = context;
    config["kind"] = json!("Config");
    config["apiVersion"] = json!("v1");
    let mut text = String::new();
    yaml::write(&mut text, &config)?;
    Ok((text, note))
}

/// Writes a file that only its owner may read, because it contains the token. A crash leaves the old file or the new
/// one.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "apiVersion: v1\nkind: Config\nclusters:\n- name: berth\n  cluster:\n    server: https://new\n\
        users:\n- name: berth\n  user:\n    token: \"t\"\ncontexts:\n- name: berth\n  context:\n    cluster: berth\n\
        current-context: berth\n";

    #[test]
    fn other_clusters_stay() {
        let existing = "apiVersion: v1\nkind: Config\npreferences: {colors: true}\nclusters:\n- name: prod\n  cluster: \
            {server: https://prod}\n- name: berth\n  cluster: {server: https://old}\nusers:\n- name: me\n  user: \
            {token: \"0123\"}\ncontexts: []\ncurrent-context: prod\n";
        let (text, note) = merged(existing, OWN).unwrap();
        let config: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            config["clusters"],
            json!([{"name": "prod", "cluster": {"server": "https://prod"}},
                {"name": "berth", "cluster": {"server": "https://new"}}])
        );
        assert_eq!(config["users"][0], json!({"name": "me", "user": {"token": "0123"}}));
        assert_eq!(config["preferences"], json!({"colors": true}));
        assert_eq!(config["current-context"], "berth");
        assert!(note.unwrap().contains("use-context prod"));
        let (again, note) = merged(OWN, OWN).unwrap();
        let again: Value = serde_saphyr::from_str(&again).unwrap();
        assert_eq!(again, serde_saphyr::from_str::<Value>(OWN).unwrap());
        assert_eq!(note, None, "there was nothing else in it");
    }

    #[test]
    fn what_is_no_kubeconfig_is_not_replaced() {
        for other in ["kind: Pod", "- a", "clusters: 3", "a: [", "just text"] {
            assert!(merged(other, OWN).is_err(), "{other}");
        }
    }
}
