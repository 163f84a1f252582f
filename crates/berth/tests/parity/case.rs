//! The test cases: files of the repository.

use std::path::{Path, PathBuf};

/// A cluster and its scenario.
pub struct Case {
    /// Directory and file, without extensions.
    pub name: String,
    pub file: PathBuf,
    pub scenario: Option<PathBuf>,
}

/// All cases. A manifest with a scenario is played with and without it.
pub fn all() -> Vec<Case> {
    let folders = [
        "../../examples",
        "../../examples/explain",
        "../../examples/plan",
        "../../examples/up",
        "tests/corners",
    ];
    let mut cases: Vec<Case> = folders.iter().flat_map(|folder| cases_of(folder)).collect();
    let scenarios = cases_of("../../examples/scenarios");
    for case in &scenarios {
        let path = case.file.with_extension("scenario.yaml");
        if path.exists() {
            cases.push(Case {
                name: format!("{} (played)", case.name),
                file: case.file.clone(),
                scenario: Some(path),
            });
        }
    }
    cases.extend(scenarios.into_iter().filter(|case| !case.name.ends_with(".scenario")));
    cases
}

fn cases_of(folder: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&path).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let last = Path::new(folder).file_name().unwrap().to_string_lossy().into_owned();
    let name = |file: &Path| format!("{last}/{}", file.file_stem().unwrap().to_string_lossy());
    files
        .into_iter()
        .map(|file| Case {
            name: name(&file),
            file,
            scenario: None,
        })
        .collect()
}
