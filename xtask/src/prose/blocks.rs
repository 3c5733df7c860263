//! Blocks of prose in Rust comments and in Markdown.

/// A comment or a paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Line of the file on which the block begins, from 1.
    pub(super) line: usize,
    /// Documentation, not a comment between statements.
    pub(super) is_documentation: bool,
    /// Text as it was written, on one line.
    pub(super) text: String,
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
pub(super) fn rust(source: &str) -> Vec<Block> {
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
pub(super) fn markdown(source: &str) -> Vec<Block> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
