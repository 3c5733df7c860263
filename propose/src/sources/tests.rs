//! Sources of a package with several targets, and their edits.

use std::fs;

use super::*;
use crate::Reading;

/// Calls a function with a package of these files, and its folder.
fn with_package<T>(name: &str, files: &[(&str, &str)], of: impl FnOnce(&Package, &Path) -> T) -> T {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    fs::create_dir_all(folder.join("src/inner")).expect("a folder");
    let manifest = folder.join("Cargo.toml");
    fs::write(&manifest, format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n[workspace]\n")).expect("written");
    for (file, text) in files {
        fs::write(folder.join(file), text).expect("written");
    }
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(manifest).no_deps().exec();
    of(&metadata.expect("metadata").packages[0], folder)
}

#[test]
fn a_file_with_several_paths_is_one_source() {
    let files = [
        ("src/lib.rs", "mod shared;"),
        ("src/main.rs", "#[path = \"inner/../shared.rs\"] mod shared; mod own;"),
        ("src/own.rs", ""),
        ("src/shared.rs", ""),
    ];
    with_package("paths", &files, |package, folder| {
        let (sources, notes) = read(package, folder);
        let targets = |source: &Source| match &source.owner {
            Owner::Targets(targets) => targets.len(),
            Owner::Package(name) => panic!("of {name}"),
        };
        let found: Vec<_> = sources.iter().map(|it| (it.name.as_str(), targets(it), it.in_library)).collect();
        let first = [("src/lib.rs", 1, true), ("src/main.rs", 1, false)];
        assert_eq!(found, [&first[..], &[("src/own.rs", 1, false), ("src/shared.rs", 2, true)]].concat());
        let main = at(&sources, &folder.join("src/inner/../main.rs")).map(|source| source.name.as_str());
        assert_eq!((main, notes), (Some("src/main.rs"), Vec::new()));
    });
}

#[test]
fn calls_of_setters_are_removed_from_long_chains() {
    let setters = ".with_batch_size(8)".repeat(1_000);
    let text = format!(
        "#[derive(Config, Debug)]\nstruct TrainingConfig {{\n    #[config(default = 8)]\n    batch_size: usize,\n    \
         #[config(default = 1)]\n    num_epochs: usize,\n    #[config(default = 1e-3)]\n    learning_rate: f64,\n}}\n\n\
         fn main() {{\n    let config = TrainingConfig::new(){setters}.done();\n}}\n"
    );
    // As in the command, whose threads have room for deep code.
    let run = move || {
        with_package("setters", &[("src/main.rs", &text)], |package, folder| {
            let found = Reading::read(package, folder).propose(package, "gpu-tuned", false);
            let proposal = found.proposal.unwrap_or_else(|| panic!("no proposal: {:?} {:?}", found.left, found.notes));
            assert!(proposal.diff.contains("\n+    let config = TrainingConfig::new().done();\n"), "{}", proposal.diff);
            let is_removed = |edit: &&Edit| edit.what == "the build plans what `with_batch_size` sets";
            assert_eq!(proposal.edits.iter().filter(is_removed).count(), 1_000);
        });
    };
    let thread = std::thread::Builder::new().stack_size(gpu_tuned_attribute::sources::STACK).spawn(run);
    thread.expect("a thread").join().expect("a proposal");
}
