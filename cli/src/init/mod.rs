//! `cargo gpu-tuned init`.

pub(crate) mod change;
mod manifest;
mod proposal;
mod script;
mod setup;
mod text;
pub(crate) mod write;

use std::io::{self, BufRead, IsTerminal as _, Write};

use anstream::AutoStream;
use serde::Serialize;

use crate::args::{Common, InitArgs};
use crate::error::Error;
use crate::project::Project;
use crate::table::{FAINT, styled};
use crate::{Answer, Code};
use change::{Change, coloured};
use proposal::{Edit, Proposal};
use setup::Setup;
pub(crate) use write::replace;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    package: &'a str,
    /// Whether the files are as `files` has them by now.
    written: bool,
    files: Vec<FileReport<'a>>,
    /// The struct that looks most like a training config, and how it could be annotated.
    proposal: Option<&'a Proposal>,
    /// What has to be done by hand.
    by_hand: &'a [String],
    /// Commands, in their order.
    steps: &'a [String],
    notes: &'a [String],
}

#[derive(Serialize)]
struct FileReport<'a> {
    name: &'a str,
    is_new: bool,
    diff: String,
}

/// Sets the package up.
pub(crate) fn run(common: &Common, args: &InitArgs) -> Result<Answer, Error> {
    let project = Project::read_without_releases(common)?;
    let setup = Setup::of(&project, args)?;
    let diffs: String = setup.changes.iter().map(Change::diff).collect();
    let can_ask = !common.json && io::stdin().is_terminal() && io::stderr().is_terminal();
    let shown = if common.json { String::new() } else { coloured(&diffs) };
    let outcome = if setup.changes.is_empty() {
        Outcome::Nothing
    } else if args.dry_run {
        Outcome::Shown
    } else if args.yes {
        Outcome::Written
    } else if can_ask {
        AutoStream::auto(io::stdout()).write_all(shown.as_bytes())?;
        ask(&setup, &mut io::stdin().lock(), &mut AutoStream::auto(io::stderr()))?
    } else {
        Outcome::NotAsked
    };
    if outcome == Outcome::Written {
        write::all(&setup.changes)?;
    }
    let text = if common.json {
        json(&project, &setup, outcome)
    } else {
        let shown = if can_ask && !args.yes && !args.dry_run { String::new() } else { shown };
        format!("{shown}{}\n{}", outcome.in_words(&project, &setup), remaining(&setup))
    };
    let notes = if common.json { Vec::new() } else { setup.notes };
    Ok(Answer { text, notes, code: outcome.code() })
}

/// What became of the changes.
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
            Self::Nothing | Self::Shown | Self::Written => Code::Fine,
            Self::Declined | Self::NotAsked => Code::No,
        }
    }

    fn in_words(self, project: &Project, setup: &Setup) -> String {
        let files = names(setup);
        match self {
            Self::Nothing if setup.is_complete() => format!("nothing to do: `{}` is set up", project.name()),
            Self::Nothing => "nothing to write; left to do by hand:".to_owned(),
            Self::Shown => format!("nothing was written: that is what would become of {files}"),
            Self::Written => format!("written: {files}"),
            Self::Declined => "nothing was written".to_owned(),
            Self::NotAsked => "nothing was written: there is no terminal to ask on; write with --yes".to_owned(),
        }
    }
}

/// Asks whether to write. Silence is no.
fn ask(setup: &Setup, from: &mut impl BufRead, to: &mut impl Write) -> Result<Outcome, Error> {
    write!(to, "Write {}? [y/N] ", names(setup))?;
    to.flush()?;
    let mut said = String::new();
    from.read_line(&mut said)?;
    let is_yes = ["y", "yes"].contains(&said.trim().to_lowercase().as_str());
    Ok(if is_yes { Outcome::Written } else { Outcome::Declined })
}

fn names(setup: &Setup) -> String {
    setup.changes.iter().map(|change| change.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// What is left for the user to do.
fn remaining(setup: &Setup) -> String {
    let proposed = setup.proposal.iter().map(in_words);
    let by_hand = setup.by_hand.iter().map(|line| format!("by hand: {line}\n"));
    let steps = setup.steps.iter().map(|step| format!("    {step}\n"));
    let then = std::iter::once(format!("\n{}\n", styled(FAINT, "then:")));
    proposed.chain(by_hand).chain(then).chain(steps).collect()
}

/// The annotation, to be made by hand.
fn in_words(proposal: &Proposal) -> String {
    let Proposal { file, line, name, fields, edits, lines, diff, help, .. } = proposal;
    let (fields, lines) = (fields.join(", "), counted(*lines));
    let said = format!("\n{file}:{line}: `{name}` looks like a training config ({fields}); {lines} to edit by hand:\n");
    let edit = |Edit { file, line, what }: &Edit| ["  ", file, ":", &line.to_string(), ": ", what, "\n"].concat();
    let edits: String = edits.iter().map(edit).collect();
    let help: String = help.iter().flat_map(|line| ["  help: ", line, "\n"]).collect();
    format!("{said}{}{edits}{help}", coloured(diff))
}

fn counted(lines: usize) -> String {
    if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") }
}

fn json(project: &Project, setup: &Setup, outcome: Outcome) -> String {
    let file = |change: &'_ Change| (change.before.is_none(), change.diff());
    let files = setup.changes.iter().map(|change| {
        let (is_new, diff) = file(change);
        FileReport { name: &change.name, is_new, diff }
    });
    let report = Report {
        package: project.name(),
        written: outcome == Outcome::Written,
        files: files.collect(),
        proposal: setup.proposal.as_ref(),
        by_hand: &setup.by_hand,
        steps: &setup.steps,
        notes: &setup.notes,
    };
    format!("{}\n", serde_json::to_string_pretty(&report).expect("BUG: a report is always JSON"))
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Setup, ask};

    #[test]
    fn only_yes_is_yes() {
        for (said, outcome) in [
            ("y\n", Outcome::Written),
            ("Yes\r\n", Outcome::Written),
            ("\n", Outcome::Declined),
            ("", Outcome::Declined),
            ("n\n", Outcome::Declined),
            ("yesterday\n", Outcome::Declined),
        ] {
            let mut asked = Vec::new();
            let answer = ask(&Setup::default(), &mut said.as_bytes(), &mut asked).expect("memory can be read");
            assert_eq!(answer, outcome, "{said:?}");
            assert!(asked.ends_with(b"[y/N] "));
        }
    }
}
