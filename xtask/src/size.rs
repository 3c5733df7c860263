//! `cargo xtask size`: files and lines of crates without tests, and the limit of their sum.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

/// Most lines without tests.
const PRODUCT_LINES: usize = 100_930;

/// Files and lines without tests, by folder of the workspace.
pub(crate) struct Sizes(BTreeMap<String, Size>);

#[derive(Clone, Copy, Default)]
struct Size {
    files: usize,
    lines: usize,
}

impl Sizes {
    /// Reads the committed `files`, which lie below `root`.
    pub(crate) fn measure(root: &Path, files: &[String]) -> Result<Self> {
        let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
        for file in files.iter().filter(|file| is_product(file)) {
            let text = fs::read_to_string(root.join(file))?;
            let folder = file.split('/').next().unwrap_or_default();
            let size = sizes.entry(folder.to_owned()).or_default();
            size.files += 1;
            size.lines += text.matches('\n').count();
        }
        Ok(Self(sizes))
    }

    /// Returns the files, lines, and lines a file of each crate.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("{:14} {:>6} {:>7} {:>12}\n", "crate", "files", "lines", "lines a file");
        let rows = self.0.iter().map(|(name, size)| (name.as_str(), *size));
        for (name, Size { files, lines }) in rows.chain([("total", self.total())]) {
            table += &format!("{name:14} {files:6} {lines:7} {:12}\n", lines / files.max(1));
        }
        table
    }

    fn total(&self) -> Size {
        let add = |sum: Size, size: &Size| Size { files: sum.files + size.files, lines: sum.lines + size.lines };
        self.0.values().fold(Size::default(), add)
    }

    /// Checks the sum. Files and crates have no limits.
    pub(crate) fn check(&self) -> Result<()> {
        let lines = self.total().lines;
        ensure!(lines <= PRODUCT_LINES, "{lines} lines without tests, at most {PRODUCT_LINES}: delete before you add");
        Ok(())
    }
}

/// Returns true for Rust files of the product. Tests, examples, fuzz targets and `lab` are left out:
///
/// `git ls-files '*.rs' | grep -vE '(^|/)tests?(/|\.rs)|_tests?\.rs|^tests/|^examples/|^lab/|^fuzz/'`
fn is_product(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    let Some(name) = parts.next().and_then(|name| name.strip_suffix(".rs")) else { return false };
    let is_test_name = ["test", "tests"].contains(&name) || name.ends_with("_test") || name.ends_with("_tests");
    let is_in_tests = parts.any(|folder| ["test", "tests"].contains(&folder));
    let is_apart = ["examples/", "lab/", "fuzz/"].iter().any(|folder| file.starts_with(folder));
    !(is_test_name || is_in_tests || is_apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_experiments_are_not_counted() {
        for file in ["core/src/plan/mod.rs", "runtime/examples/hello.rs", "core/build.rs", "core/src/latest.rs"] {
            assert!(is_product(file), "{file}");
        }
        for file in [
            "tests/ui/src/lib.rs",
            "core/tests/it/main.rs",
            "core/src/plan/tests/a.rs",
            "core/src/tests.rs",
            "core/src/plan_tests.rs",
            "examples/digits/src/main.rs",
            "lab/pages/src/main.rs",
            "fuzz/targets/lock.rs",
            "core/Cargo.toml",
        ] {
            assert!(!is_product(file), "{file}");
        }
    }

    #[test]
    fn only_the_sum_has_a_limit() {
        let sizes = |lines| {
            let size = |lines| Size { files: 1, lines };
            Sizes([("core".to_owned(), size(lines)), ("cli".to_owned(), size(0))].into())
        };
        assert!(sizes(PRODUCT_LINES).check().is_ok());
        let error = sizes(PRODUCT_LINES + 1).check().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{} lines without tests, at most", PRODUCT_LINES + 1)), "{error}");
    }
}
