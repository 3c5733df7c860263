//! Tasks of this workspace: generated files, contradictions in profiles, figures of prose and size.

#![forbid(unsafe_code)]

mod generated;
mod pictures;
mod profiles;
mod prose;
mod references;
mod size;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

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
        /// Fail if a figure is above its goal.
        #[arg(long)]
        check: bool,
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
    /// Show files and lines of crates without tests.
    Size {
        /// Fail if the sum is above its limit.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("this package lies in the workspace")?;
    match Task::parse() {
        Task::Generate { check } => {
            check_readme(root)?;
            generated::update(root, &files(root)?, check, "cargo xtask generate")
        }
        Task::Prose { check, worst } => {
            let prose = Prose::measure(root, &listed(root, &["--cached", "--others", "--exclude-standard"])?)?;
            print!("{}", prose.table(worst));
            if check { prose.check() } else { Ok(()) }
        }
        Task::Profiles { check } => {
            let profiles = profiles::files(root)?;
            let mistakes = profiles::mistakes(&profiles);
            println!("{} profiles, {} mistakes", profiles.len(), mistakes.len());
            for mistake in &mistakes {
                println!("{mistake}");
            }
            ensure!(!check || mistakes.is_empty(), "the figures in core/profiles contradict each other");
            Ok(())
        }
        Task::Size { check } => {
            let sizes = Sizes::measure(root, &listed(root, &[])?)?;
            print!("{}", sizes.table());
            if check { sizes.check() } else { Ok(()) }
        }
    }
}

/// Files that git lists and that exist.
fn listed(root: &Path, options: &[&str]) -> Result<Vec<String>> {
    let listed = Command::new("git").arg("ls-files").args(options).current_dir(root).output();
    let files = String::from_utf8(listed.context("cannot run git")?.stdout)?;
    Ok(files.lines().filter(|file| root.join(file).is_file()).map(str::to_owned).collect())
}

/// Every generated file: its path and text. `lab/pages` generates those that show figures of experiments.
fn files(root: &Path) -> Result<Vec<(String, String)>> {
    let files = [
        ("core/profiles/builtin.in", profiles::builtin(root)?),
        ("docs/pictures/init.svg", pictures::init(root)?),
        ("docs/pictures/monitor.svg", pictures::monitor(root)?),
        ("docs/cli.md", references::commands()),
        ("docs/profiles.md", profiles::reference()),
        ("macros/src/reference.md", references::reference()),
    ];
    Ok(files.map(|(file, text)| (file.to_owned(), text)).into())
}

/// Checks the number of GPUs and the names of commands in the README.
fn check_readme(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join("README.md")).context("cannot read README.md")?;
    let gpus = format!("[{} have a profile]", profiles::gpus().count());
    ensure!(text.contains(&gpus), "README.md has another number of GPUs: write {gpus}");
    let commands = cargo_gpu_tuned::command();
    let mut names = commands.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help");
    let missing = names.find(|name| !text.contains(&format!("`{name}`")));
    ensure!(missing.is_none(), "README.md does not name the command {}", missing.unwrap_or_default());
    Ok(())
}
