//! `Cargo.lock`: the releases of a package's dependencies.

use std::collections::{BTreeMap, BTreeSet};

use gpu_tuned_core::source::{FileError, Source};
use serde::Deserialize;

use crate::conflict;

/// The content of a `Cargo.lock`.
#[derive(Clone, Debug, Deserialize)]
pub struct CargoLock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Clone, Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    /// Each `NAME`, `NAME VERSION` or `NAME VERSION (SOURCE)`.
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The advice for a file with conflict markers.
const REMEDY_OF_MERGE: &str =
    "keep either side whole (`git checkout --ours` or `--theirs` and the file): cargo adds what it lacks";

impl CargoLock {
    /// The file's name, at the root of a workspace.
    pub const NAME: &'static str = "Cargo.lock";

    /// The advice for a file that cannot be parsed.
    pub const REMEDY: &'static str = "put back the file that was committed, or delete it: cargo writes another";

    /// Parses the file's text; `None` if cargo would refuse it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(Source { file: Self::NAME, text }).ok()
    }

    /// Parses the file's text.
    ///
    /// # Errors
    ///
    /// When cargo would refuse the file: it has conflict markers, or is no lock of cargo's. The message includes the advice.
    pub fn read(source: Source<'_>) -> Result<Self, FileError> {
        if let Some(mistake) = conflict::marker(source, REMEDY_OF_MERGE) {
            return Err(mistake);
        }
        toml::from_str(source.text).map_err(|error| {
            let mut mistake = source.toml_error(&error);
            mistake.message = format!("{}; {}", mistake.message, Self::REMEDY);
            mistake
        })
    }

    /// Returns the releases of the crate `name` among the package's direct and indirect dependencies.
    pub fn releases(&self, package: &str, name: &str) -> BTreeSet<&str> {
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

    /// Returns the package's releases of `name`, joined by `and`, if `measured` is none of them.
    pub fn other_than(&self, measured: &str, package: &str, name: &str) -> Option<String> {
        let now = self.releases(package, name);
        let is_other = !now.is_empty() && !now.contains(measured);
        is_other.then(|| now.into_iter().collect::<Vec<_>>().join(" and "))
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
    use gpu_tuned_core::source::Source;

    #[test]
    fn only_dependencies_of_the_package_count() {
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
        let lock = CargoLock::parse(text).expect("it is TOML");
        let releases = |name: &str| lock.releases("mine", name).into_iter().collect::<Vec<_>>();
        assert_eq!(releases("burn"), ["0.22.1"]);
        assert_eq!(releases("cubecl"), ["0.11.3"]);
        assert!(releases("tch").is_empty());
        let other = |measured: &str, name: &str| lock.other_than(measured, "mine", name);
        assert_eq!(other("0.21.0", "burn").as_deref(), Some("0.22.1"));
        assert_eq!((other("0.22.1", "burn"), other("0.22.1", "tch")), (None, None));
    }

    #[test]
    fn a_file_that_cargo_refuses_is_an_error_with_its_place() {
        for (text, place, words) in [
            ("version = 4\n<<<<<<< HEAD\n[[package]]\n", "2:1", "a merge left both sides here: keep either side whole"),
            ("[[package]]\nname = \"burn\n", "2:13", "delete it: cargo writes another"),
            ("[[package]]\nname = \"burn\"\n", "1:1", "missing field `version`"),
        ] {
            let mistake = CargoLock::read(Source { file: "Cargo.lock", text }).expect_err(words).to_string();
            assert!(mistake.starts_with(&format!("Cargo.lock:{place}: ")) && mistake.contains(words), "{mistake}");
            assert!(CargoLock::parse(text).is_none());
        }
    }
}
