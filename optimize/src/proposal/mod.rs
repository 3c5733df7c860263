//! Proposed annotations for structs that look like training configs, and other edits of the program.

mod annotation;
mod candidate;
mod code;
mod nested;
mod numbers;
mod optimizer;
mod program;
mod readiness;
mod sources;
mod training_loop;
mod words;

use std::path::Path;

use cargo_metadata::Package;
use serde::Serialize;

use annotation::{FieldNumbers, Given};
use candidate::Candidate;
use code::Code;
use numbers::Family;
use program::Program;
pub use sources::Edit;
use sources::{Patch, Source};
use training_loop::TrainingLoop;
pub use words::ModelWords;

/// An annotation for a struct with other edits, to be shown.
#[derive(Debug, Serialize)]
pub struct Proposal {
    /// File of the struct.
    pub file: String,
    /// Line of the struct.
    pub line: usize,
    /// Name of the struct.
    pub name: String,
    /// Fields that identify the struct.
    pub fields: Vec<String>,
    /// Keyword of the model.
    pub family: &'static str,
    /// Edits with their reasons.
    pub edits: Vec<Edit>,
    /// Number of new lines.
    pub lines: usize,
    /// Diff of all edits.
    pub diff: String,
    /// Hints for the user.
    pub help: Vec<String>,
}

/// Findings in the package's sources.
#[derive(Debug, Default)]
pub struct Found {
    /// The proposed annotation.
    pub proposal: Option<Proposal>,
    /// The model of a program without an annotated struct.
    pub model: Option<ModelWords>,
    /// True if the program has Burn's own loop.
    pub has_loop: bool,
    /// Changes of the program without a proposed edit.
    pub left: Vec<String>,
    /// Cargo's option for the program that trains: `--bin train`.
    pub flag: Option<String>,
    /// Feature of the program for the CPU.
    pub cpu: Option<String>,
    /// Remarks on sources and other candidates.
    pub notes: Vec<String>,
}

/// Searches the package's `src`. A package with an annotated struct gets no proposal.
///
/// `workspace` is the folder from which files are named, `krate` the name of the runtime in the package.
pub fn find(package: &Package, workspace: &Path, krate: &str, is_annotated: bool) -> Found {
    let (sources, notes) = sources::read(&package.manifest_path.as_std_path().with_file_name("src"), workspace);
    let loops = training_loop::all(&sources);
    let mut found = Found { has_loop: !loops.is_empty(), notes, ..Found::default() };
    let all = sources.iter().flat_map(|source| candidate::candidates(&source.file.items).map(move |it| (source, it)));
    let mut all: Vec<(&Source, Candidate<'_>)> = all.collect();
    let is_taken = |candidate: &Candidate<'_>| loops.iter().any(|training| training.takes(candidate));
    // The first of the best candidates.
    all.sort_by_key(|(_, candidate)| std::cmp::Reverse((is_taken(candidate), candidate.score)));
    let mut all = all.into_iter();
    let best = all.next();
    let training = best.as_ref().and_then(|(source, best)| of_config(&loops, source, best)).or(loops.first());
    let program = training.and_then(|training| program::find(package, workspace, training));
    if let Some(program) = &program {
        (found.flag, found.cpu) = (program.flag.clone(), program.cpu.clone());
    }
    if is_annotated {
        return found;
    }
    let hints = ModelHints { sources: &sources, training, program: program.as_ref() };
    found.model = Some(hints.model(&FieldNumbers::default()));
    if let Some((source, best)) = best {
        let (proposal, numbers, left) = hints.proposal(source, &best, krate);
        found.model = Some(hints.model(&numbers));
        (found.proposal, found.left) = (Some(proposal), left);
        found.notes.extend(others(&loops, training));
    }
    let other = |(source, other): (&Source, Candidate<'_>)| {
        format!("{}:{}: `{}` also looks like a training config", source.name, other.line(), other.item.ident)
    };
    found.notes.extend(all.map(other));
    found
}

/// The loop of a config, preferably in the same file.
fn of_config<'l, 's>(
    loops: &'l [TrainingLoop<'s>],
    source: &Source,
    candidate: &Candidate<'_>,
) -> Option<&'l TrainingLoop<'s>> {
    let taking = || loops.iter().filter(|training| training.takes(candidate));
    taking().find(|training| training.source.name == source.name).or_else(|| taking().next())
}

/// Notes on loops without a proposal.
fn others(loops: &[TrainingLoop<'_>], taken: Option<&TrainingLoop<'_>>) -> Vec<String> {
    let place = |training: &TrainingLoop<'_>| (training.source.name.clone(), training.line());
    let others = loops.iter().filter(|training| Some(place(training)) != taken.map(place));
    others
        .map(|other| {
            let (file, line) = place(other);
            format!("{file}:{line}: `{}` has a training loop, too, which needs the same lines", other.name())
        })
        .collect()
}

struct ModelHints<'a> {
    sources: &'a [Source],
    training: Option<&'a TrainingLoop<'a>>,
    program: Option<&'a Program>,
}

impl<'a> ModelHints<'a> {
    /// Code of the whole program, and of the binary that trains.
    fn code(&self) -> [Code; 2] {
        let chosen = self.program.map(|program| &program.source);
        [Code::new(self.sources.iter().chain(chosen)), Code::new(chosen.into_iter())]
    }

    fn model(&self, numbers: &FieldNumbers) -> ModelWords {
        let [code, chosen] = self.code();
        ModelWords::new(&Family::new(self.sources), (&code, &chosen), &numbers.dims, numbers.global_batch)
    }

    /// The proposal, the numbers of its fields, and changes without a proposed edit.
    fn proposal(
        &self,
        source: &'a Source,
        candidate: &Candidate<'_>,
        krate: &str,
    ) -> (Proposal, FieldNumbers, Vec<String>) {
        let chosen = self.program.map(|program| &program.source);
        let family = Family::new(self.sources);
        let [code, chosen_code] = self.code();
        let holds_step = self.training.is_some();
        let given =
            Given { sources: self.sources, family: &family, code: &code, chosen: &chosen_code, krate, holds_step };
        let mut patch = Patch::default();
        let (mut help, numbers) = annotation::annotate(source, candidate, &given, &mut patch);
        help.extend(without_default(self.sources, candidate));
        let mut left = Vec::new();
        if let Some(training) = self.training {
            left = training.edit(candidate, krate, &mut patch);
            training_loop::derive_micro_batch(self.sources, krate, &mut patch);
            if let Some(source) = chosen {
                program::edit(source, krate, &mut patch);
            }
        }
        let (edits, diff, lines) = patch.finish();
        let proposal = Proposal {
            file: source.name.clone(),
            line: candidate.line(),
            name: candidate.item.ident.to_string(),
            fields: candidate.known.clone(),
            family: family.kind.name,
            edits,
            lines,
            diff,
            help,
        };
        (proposal, numbers, left)
    }
}

/// A note on a struct with `Default`, which the annotation implements.
fn without_default(sources: &[Source], candidate: &Candidate<'_>) -> Option<String> {
    let name = &candidate.item.ident;
    if candidate.is_burn() {
        return None;
    }
    if candidate.derives_default() {
        return Some("remove `Default` from the derive: the annotation implements it".to_owned());
    }
    let own = |source: &Source| Some((source.name.clone(), candidate::default_of(name, &source.file.items)?));
    let (file, line) = sources.iter().find_map(own)?;
    Some(format!(
        "{file}:{line}: remove this `impl Default`, the annotation implements it; values that are not planned become \
         `#[tuned(default = …)]`"
    ))
}
