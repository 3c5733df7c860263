//! Packages that are published have what registries and docs.rs show, and few dependencies.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::pages::folder;

#[test]
fn published_packages_describe_themselves() {
    let root = folder().join("..");
    let mut published = Vec::new();
    for entry in fs::read_dir(&root).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let manifest: toml::Table = text.parse().unwrap();
        // A workspace is no package.
        let Some(package) = manifest.get("package").and_then(toml::Value::as_table) else { continue };
        if package.contains_key("publish") {
            continue;
        }
        let name = package["name"].as_str().unwrap();
        for key in ["description", "license", "repository", "rust-version"] {
            assert!(package.contains_key(key), "{name} has no {key}");
        }
        for key in ["keywords", "categories"] {
            let count = package.get(key).and_then(toml::Value::as_array).map_or(0, Vec::len);
            assert!((1..=5).contains(&count), "{name}: {key}");
        }
        assert!(package["metadata"].get("docs").is_some_and(|docs| docs.get("rs").is_some()), "{name}: docs.rs");
        let readme = package.get("readme").map_or("README.md", |path| path.as_str().unwrap());
        assert!(folder.join(readme).is_file(), "{name} has no README");
        published.push(name.to_owned());
    }
    assert_eq!(published.len(), 15, "{published:?}");
}

/// Cargo searches the whole repository for the package of a git dependency.
#[test]
fn no_other_package_of_the_repository_is_named_as_a_published_one() {
    fn names(folder: &Path, all: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if name == "Cargo.toml" {
                let manifest = fs::read_to_string(&path).unwrap().parse::<toml::Table>().unwrap_or_default();
                let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
                all.extend(name.filter(|name| name.contains("gpu-tuned")).map(str::to_owned));
            } else if path.is_dir() && name != "target" && !name.starts_with('.') {
                names(&path, all);
            }
        }
    }
    let mut all = Vec::new();
    names(&folder().join(".."), &mut all);
    let different: BTreeSet<_> = all.iter().collect();
    assert!(different.len() > 15 && different.len() == all.len(), "{all:?}");
}

#[test]
fn a_program_without_burn_compiles_at_most_50_packages() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--package", "gpu-tuned", "--edges", "normal,build", "--prefix", "none"]);
    tree.args(["--format", "{p}", "--no-dedupe"]).current_dir(folder().join(".."));
    let output = tree.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let packages: BTreeSet<_> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!((20..=50).contains(&packages.len()), "{} packages: {packages:?}", packages.len());
}
