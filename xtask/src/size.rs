//! `cargo xtask size`: lines of crates, and of the whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

/// Most lines without tests.
const PRODUCT_LINES: usize = 95_000;

/// Lines of Rust in all files, and by crate without its tests.
pub(crate) struct Sizes {
    all: usize,
    crates: BTreeMap<String, usize>,
}

impl Sizes {
    /// Reads the Rust files of `files`, which lie below `root`.
    pub(crate) fn measure(root: &Path, files: &[String]) -> Result<Self> {
        let mut sizes = Self { all: 0, crates: BTreeMap::new() };
        for file in files.iter().filter(|file| Path::new(file).extension().is_some_and(|ending| ending == "rs")) {
            let text = fs::read_to_string(root.join(file))?;
            sizes.all += text.lines().count();
            if let Some(name) = crate_of(file) {
                *sizes.crates.entry(name).or_default() += without_tests(&text);
            }
        }
        Ok(sizes)
    }

    /// Returns the lines of each crate.
    pub(crate) fn table(&self) -> String {
        let mut table: String = self.crates.iter().map(|(name, lines)| format!("{name:24} {lines:6}\n")).collect();
        table += &format!("{:24} {:6}\n", "total without tests", self.product());
        table += &format!("{:24} {:6}\n", "total", self.all);
        table
    }

    fn product(&self) -> usize {
        self.crates.values().sum()
    }

    /// Checks the lines without tests. Files and crates have no limits.
    pub(crate) fn check(&self) -> Result<()> {
        let lines = self.product();
        ensure!(lines <= PRODUCT_LINES, "{lines} lines without tests, at most {PRODUCT_LINES}: delete before you add");
        Ok(())
    }
}

/// Returns the folder of the crate that a file belongs to; `None` for tests.
fn crate_of(file: &str) -> Option<String> {
    let (folder, rest) = file.split_once('/')?;
    let name = rest.rsplit('/').next()?;
    let is_test = folder == "tests" || rest.split('/').any(|part| part == "tests");
    if is_test || name == "tests.rs" || name.ends_with("_tests.rs") {
        return None;
    }
    let nested = (folder == "examples").then(|| rest.split('/').next()).flatten();
    Some(nested.map_or_else(|| folder.to_owned(), |package| format!("{folder}/{package}")))
}

/// Counts the lines up to a module of unit tests, which is the last item of a file.
fn without_tests(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let is_module = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(is_module).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_belong_to_no_crate() {
        let found = |file| crate_of(file);
        assert_eq!(found("core/src/plan/mod.rs").as_deref(), Some("core"));
        assert_eq!(found("examples/digits/src/main.rs").as_deref(), Some("examples/digits"));
        for file in ["tests/ui/src/lib.rs", "core/tests/it/main.rs", "core/src/plan/tests/a.rs", "core/src/tests.rs"] {
            assert_eq!(found(file), None, "{file}");
        }
    }

    #[test]
    fn unit_tests_at_the_end_of_a_file_are_left_out() {
        assert_eq!(without_tests("fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"), 2);
        assert_eq!(without_tests("#[cfg(test)]\nmod tests;\nfn a() {}\n"), 3);
    }

    #[test]
    fn only_the_whole_has_a_limit() {
        let sizes = |lines| Sizes { all: 200_000, crates: [("core".to_owned(), lines), ("cli".to_owned(), 0)].into() };
        assert!(sizes(95_000).check().is_ok());
        let error = sizes(95_001).check().unwrap_err().to_string();
        assert!(error.starts_with("95001 lines without tests, at most 95000"), "{error}");
    }
}
