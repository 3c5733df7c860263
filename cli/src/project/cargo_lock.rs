//! The releases that a package is built with, as `Cargo.lock` says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

/// A `Cargo.lock`. Reading it neither downloads anything nor changes it, as `cargo metadata` might.
#[derive(Deserialize)]
pub(crate) struct CargoLock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    /// Each `NAME`, `NAME VERSION` or `NAME VERSION (SOURCE)`.
    #[serde(default)]
    dependencies: Vec<String>,
}

impl CargoLock {
    /// The file of a workspace; `None` when there is none, or cargo itself would not read it.
    pub(super) fn read(workspace: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(workspace.join("Cargo.lock")).ok()?;
        toml::from_str(&text).ok()
    }

    /// The releases of the crate `name` that the package is built with, itself and through others.
    pub(crate) fn releases(&self, package: &str, name: &str) -> BTreeSet<&str> {
        let mut by_name: BTreeMap<&str, Vec<&Locked>> = BTreeMap::new();
        for locked in &self.package {
            by_name.entry(&locked.name).or_default().push(locked);
        }
        let mut open = by_name.get(package).cloned().unwrap_or_default();
        let mut seen: BTreeSet<(&str, &str)> = open.iter().map(|locked| locked.key()).collect();
        while let Some(locked) = open.pop() {
            let needed = locked.dependencies.iter().flat_map(|dependency| {
                let mut words = dependency.split_whitespace();
                let (name, version) = (words.next().unwrap_or_default(), words.next());
                let of_name = by_name.get(name).into_iter().flatten().copied();
                of_name.filter(move |locked| version.is_none_or(|version| locked.version == version))
            });
            open.extend(needed.filter(|locked| seen.insert(locked.key())));
        }
        seen.into_iter().filter(|(seen, _)| *seen == name).map(|(_, version)| version).collect()
    }
}

impl Locked {
    fn key(&self) -> (&str, &str) {
        (&self.name, &self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::CargoLock;

    #[test]
    fn only_what_the_package_is_built_with_counts() {
        let text = r#"
            version = 4
            [[package]]
            name = "mine"
            version = "0.1.0"
            dependencies = ["between", "burn 0.22.1"]
            [[package]]
            name = "between"
            version = "1.0.0"
            dependencies = ["cubecl", "mine"]
            [[package]]
            name = "other"
            version = "0.1.0"
            dependencies = ["burn 0.21.0"]
            [[package]]
            name = "burn"
            version = "0.21.0"
            [[package]]
            name = "burn"
            version = "0.22.1"
            [[package]]
            name = "cubecl"
            version = "0.11.3"
        "#;
        let lock: CargoLock = toml::from_str(text).expect("it is TOML");
        let releases = |name: &str| lock.releases("mine", name).into_iter().collect::<Vec<_>>();
        assert_eq!(releases("burn"), ["0.22.1"]);
        assert_eq!(releases("cubecl"), ["0.11.3"]);
        assert!(releases("tch").is_empty());
    }
}
