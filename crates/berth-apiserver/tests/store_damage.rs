//! A file with flipped or missing bytes: either everything that was written is intact, or the store reports damage.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use berth_apiserver::store::{
    Expect, Journal, JournalError, Limits, OpenError, PageQuery, Record, Snapshot, Store, WriteError,
};
use serde_json::json;

fn everything(store: &Store) -> BTreeMap<String, (u64, String)> {
    let query = PageQuery::all("");
    let objects = store.list("pods", &query).unwrap().objects;
    let text = |o: &berth_apiserver::store::Object| String::from_utf8(o.body().to_vec()).unwrap();
    objects
        .iter()
        .map(|o| (o.key().to_string(), (o.version(), text(o))))
        .collect()
}

fn filled(directory: &Path) -> BTreeMap<String, (u64, String)> {
    let store = Store::open(directory, Limits::default()).unwrap();
    for number in 0..200 {
        let key = format!("ns/pod-{number}");
        let body = json!({"metadata": {"name": key}, "text": "y".repeat(number * 7)});
        store.put("pods", &key, Expect::Absent, body).unwrap().wait().unwrap();
    }
    for number in (0..200).step_by(9) {
        let key = format!("ns/pod-{number}");
        let object = store.get("pods", &key).unwrap();
        store
            .delete("pods", &key, object.version(), object.value())
            .unwrap()
            .wait()
            .unwrap();
    }
    everything(&store)
}

/// Opens a damaged copy. True if the damage was reported, false if it had no effect.
fn reported(image: &[u8], expected: &BTreeMap<String, (u64, String)>, what: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.redb");
    std::fs::write(&path, image).unwrap();
    match Store::open(directory.path(), Limits::default()) {
        Ok(store) => {
            assert!(
                everything(&store) == *expected,
                "{what}: objects changed and nobody said so"
            );
            false
        }
        Err(OpenError::Damaged { reason, .. }) => {
            assert!(!reason.is_empty());
            true
        }
        Err(OpenError::Format { .. }) => true,
        Err(other) => panic!("{what}: {other}"),
    }
}

#[test]
fn damage_is_reported_and_never_silent() {
    let directory = tempfile::tempdir().unwrap();
    let expected = filled(directory.path());
    let image = std::fs::read(directory.path().join("objects.redb")).unwrap();
    assert!(!reported(&image, &expected, "no damage"));
    // The assertions in redb print to stderr; each is caught and reported as damage.
    std::panic::set_hook(Box::new(|_| {}));
    let mut reports = 0;
    let mut state = 88_172_645_463_325_252_u64;
    for round in 0..300 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut damaged = image.clone();
        // Every third round hits the first page, where the roots are.
        let range = if round % 3 == 0 { 4096 } else { damaged.len() };
        let at = (state >> 8) as usize % range;
        damaged[at] ^= 1 << (state % 8);
        reports += usize::from(reported(&damaged, &expected, &format!("bit flipped at {at}")));
    }
    for cut in [0, 1, 100, 4096, image.len() / 2, image.len() - 1] {
        reports += usize::from(reported(&image[..cut], &expected, &format!("cut to {cut}")));
    }
    drop(std::panic::take_hook());
    assert!(reports > 20, "only {reports} reports");
}

/// Fails for some commits, as a full disk does until there is room.
struct FailingJournal {
    good: usize,
    bad: usize,
}

impl Journal for FailingJournal {
    fn commit(&mut self, _: &[Record]) -> Result<(), JournalError> {
        match (self.good, self.bad) {
            (0, 0) => {}
            (0, _) => {
                self.bad -= 1;
                return Err(JournalError("no space left on device".into()));
            }
            _ => self.good -= 1,
        }
        Ok(())
    }
}

#[test]
fn writes_that_cannot_be_stored_are_refused_and_later_ones_go_through() {
    let journal = Box::new(FailingJournal { good: 2, bad: 2 });
    let store = Store::with_journal(journal, Snapshot::default(), Limits::default()).unwrap();
    let put = |key: &str| store.put("pods", key, Expect::Absent, json!({"metadata": {"name": key}}));
    put("a").unwrap().wait().unwrap();
    let b = put("b").unwrap().wait().unwrap();
    for key in ["c", "d"] {
        let error = put(key).unwrap().wait().unwrap_err();
        assert!(error.to_string().contains("no space left"), "{error}");
        assert_eq!(everything(&store).into_keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(store.latest("pods", key).is_none());
        assert!(store.failure().is_some());
    }
    let c = put("c").unwrap().wait().unwrap();
    assert!(
        c.version() > b.version() + 2,
        "versions of refused writes are not given again"
    );
    assert_eq!(everything(&store).into_keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(store.failure().is_none());
    assert!(matches!(put("c"), Err(WriteError::Exists)));
}

#[test]
fn a_second_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = Store::open(directory.path(), Limits::default()).unwrap();
    let second = Store::open(directory.path(), Limits::default());
    assert!(matches!(second, Err(OpenError::Locked { .. })), "{second:?}");
}

/// Objects of others would be served as our own, secrets and roles included.
#[cfg(unix)]
#[test]
fn a_file_that_others_may_have_written_is_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let refusal = |directory: &Path| match Store::open(directory, Limits::default()) {
        Err(OpenError::Directory { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    };
    let directory = tempfile::tempdir().unwrap();
    let expected = filled(directory.path());
    let path = directory.path().join("objects.redb");
    for (mode, accepted) in [(0o600, true), (0o644, true), (0o660, false), (0o602, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        if accepted {
            let store = Store::open(directory.path(), Limits::default()).unwrap();
            assert_eq!(everything(&store), expected);
        } else {
            let said = refusal(directory.path());
            assert!(said.contains("objects.redb may be written by others"), "{said}");
        }
    }
    let elsewhere = tempfile::tempdir().unwrap();
    for target in [path, elsewhere.path().join("missing")] {
        let linked = tempfile::tempdir().unwrap();
        symlink(&target, linked.path().join("objects.redb")).unwrap();
        let said = refusal(linked.path());
        assert!(said.contains("is not a regular file"), "{said}");
    }
    assert!(!elsewhere.path().join("missing").exists());
}
