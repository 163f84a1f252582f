//! Files that only their owner may read: keys, tokens, and the objects themselves, which include secrets.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Maximum size of a file with a token. Tokens of service accounts have about a kilobyte.
const TOKEN_MAX: u64 = 64 << 10;

/// Creates a directory and its parents, unless it exists. An existing one is left unchanged, and refused if other users
/// may create files in it: a planted token or key would be trusted.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)?;
    #[cfg(unix)]
    ownership::check_directory(path)?;
    Ok(())
}

/// Creates a new, empty file.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

/// Restricts a file to its owner.
pub(crate) fn restrict(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let permissions = fs::metadata(path)?.permissions();
        if permissions.mode() & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

/// The content of a file, which is created first if it does not exist. A crash leaves a complete file or none.
pub(crate) fn read_or_make<E: From<io::Error>>(
    path: &Path,
    make: impl FnOnce() -> Result<String, E>,
) -> Result<String, E> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return Ok(found?),
    }
    let text = make()?;
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    Ok(text)
}

/// The content of a file of our own.
fn read(path: &Path) -> io::Result<String> {
    check(path)?;
    fs::read_to_string(path)
}

/// The token in a file that the user named, without white space around it.
///
/// Links are followed, as Kubernetes mounts secrets as links. What they lead to must be a regular file that no one else may have written: a pipe
/// would block, and others could choose the token.
///
/// # Errors
/// If the file cannot be read, is not a regular file, may have been written by others, or holds no token.
pub fn read_token(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // To open a pipe does not wait for its writer.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    #[cfg(unix)]
    ownership::check_opened(path, &file.metadata()?)?;
    let mut text = String::new();
    file.take(TOKEN_MAX + 1).read_to_string(&mut text)?;
    let invalid = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if text.len() as u64 > TOKEN_MAX {
        return invalid("it is longer than 64 KiB, so it is not a token");
    }
    match text.trim() {
        "" => invalid("the token is empty"),
        token => Ok(token.to_owned()),
    }
}

/// Refuses a file that others may have written, or that leads to another one. A missing file is an error, too.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    ownership::check_file(path)?;
    #[cfg(not(unix))]
    fs::symlink_metadata(path)?;
    Ok(())
}

/// Checks who may have written a file, or may create one in a directory.
#[cfg(unix)]
mod ownership {
    use std::fs::Metadata;
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    const WRITABLE_BY_OTHERS: u32 = 0o002;
    const WRITABLE_BY_GROUP_OR_OTHERS: u32 = 0o022;

    /// A group may write, as for a volume in Kubernetes. Files that its members plant are still owned by them: see
    /// `check_file`.
    pub(super) fn check_directory(path: &Path) -> io::Result<()> {
        check_owner(path, &path.metadata()?, WRITABLE_BY_OTHERS)
    }

    pub(super) fn check_file(path: &Path) -> io::Result<()> {
        check_opened(path, &path.symlink_metadata()?)
    }

    /// A file by its metadata.
    pub(super) fn check_opened(path: &Path, metadata: &Metadata) -> io::Result<()> {
        if !metadata.is_file() {
            return Err(refusal(path, "is not a regular file"));
        }
        check_owner(path, metadata, WRITABLE_BY_GROUP_OR_OTHERS)
    }

    fn check_owner(path: &Path, metadata: &Metadata, forbidden: u32) -> io::Result<()> {
        let own = rustix::process::geteuid().as_raw();
        if ![own, 0].contains(&metadata.uid()) {
            return Err(refusal(path, "belongs to another user"));
        }
        if metadata.mode() & forbidden != 0 {
            return Err(refusal(path, "may be written by others"));
        }
        Ok(())
    }

    fn refusal(path: &Path, why: &str) -> io::Error {
        let path = path.display();
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{path} {why}, so its content is not trusted: take that right away, or choose another file or directory"
            ),
        )
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn taken(path: &Path) -> Result<String, String> {
        read_or_make(path, || Ok::<_, io::Error>("made".to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn only_our_own_files_are_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert_eq!(taken(&path).as_deref(), Ok("made"));
        fs::write(&path, "kept").unwrap();
        assert_eq!(taken(&path).as_deref(), Ok("kept"));
        allow(&path, 0o622);
        assert!(taken(&path).unwrap_err().contains("may be written by others"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(taken(&link).unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn a_token_comes_from_a_file_of_our_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let given = |path: &Path| read_token(path).map_err(|error| error.to_string());
        fs::write(&path, "secret\n").unwrap();
        assert_eq!(given(&path).as_deref(), Ok("secret"));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(given(&link).as_deref(), Ok("secret"), "as in a volume of a secret");
        for (content, problem) in [(" \n".to_owned(), "empty"), ("x".repeat(70_000), "longer than 64 KiB")] {
            fs::write(&path, content).unwrap();
            assert!(given(&path).unwrap_err().contains(problem));
        }
        for mode in [0o622, 0o660] {
            allow(&path, mode);
            assert!(
                given(&link).unwrap_err().contains("may be written by others"),
                "{mode:o}"
            );
        }
        assert!(given(directory.path()).unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn a_directory_that_anybody_may_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, accepted) in [
            (0o700, true),
            (0o755, true),
            (0o2770, true),
            (0o777, false),
            (0o1777, false),
        ] {
            allow(directory.path(), mode);
            assert_eq!(create_directory(directory.path()).is_ok(), accepted, "{mode:o}");
        }
    }
}
