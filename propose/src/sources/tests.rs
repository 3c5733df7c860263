//! Sources of a package with several targets.

use std::fs;

use super::*;

#[test]
fn a_file_with_several_paths_is_one_source() {
    let folder = std::env::temp_dir().join(format!("gpu-tuned-sources-{}", std::process::id()));
    fs::create_dir_all(folder.join("src/inner")).expect("a folder");
    for (file, text) in [
        ("Cargo.toml", "[package]\nname = \"paths\"\nedition = \"2024\"\n[workspace]\n"),
        ("src/lib.rs", "mod shared;"),
        ("src/main.rs", "#[path = \"inner/../shared.rs\"] mod shared; mod own;"),
        ("src/own.rs", ""),
        ("src/shared.rs", ""),
    ] {
        fs::write(folder.join(file), text).expect("written");
    }
    let manifest = folder.join("Cargo.toml");
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(manifest).no_deps().exec();
    let (sources, notes) = read(&metadata.expect("metadata").packages[0], &folder);
    let main = at(&sources, &folder.join("src/inner/../main.rs")).map(|source| source.name.clone());
    fs::remove_dir_all(folder).expect("removed");
    let targets = |source: &Source| match &source.owner {
        Owner::Targets(targets) => targets.len(),
        Owner::Package(name) => panic!("of {name}"),
    };
    let found: Vec<_> = sources.iter().map(|it| (it.name.as_str(), targets(it), it.in_library)).collect();
    let lib = [("src/lib.rs", 1, true), ("src/main.rs", 1, false)];
    assert_eq!(found, [&lib[..], &[("src/own.rs", 1, false), ("src/shared.rs", 2, true)]].concat());
    assert_eq!((main.as_deref(), notes), (Some("src/main.rs"), Vec::new()));
}
