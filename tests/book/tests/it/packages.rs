//! Packages that are published have what registries and docs.rs show.

use std::fs;

use crate::pages::folder;

#[test]
fn published_packages_describe_themselves() {
    let root = folder().join("..");
    let mut published = Vec::new();
    for entry in fs::read_dir(&root).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let manifest: toml::Table = text.parse().unwrap();
        let package = manifest["package"].as_table().unwrap();
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
