//! Checks of the other blocks of the book and of the README: every block is of a checked kind.

use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;

use crate::pages::{README, pages};

/// A fenced block of a page.
struct Block {
    page: String,
    line: usize,
    kind: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (page, text) in pages() {
        let mut is_open = false;
        for (index, line) in text.lines().enumerate() {
            match line.strip_prefix("```") {
                Some(_) if is_open => is_open = false,
                Some(kind) => {
                    is_open = true;
                    let kind = kind.trim().to_owned();
                    blocks.push(Block { page: page.clone(), line: index + 1, kind, text: String::new() });
                }
                None if is_open => blocks.last_mut().unwrap().text.extend([line, "\n"]),
                None => {}
            }
        }
        assert!(!is_open, "{page}: a block is not closed");
    }
    blocks
}

/// Checks that the block matches its first line or its page. A lock that begins with a table continues the block
/// `before`.
fn check(block: &Block, before: Option<&Block>) -> Result<(), String> {
    let before = before.filter(|before| before.page == block.page && block.text.starts_with("[workload."));
    let text = match before {
        Some(before) => before.text.replace(Lock::END, &block.text) + Lock::END,
        None => block.text.clone(),
    };
    let source = Source { file: &block.page, text: &text };
    let mistakes = |mistakes: Vec<_>| format!("{mistakes:?}");
    match (block.kind.as_str(), text.lines().next().unwrap_or_default()) {
        ("toml", "# Cargo.toml") => text.parse::<toml::Table>().map(|_| ()).map_err(|error| error.to_string()),
        ("toml", "# gpu-tuned.toml") => ConfigFile::parse(source).map(|_| ()).map_err(mistakes),
        ("toml", "format = 2") => Lock::parse(source).map(|_| ()).map_err(mistakes),
        ("toml", _) => Err("the first line does not say which file it is".to_owned()),
        ("json", _) => serde_json::from_str::<serde_json::Value>(&text).map(|_| ()).map_err(|e| e.to_string()),
        // Those are run, by the documentation tests and by the tests of the command line.
        ("rust" | "rust,no_run", _) if book_tests::PAGES.contains(&block.page.as_str()) => Ok(()),
        // Those of the README are run by CI. Others write files, and are examples of help texts.
        ("sh", command) if block.page == README || command.starts_with("cargo gpu-tuned ") => Ok(()),
        ("console", command) if command.starts_with("$ cargo gpu-tuned ") => Ok(()),
        // Code of other libraries, and output of other programs.
        ("python" | "yaml" | "text", _) => Ok(()),
        (kind, _) => Err(format!("nothing checks `{kind}` here")),
    }
}

#[test]
fn every_block_is_checked_by_something() {
    let blocks = blocks();
    assert!(blocks.len() > 15, "{} blocks", blocks.len());
    let wrong = blocks.iter().enumerate().filter_map(|(at, block)| {
        let before = blocks[..at].iter().rfind(|before| before.kind == block.kind);
        let mistake = check(block, before).err()?;
        Some(format!("{}:{}: {mistake}", block.page, block.line))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
