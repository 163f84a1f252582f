//! The generated Rust code for the CSI protocol is checked in, so that building needs neither protoc nor a build
//! script. This test regenerates it from the protocol file and fails if the two differ.
//!
//! To update it: `BERTH_REGENERATE=1 cargo test -p berth-provisioner --test generated`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

#[test]
fn the_generated_code_is_that_of_the_protocol_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile([root.join("proto/csi.proto")], [root.join("proto")]).unwrap();
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(out.path())
        .btree_map(".")
        .compile_fds(descriptors)
        .unwrap();
    let made = fs::read_to_string(out.path().join("csi.v1.rs")).unwrap();
    let kept = root.join("src/csi/generated.in");
    if std::env::var_os("BERTH_REGENERATE").is_some() {
        fs::write(&kept, &made).unwrap();
    }
    assert!(
        fs::read_to_string(&kept).unwrap_or_default() == made,
        "src/csi/generated.in is not what proto/csi.proto gives: run with BERTH_REGENERATE=1"
    );
}
