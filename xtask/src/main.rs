//! `cargo xtask generate` writes the generated files of this workspace; `--check` only compares.

#![forbid(unsafe_code)]

mod commands;
mod dimensions;
mod profiles;
mod proof;
mod replayed;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

/// Tasks of this workspace.
#[derive(Parser)]
enum Task {
    /// Write the generated files.
    Generate {
        /// Write nothing; fail if a file is not current.
        #[arg(long)]
        check: bool,
    },
}

/// A generated file: its path below the workspace, and what belongs in it.
type Generated = (&'static str, fn(&Path) -> Result<String>);

const FILES: &[Generated] = &[
    ("core/src/profile/builtin.rs", profiles::builtin),
    ("README.md", profiles::readme),
    ("docs/cli.md", commands::reference),
    ("docs/profiles.md", profiles::reference),
    ("macros/src/reference.md", dimensions::reference),
    ("tests/models/REPLAYED.md", replayed::report),
];

fn main() -> Result<()> {
    let Task::Generate { check } = Task::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("this package lies in the workspace")?;
    let mut stale = Vec::new();
    for (file, wanted) in generated(root)? {
        let path = root.join(&file);
        if fs::read_to_string(&path).is_ok_and(|present| present == wanted) {
            continue;
        }
        if check {
            stale.push(file);
        } else {
            replace(&path, &wanted)?;
            println!("wrote {file}");
        }
    }
    if !stale.is_empty() {
        bail!("not current: {}; run `cargo xtask generate`", stale.join(", "));
    }
    Ok(())
}

/// Every generated file by its path, and what belongs in it.
fn generated(root: &Path) -> Result<Vec<(String, String)>> {
    let mut files = proof::files(root)?;
    for (file, generate) in FILES {
        files.push(((*file).to_owned(), generate(root)?));
    }
    Ok(files)
}

/// Writes beside the file and renames, so that an interruption leaves the old file whole.
fn replace(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension("tmp");
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&temporary, text))
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}
