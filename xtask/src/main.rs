//! Tasks of this workspace: generated files, figures of prose and size.

#![forbid(unsafe_code)]

mod figures;
mod identities;
mod limits;
mod markdown;
mod pictures;
mod profiles;
mod proof;
mod prose;
mod readme;
mod references;
mod results;
mod scale;
mod size;
mod speed;
mod transfer;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use gpu_tuned_core::atomic_file;

use limits::Limits;
use prose::Prose;
use size::Sizes;

/// Tasks of this workspace.
#[derive(Parser)]
enum Task {
    /// Write the generated files.
    Generate {
        /// Write nothing; fail if a file is not current.
        #[arg(long)]
        check: bool,
    },
    /// Show how plainly comments and documents are written.
    Prose {
        /// Fail if a figure is above its limit.
        #[arg(long, conflicts_with = "tighten")]
        check: bool,
        /// Lower the limits to the present figures.
        #[arg(long)]
        tighten: bool,
        /// Show the N blocks that break the most rules.
        #[arg(long, value_name = "N", default_value_t = 0)]
        worst: usize,
    },
    /// Show contradictions between the figures of profiles.
    Profiles {
        /// Fail if there is one.
        #[arg(long)]
        check: bool,
    },
    /// Show the lines of crates.
    Size {
        /// Fail if the product is above its limit.
        #[arg(long)]
        check: bool,
    },
}

/// A generated file: its path below the workspace, and its generator.
type Generated = (&'static str, fn(&Path) -> Result<String>);

const FILES: &[Generated] = &[
    ("core/profiles/builtin.in", profiles::builtin),
    ("README.md", readme::page),
    ("docs/pictures/init.svg", pictures::init),
    ("docs/pictures/monitor.svg", pictures::monitor),
    ("docs/cli.md", |_| Ok(references::commands())),
    ("docs/profiles.md", |_| Ok(profiles::reference())),
    ("docs/scale.md", scale::page),
    ("docs/speed.md", speed::page),
    ("docs/transfer.md", transfer::page),
    ("macros/src/reference.md", |_| Ok(references::reference())),
];

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("this package lies in the workspace")?;
    match Task::parse() {
        Task::Generate { check } => generate(root, check),
        Task::Prose { check, tighten, worst } => {
            let prose = Prose::measure(root, &sources(root)?)?;
            print!("{}", prose.table(worst));
            hold(root, check, tighten, |limits| prose.exceeded(limits), |limits| prose.tighten(limits))
        }
        Task::Profiles { check } => {
            let profiles = profiles::files(root)?;
            let mistakes = identities::mistakes(&profiles);
            println!("{} profiles, {} mistakes", profiles.len(), mistakes.len());
            for mistake in &mistakes {
                println!("{mistake}");
            }
            ensure!(!check || mistakes.is_empty(), "the figures in core/profiles contradict each other");
            Ok(())
        }
        Task::Size { check } => {
            let sizes = Sizes::measure(root, &sources(root)?)?;
            print!("{}", sizes.table());
            if check { sizes.check() } else { Ok(()) }
        }
    }
}

/// Compares figures with their limits, or lowers the limits.
fn hold(
    root: &Path,
    check: bool,
    tighten: bool,
    exceeded: impl Fn(&Limits) -> Vec<String>,
    lower: impl Fn(&mut Limits),
) -> Result<()> {
    let mut limits = Limits::load(root)?;
    if tighten {
        lower(&mut limits);
        limits.save(root)?;
    }
    let messages = exceeded(&limits);
    if check && !messages.is_empty() {
        bail!("above the limits in {}:\n{}", limits::FILE, messages.join("\n"));
    }
    Ok(())
}

/// Files of the workspace that are committed or about to be.
fn sources(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    let files = String::from_utf8(listed.stdout)?;
    Ok(files.lines().filter(|file| root.join(file).is_file()).map(str::to_owned).collect())
}

/// Writes the generated files, or compares them.
fn generate(root: &Path, check: bool) -> Result<()> {
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

/// Every generated file: its path and content.
fn generated(root: &Path) -> Result<Vec<(String, String)>> {
    let mut files = proof::files(root)?;
    for (file, generate) in FILES {
        files.push(((*file).to_owned(), generate(root)?));
    }
    Ok(files)
}

/// Writes a file completely or not at all, and creates its folder.
fn replace(path: &Path, text: &str) -> Result<()> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| atomic_file::replace(path, text));
    written.with_context(|| format!("cannot write {}", path.display()))
}
