//! `cargo xtask prose`: how plainly comments and documentation are written, by area.

use std::collections::BTreeMap;
use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use anyhow::{Result, ensure};

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

    /// Checks that every area meets the goals.
    pub(crate) fn check(&self) -> Result<()> {
        let mut messages = Vec::new();
        for (name, counts) in &self.areas {
            let figures = [
                (counts.openers, counts.documentation, "vague openings"),
                (counts.personify, counts.blocks, "blocks that personify code or data"),
                (counts.long, counts.sentences, "sentences over 30 words"),
            ];
            for ((present, of, offence), percent) in figures.into_iter().zip(GOALS) {
                let goal = of * percent / 100;
                if present > goal {
                    messages.push(format!("{name}: {present} {offence}, at most {goal}"));
                }
            }
        }
        ensure!(messages.is_empty(), "above the goals of prose; `--worst 20` shows blocks:\n{}", messages.join("\n"));
        Ok(())
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

/// A comment or a paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    /// Line of the file on which the block begins, from 1.
    line: usize,
    /// Documentation, not a comment between statements.
    is_documentation: bool,
    /// Text as it was written, on one line.
    text: String,
}

/// Collects lines into blocks and leaves out code and tables.
#[derive(Default)]
struct Collector {
    blocks: Vec<Block>,
    is_open: bool,
    is_code: bool,
}

impl Collector {
    fn add(&mut self, line: usize, is_documentation: bool, text: &str) {
        let text = text.trim();
        if text.starts_with("```") {
            self.is_code = !self.is_code;
            return self.close();
        }
        if self.is_code {
            return;
        }
        if text.is_empty() || text.starts_with(['|', '#', '<']) {
            return self.close();
        }
        let (is_item, text) = without_bullet(text);
        match self.blocks.last_mut() {
            Some(block) if self.is_open && !is_item && block.is_documentation == is_documentation => {
                block.text.push(' ');
                block.text.push_str(text);
            }
            _ => self.blocks.push(Block { line, is_documentation, text: text.to_owned() }),
        }
        self.is_open = true;
    }

    fn close(&mut self) {
        self.is_open = false;
    }
}

/// Removes the bullet or the number of a list's item.
fn without_bullet(text: &str) -> (bool, &str) {
    let digits = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number = if digits.len() < text.len() { digits.strip_prefix(". ") } else { None };
    let bullet = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
    bullet.or(number).map_or((false, text), |rest| (true, rest))
}

/// Returns the comments of a Rust file.
fn rust(source: &str) -> Vec<Block> {
    let mut collector = Collector::default();
    for (line, text) in (1..).zip(source.lines()) {
        let text = text.trim_start();
        let documentation = text.strip_prefix("///").filter(|rest| !rest.starts_with('/'));
        if let Some(text) = documentation.or_else(|| text.strip_prefix("//!")) {
            collector.add(line, true, text);
        } else if let Some(text) = text.strip_prefix("//") {
            collector.add(line, false, text);
        } else {
            collector.close();
            collector.is_code = false;
        }
    }
    collector.blocks
}

/// Returns the paragraphs and the items of lists of a Markdown file.
fn markdown(source: &str) -> Vec<Block> {
    let mut collector = Collector::default();
    for (line, text) in (1..).zip(source.lines()) {
        // Code that is indented in place of being fenced.
        if text.starts_with("    ") && !collector.is_open {
            continue;
        }
        collector.add(line, true, text);
    }
    collector.blocks
}

/// First words of documentation that announce a subject without naming it.
const VAGUE: [&str; 19] = [
    "what", "whether", "how", "where", "which", "whose", "who", "of", "so", "that", "those", "these", "it", "its",
    "one", "such", "thus", "beside", "between",
];
/// Verbs of people that comments use for code and data.
const PERSONAL: [&str; 18] = [
    "tell", "tells", "told", "telling", "say", "says", "said", "know", "knows", "known", "knew", "hold", "holds",
    "held", "stand", "stands", "stood", "speaks",
];
/// Words of the longest sentence that is read once.
const LONGEST: usize = 30;

/// Numbers of blocks and sentences, and of those that offend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Blocks of documentation, and those that open with a vague word.
    documentation: usize,
    openers: usize,
    /// All blocks, and those that personify code or data.
    blocks: usize,
    personify: usize,
    /// Sentences, and those of more than 30 words.
    sentences: usize,
    long: usize,
}

impl Counts {
    /// Returns the counts of one block. Fewer than three words are no sentence and count for nothing.
    fn from_block(block: &Block) -> Self {
        let text = plain(&block.text);
        let words: Vec<String> = text.split_whitespace().map(bare).collect();
        if words.len() < 3 {
            return Self::default();
        }
        let sentences: Vec<usize> = sentences(&text).into_iter().filter(|words| *words > 2).collect();
        Self {
            documentation: block.is_documentation.into(),
            openers: (block.is_documentation && VAGUE.contains(&&*words[0])).into(),
            blocks: 1,
            personify: words.iter().any(|word| PERSONAL.contains(&&**word)).into(),
            sentences: sentences.len(),
            long: sentences.iter().filter(|words| **words > LONGEST).count(),
        }
    }

    /// Offences of all three kinds.
    fn offences(&self) -> usize {
        self.openers + self.personify + self.long
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.documentation += other.documentation;
        self.openers += other.openers;
        self.blocks += other.blocks;
        self.personify += other.personify;
        self.sentences += other.sentences;
        self.long += other.long;
    }
}

/// Replaces code by one word, and links by their text.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        plain.push_str(if index % 2 == 1 { "code" } else { part });
    }
    let mut text = String::new();
    let mut rest = plain.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace(['[', ']', '*', '_', '>'], " ")
}

/// The word in lower case, without punctuation.
fn bare(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

/// Numbers of words of the sentences: a sentence ends before a word with a capital letter.
fn sentences(text: &str) -> Vec<usize> {
    let mut lengths = vec![0];
    let mut is_ended = false;
    for word in text.split_whitespace() {
        if is_ended && word.starts_with(char::is_uppercase) {
            lengths.push(0);
        }
        if let Some(length) = lengths.last_mut() {
            *length += 1;
        }
        is_ended = word.trim_end_matches(['"', ')', '\'']).ends_with(['.', '!', '?']);
    }
    lengths
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
    fn an_area_above_its_goal_fails() {
        let good = "/// Bytes of a pool.\nfn a() {}\n".repeat(19);
        assert!(prose(&[("core/a.rs", &good), ("core/b.rs", "/// What the pool has.\n")]).check().is_ok());
        let bad = "/// What it holds there.\n";
        let error = prose(&[("core/a.rs", &good), ("core/b.rs", bad)]).check().unwrap_err().to_string();
        assert!(error.ends_with(":\ncore: 1 blocks that personify code or data, at most 0"), "{error}");
    }

    fn texts(blocks: &[Block]) -> Vec<(usize, bool, &str)> {
        blocks.iter().map(|block| (block.line, block.is_documentation, &*block.text)).collect()
    }

    #[test]
    fn comments_are_blocks_and_code_is_none() {
        let source = "//! A file.\n//!\n//! ```\n//! let x = 1;\n//! ```\n//! Its end.\n\nfn f() {\n    // Two\n    // lines.\n    g(); // not this\n}\n/// | a | b |\n/// A table is none.\n";
        assert_eq!(
            texts(&rust(source)),
            [(1, true, "A file."), (6, true, "Its end."), (9, false, "Two lines."), (14, true, "A table is none.")]
        );
    }

    #[test]
    fn items_of_lists_are_blocks_of_their_own() {
        let text = "# Title\n\nFirst paragraph\ngoes on.\n\n- one\n  and more\n- two\n1. three\n\n    cargo build\n\n```console\n$ ls\n```\nLast.\n";
        let found = markdown(text);
        let expected = [(3, "First paragraph goes on."), (6, "one and more"), (8, "two"), (9, "three"), (16, "Last.")];
        assert_eq!(texts(&found), expected.map(|(line, text)| (line, true, text)));
    }

    fn counts(text: &str) -> Counts {
        Counts::from_block(&Block { line: 1, is_documentation: true, text: text.to_owned() })
    }

    #[test]
    fn vague_openings_are_counted_in_documentation_only() {
        assert_eq!(counts("What the pool has reserved.").openers, 1);
        assert_eq!(counts("Bytes that the pool has reserved, of all.").openers, 0);
        let comment = Block { line: 1, is_documentation: false, text: "What it was before.".to_owned() };
        assert_eq!((Counts::from_block(&comment).openers, Counts::from_block(&comment).blocks), (0, 1));
    }

    #[test]
    fn personal_verbs_are_counted_once_a_block_and_never_in_code() {
        assert_eq!(counts("The lock knows and says it.").personify, 1);
        assert_eq!(counts("A call of `told` returns the *report*.").personify, 0);
        assert_eq!(counts("See [the holder](https://example.com/what/it/says) of bytes.").personify, 0);
    }

    #[test]
    fn a_sentence_is_long_from_31_words_on() {
        let of = |words: usize| counts(&format!("{}.", vec!["word"; words].join(" ")));
        assert_eq!((of(30).long, of(31).long, of(31).sentences), (0, 1, 1));
        let two = format!("{0}. A{0}.", " word".repeat(20));
        assert_eq!((counts(&two).sentences, counts(&two).long), (2, 0));
    }

    #[test]
    fn two_words_are_no_sentence() {
        assert_eq!(counts("It holds."), Counts::default());
    }
}
