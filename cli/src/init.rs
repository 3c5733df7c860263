//! `cargo gpu-tuned init`.

mod manifest;
mod setup;

use std::io::{self, BufRead, IsTerminal as _, Write};
use std::path::PathBuf;

use anstream::AutoStream;
use gpu_tuned_propose::{Edit, Import, ImportProposal, Proposal};
use serde::Serialize;

use crate::args::{Common, GpuNames, no_standard_stream};
use crate::error::Error;
use crate::files::{Change, colored, write_all};
use crate::output::{Answer, Code, FAINT, Form, print, styled};
use crate::project::Project;
use setup::{GpuHere, Setup};

/// Set up a package: dependencies, features, build script and gpu-tuned.toml, shown as a diff before they are written
///
/// The named GPUs become features. Without a name, these are the features that the package declares, else this machine's GPU,
/// `h200` and `rtx4090`. Formatting, comments and features are kept, and the build script gets one line where that is safe.
/// `gpu-tuned-build` comes from where `gpu-tuned` comes from: a folder, a repository, or the release. A package that is set up
/// is not changed. For structs that look like training configs, an annotation is shown; you apply it by hand. Imports of `burn::nn`
/// with faster modules in `gpu_tuned::nn` are listed and never edited: types in your signatures change with them.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("init/help.txt"))]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub targets: GpuNames,
    /// Write without asking
    #[arg(long, short, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Show the changes and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write in spite of a refusal: no Burn or another release, Burn for tests only, or no release of gpu-tuned
    #[arg(long)]
    pub force: bool,
    /// Depend on this checkout of gpu-tuned, in place of the release or another checkout; a relative path stays relative
    #[arg(long, value_name = "DIR", value_parser = no_standard_stream())]
    pub checkout: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    package: &'a str,
    /// True if `files` were written.
    written: bool,
    files: Vec<FileReport<'a>>,
    /// Annotation for the struct that looks most like a training config.
    proposal: Option<&'a Proposal>,
    /// Imports of modules with faster kernels.
    imports: Option<&'a ImportProposal>,
    by_hand: &'a [String],
    /// GPUs of this machine, first the one that the steps build for.
    gpus: &'a [GpuHere],
    /// Command that plans before the program is edited.
    now: Option<&'a str>,
    steps: &'a [String],
    /// Parts of a training program.
    found: &'a [String],
    not_found: &'a [&'static str],
}

#[derive(Serialize)]
struct FileReport<'a> {
    name: &'a str,
    is_new: bool,
    diff: String,
}

impl<'a> FileReport<'a> {
    fn new(change: &'a Change) -> Self {
        Self { name: &change.name, is_new: change.before.is_none(), diff: change.diff() }
    }
}

pub(crate) fn run(common: &Common, args: &InitArgs) -> Result<Answer, Error> {
    let project = Project::read_without_releases(common)?;
    let setup = Setup::new(&project, args)?;
    let diffs: String = setup.changes.iter().map(Change::diff).collect();
    let can_ask = !common.json && io::stdin().is_terminal() && io::stderr().is_terminal();
    let can_write = (args.yes || can_ask) && !args.dry_run && !setup.changes.is_empty();
    if can_write && setup.needs_release && !args.force {
        return Err(Error::Unreleased);
    }
    let shown = if common.json { String::new() } else { colored(&diffs) };
    let outcome = if setup.changes.is_empty() {
        Outcome::Nothing
    } else if args.dry_run {
        Outcome::Shown
    } else if args.yes {
        Outcome::Written
    } else if can_ask {
        let printed = print(&shown, Form::Text);
        let asked = printed.and_then(|_| ask(&setup, &mut io::stdin().lock(), &mut AutoStream::auto(io::stderr())));
        asked.map_err(Error::Print)?
    } else {
        Outcome::NotAsked
    };
    if outcome == Outcome::Written {
        write_all(&setup.changes)?;
    }
    let report = Report {
        package: project.name(),
        written: outcome == Outcome::Written,
        files: setup.changes.iter().map(FileReport::new).collect(),
        proposal: setup.proposal.as_ref(),
        imports: setup.imports.as_ref(),
        by_hand: &setup.by_hand,
        gpus: &setup.gpus,
        now: setup.now.as_deref(),
        steps: &setup.steps,
        found: &setup.parts,
        not_found: &setup.missing,
    };
    let text = || {
        let shown = if can_ask && !args.yes && !args.dry_run { String::new() } else { shown };
        format!("{shown}{}\n{}", outcome.describe(&project, &setup), remaining(&setup))
    };
    Ok(Answer::new(("init", common.json), &report, text, setup.notes.clone(), outcome.code()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Nothing,
    Shown,
    Written,
    Declined,
    NotAsked,
}

impl Outcome {
    const fn code(self) -> Code {
        match self {
            Self::Nothing | Self::Shown | Self::Written => Code::Ok,
            Self::Declined | Self::NotAsked => Code::No,
        }
    }

    fn describe(self, project: &Project, setup: &Setup) -> String {
        let files = names(setup);
        match self {
            Self::Nothing if setup.is_complete() => format!("nothing to do: `{}` is set up", project.name()),
            Self::Nothing => "nothing to write; left to do by hand:".to_owned(),
            Self::Shown => format!("dry run: {files} not written"),
            Self::Written => format!("written: {files}"),
            Self::Declined => "nothing was written".to_owned(),
            Self::NotAsked => "nothing was written: there is no terminal to ask on; write with --yes".to_owned(),
        }
    }
}

/// Asks for permission to write; an empty answer is no.
fn ask(setup: &Setup, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<Outcome> {
    write!(to, "Write {}? [y/N] ", names(setup))?;
    to.flush()?;
    let mut answer = Vec::new();
    from.read_until(b'\n', &mut answer)?;
    let is_yes = ["y", "yes"].contains(&String::from_utf8_lossy(&answer).trim().to_lowercase().as_str());
    Ok(if is_yes { Outcome::Written } else { Outcome::Declined })
}

fn names(setup: &Setup) -> String {
    setup.changes.iter().map(|change| change.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn remaining(setup: &Setup) -> String {
    let proposed = setup.proposal.iter().map(describe);
    let by_hand = setup.by_hand.iter().map(|line| format!("by hand: {line}\n"));
    let steps = setup.steps.iter().map(|step| format!("    {step}\n"));
    let now = setup.now.iter().map(|step| format!("\n{}\n    {step}\n", styled(FAINT, "now, before any edit:")));
    let whose = setup.gpus.first().map_or_else(String::new, |gpu| format!(", for this machine's {}", gpu.name));
    let then = if setup.is_complete() { "then" } else { "after these edits" };
    let then = std::iter::once(format!("\n{}\n", styled(FAINT, format!("{then}{whose}:"))));
    let parts = (!setup.parts.is_empty()).then(|| format!("\nfound: {}\n", setup.parts.join("; ")));
    let missing = (!setup.missing.is_empty()).then(|| format!("not found: {}\n", setup.missing.join("; ")));
    let imports = setup.imports.iter().map(describe_imports);
    let all = proposed.chain(by_hand).chain(imports).chain(now).chain(then).chain(steps);
    all.chain(parts).chain(missing).collect()
}

fn describe(proposal: &Proposal) -> String {
    let Proposal { file, line, name, fields, edits, lines, diff, help, .. } = proposal;
    let (fields, lines) = (fields.join(", "), counted(*lines));
    let heading =
        format!("\n{file}:{line}: `{name}` looks like a training config ({fields}); {lines} to edit by hand:\n");
    let edit = |Edit { file, line, what }: &Edit| ["  ", file, ":", &line.to_string(), ": ", what, "\n"].concat();
    let edits: String = edits.iter().map(edit).collect();
    let help: String = help.iter().flat_map(|line| ["  help: ", line, "\n"]).collect();
    format!("{heading}{}{edits}{help}", colored(diff))
}

fn describe_imports(ImportProposal { imports, gain }: &ImportProposal) -> String {
    let line =
        |Import { file, line, from, to }: &Import| format!("  {file}:{line}: import `{to}` in place of `{from}`\n");
    let lines: String = imports.iter().map(line).collect();
    format!(
        "\nfaster modules by NVIDIA's libraries: {gain}; to change by hand:\n{lines}  help: `measure` then compares both kernels on a \
         GPU, or set `kernels = \"library\"`; types in your signatures change with the import\n"
    )
}

fn counted(lines: usize) -> String {
    if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Setup, ask};

    #[test]
    fn only_yes_is_yes() {
        for (mut said, outcome) in [
            (&b"y\n"[..], Outcome::Written),
            (b"Yes\r\n", Outcome::Written),
            (b"\n", Outcome::Declined),
            (b"", Outcome::Declined),
            (b"n\n", Outcome::Declined),
            (b"yesterday\n", Outcome::Declined),
            // A terminal in Latin-1.
            (b"\xe9\n", Outcome::Declined),
            (b"y\xff\n", Outcome::Declined),
        ] {
            let mut asked = Vec::new();
            let answer = ask(&Setup::default(), &mut said, &mut asked).expect("memory can be read");
            assert_eq!(answer, outcome, "{said:?}");
            assert!(asked.ends_with(b"[y/N] "));
        }
    }
}
