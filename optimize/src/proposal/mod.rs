//! Proposed annotations for structs that look like training configs, and other edits of the program.

mod annotation;
mod candidate;
mod code;
mod constructor;
mod defaults;
mod device;
mod failure;
mod micro_batch;
mod nested;
mod not_found;
mod numbers;
mod optimizer;
mod program;
mod readiness;
pub mod release;
mod sources;
mod training_loop;
mod values;
mod words;

use std::path::Path;
use std::rc::Rc;

use cargo_metadata::Package;
use serde::Serialize;

use annotation::{FieldNumbers, Given};
use candidate::Candidate;
use code::Code;
use numbers::Family;
use program::{Program, Programs};
pub use sources::Edit;
use sources::{Patch, Source};
use training_loop::TrainingLoop;
use values::Values;
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
    /// Cargo's options for the package's programs, such as `--bin train`.
    pub programs: Vec<String>,
    /// Cargo's option for the program that trains; `None` if `cargo run` takes it, or if it is unknown.
    pub flag: Option<String>,
    /// True if the program that trains is known.
    pub has_program: bool,
    /// Feature of the program for the CPU.
    pub cpu: Option<String>,
    /// Remarks on sources and other candidates.
    pub notes: Vec<String>,
    /// Parts of a training program that were found, with their places.
    pub parts: Vec<String>,
    /// Parts of a training program that were not found.
    pub missing: Vec<&'static str>,
}

/// The sources of a package's targets, and of its path dependencies.
pub struct Reading {
    sources: Vec<Source>,
    notes: Vec<String>,
}

impl Reading {
    /// Reads the sources. `workspace` is the folder from which files are named.
    pub fn read(package: &Package, workspace: &Path) -> Self {
        let (sources, notes) = sources::read(package, workspace);
        Self { sources, notes }
    }

    /// Returns true if the package mentions Burn's own loop.
    pub fn has_loop(&self) -> bool {
        self.sources.iter().any(|source| source.is_own() && source.text.contains("SupervisedTraining"))
    }

    /// Proposes an annotation. A package with an annotated struct gets none. `krate` is the name of the runtime in the package.
    pub fn propose(&self, package: &Package, krate: &str, is_annotated: bool) -> Found {
        let sources = &self.sources;
        let loops = training_loop::all(sources);
        let mut found = Found { has_loop: !loops.is_empty(), notes: self.notes.clone(), ..Found::default() };
        let is_taken = |candidate: &Candidate<'_>| loops.iter().any(|training| training.takes(candidate));
        let rank = |candidate: &Candidate<'_>| (is_taken(candidate), candidate.score);
        let of_source = |source| candidate::candidates(items(source)).map(move |candidate| (source, candidate));
        let all = sources.iter().flat_map(of_source).filter(|(_, candidate)| !candidate.lacks_batch);
        let (mut all, elsewhere): (Vec<(&Source, Candidate<'_>)>, Vec<_>) =
            all.partition(|(source, _)| source.is_own());
        // The first of the best candidates.
        all.sort_by_key(|(_, candidate)| std::cmp::Reverse(rank(candidate)));
        let is_open = matches!(&all[..], [(_, a), (_, b), ..] if rank(a) == rank(b) && !is_taken(a));
        let mut all = all.into_iter();
        let best = if is_open { None } else { all.next() };
        let training = best.as_ref().and_then(|(source, best)| of_config(&loops, source, best)).or(loops.first());
        let programs = Programs::find(package, sources, training, best.as_ref().map(|(source, _)| *source));
        found.add(&programs, sources);
        found.part(
            "a training loop of Burn",
            training.map(|it| format!("Burn's loop in `{}` ({}:{})", it.name(), it.source.name, it.line())),
        );
        found.left.extend(
            sources
                .iter()
                .filter(|source| is_without_std(source))
                .map(|source| format!("{} is `no_std`, and gpu-tuned needs std", source.name)),
        );
        if is_annotated {
            return found;
        }
        let config =
            best.as_ref().map(|(source, it)| format!("config `{}` ({}:{})", it.item.ident, source.name, it.line()));
        found.part("a training config", config);
        let hints = ModelHints { sources, training, program: programs.training };
        let family = Family::new(hints.reached());
        found.part(
            "the kind of model",
            family.hint.map(|(name, place)| format!("{} by `{name}` ({place})", family.kind.name)),
        );
        found.model = Some(hints.model(&FieldNumbers::default()));
        match best {
            Some((source, best)) => {
                let (proposal, numbers, left) = hints.proposal(source, &best, krate);
                found.model = Some(hints.model(&numbers));
                let samples = numbers.global_batch;
                found.part(
                    "the samples of an optimizer step",
                    samples.map(|samples| format!("{samples} samples a step")),
                );
                found.proposal = Some(proposal);
                found.left.extend(left);
                found.notes.extend(others(&loops, training));
                found.notes.extend(all.map(also));
            }
            None if is_open => found.left.push(not_found::several(&all.collect::<Vec<_>>(), krate)),
            None => found.left.extend(not_found::describe(sources, &elsewhere, krate)),
        }
        found
    }
}

impl Found {
    /// Adds a part of a training program, or that the part is missing.
    fn part(&mut self, name: &'static str, found: Option<String>) {
        self.missing.extend(found.is_none().then_some(name));
        self.parts.extend(found);
    }

    fn add(&mut self, programs: &Programs<'_>, sources: &[Source]) {
        self.programs.clone_from(&programs.flags);
        self.has_program = programs.training.is_some();
        self.part("the program that trains", programs.training.map(|program| format!("program `{}`", program.flag())));
        self.flag = programs.training.and_then(|program| program.needed_flag());
        self.cpu = programs.training.and_then(|program| program.cpu(sources));
        if let [first, others @ ..] = &programs.rivals[..]
            && !others.is_empty()
        {
            self.notes.push(format!(
                "several programs train; the commands are for `{first}`, not for `{}`",
                others.join("`, `")
            ));
        }
    }
}

fn is_without_std(source: &Source) -> bool {
    source.is_own() && source.file.attrs.iter().any(|attribute| attribute.path().is_ident("no_std"))
}

fn items(source: &Source) -> &[syn::Item] {
    &source.file.items
}

fn also((source, other): (&Source, Candidate<'_>)) -> String {
    format!("{}:{}: `{}` also looks like a training config", source.name, other.line(), other.item.ident)
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
    program: Option<Program<'a>>,
}

impl<'a> ModelHints<'a> {
    /// Sources that the program reaches; all without a known program.
    fn reached(&self) -> impl Iterator<Item = &'a Source> + Clone + use<'a> {
        let program = self.program;
        self.sources.iter().filter(move |source| program.is_none_or(|program| program.reaches(source)))
    }

    /// Code of the whole program, and of the binary that trains.
    fn code(&self) -> [Code; 2] {
        let values = Rc::new(Values::new(self.reached()));
        let program = self.program;
        let chosen = self.reached().filter(move |source| program.is_some_and(|program| program.owns(source)));
        [Code::new(self.reached(), &values), Code::new(chosen, &values)]
    }

    fn model(&self, numbers: &FieldNumbers) -> ModelWords {
        let [code, chosen] = self.code();
        ModelWords::new(&Family::new(self.reached()), (&code, &chosen), &numbers.dims, numbers.global_batch)
    }

    /// The proposal, the numbers of its fields, and changes without a proposed edit.
    fn proposal(
        &self,
        source: &'a Source,
        candidate: &Candidate<'_>,
        krate: &str,
    ) -> (Proposal, FieldNumbers, Vec<String>) {
        let family = Family::new(self.reached());
        let [code, chosen] = self.code();
        let (holds_step, accumulation) = (self.training.is_some(), self.training.and_then(TrainingLoop::accumulation));
        let (sources, family) = (self.sources, &family);
        let given = Given { sources, family, code: &code, chosen: &chosen, krate, holds_step, accumulation };
        let mut patch = Patch::default();
        let (help, numbers) = annotation::annotate(source, candidate, &given, &mut patch);
        let mut left = Vec::new();
        micro_batch::derive(sources, krate, &mut patch);
        if let Some(training) = self.training {
            left = training.edit(candidate, krate, &mut patch);
            if let Some(program) = self.program.filter(|_| training.name() != "main") {
                program.edit(sources, krate, &mut patch);
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
