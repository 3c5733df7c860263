//! `cargo xtask size`: lines of files and crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::limits::{Figure, Limits, exceeded, tighten};

/// Lines of the largest file.
const FILE_LINES: usize = 300;
/// Lines of the largest crate, without its tests.
const CRATE_LINES: usize = 12_000;

/// Lines of Rust by file, and by crate without its tests.
pub(crate) struct Sizes {
    files: BTreeMap<String, usize>,
    crates: BTreeMap<String, usize>,
}

impl Sizes {
    /// Reads the Rust files of `files`, which lie below `root`.
    pub(crate) fn measure(root: &Path, files: &[String]) -> Result<Self> {
        let mut sizes = Self { files: BTreeMap::new(), crates: BTreeMap::new() };
        for file in files.iter().filter(|file| Path::new(file).extension().is_some_and(|ending| ending == "rs")) {
            let text = fs::read_to_string(root.join(file))?;
            sizes.files.insert(file.clone(), text.lines().count());
            if let Some(name) = crate_of(file) {
                *sizes.crates.entry(name).or_default() += without_tests(&text);
            }
        }
        Ok(sizes)
    }

    /// Returns the lines of each crate, and the files that are too large.
    pub(crate) fn table(&self) -> String {
        let mut table: String = self.crates.iter().map(|(name, lines)| format!("{name:24} {lines:6}\n")).collect();
        table += &format!("{:24} {:6}\n", "total without tests", self.crates.values().sum::<usize>());
        table += &format!("{:24} {:6}\n", "total", self.files.values().sum::<usize>());
        for (file, lines) in self.files.iter().filter(|(_, lines)| **lines > FILE_LINES) {
            table += &format!("  {file}: {lines}\n");
        }
        table
    }

    fn all_figures(&self) -> [Vec<Figure>; 2] {
        [(&self.files, FILE_LINES), (&self.crates, CRATE_LINES)].map(|(sizes, goal)| {
            sizes.iter().map(|(name, lines)| Figure { name: name.clone(), present: *lines, goal }).collect()
        })
    }

    /// Returns a message for each file and crate above its limit.
    pub(crate) fn exceeded(&self, limits: &Limits) -> Vec<String> {
        let [files, crates] = self.all_figures();
        let mut messages = exceeded("lines", &files, limits.files.as_ref());
        messages.extend(exceeded("lines without tests", &crates, limits.crates.as_ref()));
        messages
    }

    /// Lowers the limits to the present sizes.
    pub(crate) fn tighten(&self, limits: &mut Limits) {
        let [files, crates] = self.all_figures();
        tighten(&mut limits.files, &files);
        tighten(&mut limits.crates, &crates);
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
    fn large_files_and_crates_are_named() {
        let sizes = Sizes {
            files: [("core/src/a.rs".to_owned(), 301), ("core/src/b.rs".to_owned(), 300)].into(),
            crates: [("core".to_owned(), 12_001), ("cli".to_owned(), 12_000)].into(),
        };
        let expected = ["core/src/a.rs: 301 lines, at most 300", "core: 12001 lines without tests, at most 12000"];
        assert_eq!(sizes.exceeded(&Limits::default()), expected);
        let mut limits = Limits::default();
        sizes.tighten(&mut limits);
        assert_eq!(sizes.exceeded(&limits), [""; 0]);
    }
}
