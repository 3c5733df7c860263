//! `cargo xtask prose`: how plainly comments and documentation are written, by area.

mod blocks;
mod judge;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::limits::{Figure, Limits, exceeded, tighten};
use blocks::{Block, markdown, rust};
use judge::Counts;

/// Percent of documentation that may open with a vague word, of blocks that may personify, of sentences that may be long.
const GOALS: [usize; 3] = [5, 3, 5];

/// Counts of all areas, and each block that offends.
pub(crate) struct Prose {
    areas: BTreeMap<String, Counts>,
    offending: Vec<(usize, String)>,
}

impl Prose {
    /// Reads `files`, which lie below `root`.
    pub(crate) fn measure(root: &Path, files: &[String]) -> Result<Self> {
        let mut prose = Self { areas: BTreeMap::new(), offending: Vec::new() };
        for file in files {
            let Some((area, blocks)) = area(file) else { continue };
            for block in blocks(&fs::read_to_string(root.join(file))?) {
                prose.add(area, file, &block);
            }
        }
        prose.offending.sort_by_key(|(count, ..)| core::cmp::Reverse(*count));
        Ok(prose)
    }

    fn add(&mut self, area: &str, file: &str, block: &Block) {
        let counts = Counts::from_block(block);
        *self.areas.entry(area.to_owned()).or_default() += counts;
        if counts.offences() > 0 {
            self.offending.push((counts.offences(), format!("{file}:{}: {}", block.line, block.text)));
        }
    }

    /// Returns the table of all areas, and the `worst` blocks below it.
    pub(crate) fn table(&self, worst: usize) -> String {
        let mut total = Counts::default();
        let mut table = format!("{:18} {:>8} {:>9} {:>11} {:>7}\n", "area", "blocks", "openers", "personify", "long");
        let mut row = |name: &str, counts: &Counts| {
            let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
            table += &format!(
                "{name:18} {:8} {:8.1}% {:10.1}% {:6.1}%\n",
                counts.blocks,
                percent(counts.openers, counts.documentation),
                percent(counts.personify, counts.blocks),
                percent(counts.long, counts.sentences)
            );
        };
        for (name, counts) in &self.areas {
            row(name, counts);
            total += *counts;
        }
        row("total", &total);
        for (_, block) in self.offending.iter().take(worst) {
            table += &format!("  {block}\n");
        }
        table
    }

    fn figures(&self, present: fn(&Counts) -> (usize, usize), percent: usize) -> Vec<Figure> {
        let figure = |(name, counts): (&String, &Counts)| {
            let (present, of) = present(counts);
            Figure { name: name.clone(), present, goal: of * percent / 100 }
        };
        self.areas.iter().map(figure).collect()
    }

    /// Figures of openers, personification and long sentences.
    fn all_figures(&self) -> [Vec<Figure>; 3] {
        [
            self.figures(|counts| (counts.openers, counts.documentation), GOALS[0]),
            self.figures(|counts| (counts.personify, counts.blocks), GOALS[1]),
            self.figures(|counts| (counts.long, counts.sentences), GOALS[2]),
        ]
    }

    /// Returns a message for each figure above its limit.
    pub(crate) fn exceeded(&self, limits: &Limits) -> Vec<String> {
        let [openers, personify, long] = self.all_figures();
        let mut messages = exceeded("vague openings", &openers, limits.openers.as_ref());
        messages.extend(exceeded("blocks that personify code or data", &personify, limits.personify.as_ref()));
        messages.extend(exceeded("sentences over 30 words", &long, limits.long.as_ref()));
        messages
    }

    /// Lowers the limits to the present figures.
    pub(crate) fn tighten(&self, limits: &mut Limits) {
        let [openers, personify, long] = self.all_figures();
        tighten(&mut limits.openers, &openers);
        tighten(&mut limits.personify, &personify);
        tighten(&mut limits.long, &long);
    }
}

/// Reads the blocks of a text.
type ReadBlocks = fn(&str) -> Vec<Block>;

/// Returns the area of a file and the reader of its blocks; `None` for files without prose of ours.
fn area(file: &str) -> Option<(&str, ReadBlocks)> {
    let folder = file.split('/').next()?;
    let generated = file.contains("/results/") || file.contains("/snapshots/");
    match file.rsplit_once('.')? {
        _ if generated => None,
        (_, "rs") => Some((folder, rust)),
        ("README", "md") => Some(("README.md", markdown)),
        ("CHANGELOG", "md") => Some(("CHANGELOG.md", markdown)),
        (_, "md") => Some(("docs", markdown)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prose(files: &[(&str, &str)]) -> Prose {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let names: Vec<_> = files.iter().map(|(file, _)| (*file).to_owned()).collect();
        Prose::measure(folder.path(), &names).unwrap()
    }

    #[test]
    fn areas_are_folders_and_documents() {
        let found = prose(&[
            ("core/src/a.rs", "//! Bytes of a pool.\n"),
            ("core/tests/b.rs", "//! What a pool holds.\n"),
            ("docs/a.md", "A pool holds bytes.\n"),
            ("README.md", "Bytes of a pool.\n"),
            ("tests/hardware/results/a.md", "What it says here.\n"),
            ("core/Cargo.toml", "# What it says here.\n"),
        ]);
        let areas = found.areas.iter().map(|(name, counts)| (&**name, counts.openers, counts.personify));
        assert_eq!(areas.collect::<Vec<_>>(), [("README.md", 0, 0), ("core", 1, 1), ("docs", 0, 1)]);
        let table = found.table(1);
        assert!(table.contains("core                      2     50.0%"), "{table}");
        assert!(table.ends_with("  core/tests/b.rs:1: What a pool holds.\n"), "{table}");
    }

    #[test]
    fn a_figure_may_stay_and_may_not_rise() {
        let bad = "/// What it holds there.\nfn a() {}\n";
        let (before, after) = (prose(&[("core/a.rs", bad)]), prose(&[("core/a.rs", bad), ("core/b.rs", bad)]));
        let mut limits = Limits::default();
        before.tighten(&mut limits);
        assert_eq!(before.exceeded(&limits), [""; 0]);
        assert_eq!(
            after.exceeded(&limits),
            ["core: 2 vague openings, at most 1", "core: 2 blocks that personify code or data, at most 1"]
        );
    }
}
