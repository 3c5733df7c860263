//! Sources of a program: a proposal or notes.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use cargo_metadata::Package;
use gpu_tuned_attribute::sources::STACK;
use gpu_tuned_propose::Reading;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<(TempDir, Package)> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let file = |name: &str| folder.path().join(name);
    fs::write(file("Cargo.toml"), "[package]\nname = 'train'\nversion = '0.1.0'\nedition = '2024'\n").expect("a file");
    let target = serde_json::json!({
        "kind": ["bin"], "crate_types": ["bin"], "name": "train", "src_path": file("main.rs"), "edition": "2024",
        "doctest": false, "test": true, "doc": true
    });
    let package = serde_json::json!({
        "name": "train", "version": "0.1.0", "id": "train", "dependencies": [], "targets": [target], "features": {},
        "manifest_path": file("Cargo.toml"), "edition": "2024", "authors": [], "categories": [], "keywords": []
    });
    let package = serde_json::from_value(package).expect("a package");
    (folder, package)
});

fn propose(text: &str) {
    let (folder, package) = &*FOLDER;
    let path: PathBuf = folder.path().join("main.rs");
    fs::write(&path, text).expect("a file");
    let found = Reading::read(package, folder.path()).propose(package, "gpu_tuned", false);
    if let Some(proposal) = found.proposal {
        assert!(!proposal.diff.is_empty() && proposal.line <= text.split('\n').count());
    }
}

fuzz_target!(|text: &str| {
    // The command's stack, which deep nesting needs.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || propose(text));
        thread.expect("a thread").join().expect("no panic");
    });
});
