//! Proposed annotations for structs that look like training configs, and other edits of the program.

use std::path::Path;

use cargo_metadata::Package;
use proc_macro2::TokenTree;
use serde::Serialize;
use syn::Item;

use crate::annotation::{FieldNumbers, Given, annotate, step_of_code};
use crate::candidate::{BATCH, Candidate, candidates, is_batch};
use crate::imports::ImportProposal;
use crate::live::live;
use crate::losses::Losses;
use crate::model::{Family, ModelWords};
use crate::sources::{self, Edit, Owner, Patch, Programs, Source, all_tokens, reached};
use crate::training_loop::{
    LOOPS, LoopPlaces, TAKE_STEPS, TrainingLoop, batch_of_dependency, derive_micro_batch, loop_by_hand, training_loops,
};

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
    /// Imports of modules with faster kernels.
    pub imports: Option<ImportProposal>,
    /// The model of a program without an annotated struct, if a kind describes it.
    pub model: Option<ModelWords>,
    /// True if the program has Burn's own loop.
    pub has_loop: bool,
    /// Places of a loop by hand that need a session.
    pub places: LoopPlaces,
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
    pub(crate) sources: Vec<Source>,
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
        self.sources.iter().any(|source| source.is_own() && LOOPS.iter().any(|of| source.text.contains(of)))
    }

    /// Proposes an annotation. A package with an annotated struct gets none. `krate` is the name of the runtime in the package.
    pub fn propose(&self, package: &Package, krate: &str, is_annotated: bool) -> Found {
        let (sources, krate) = (&self.sources, &*krate.replace('-', "_"));
        let loops = training_loops(sources);
        let mut found = Found { has_loop: !loops.is_empty(), notes: self.notes.clone(), ..Found::default() };
        let is_taken = |source: &Source, candidate: &Candidate<'_>| {
            loops.iter().any(|training| training.takes((source, candidate), sources))
        };
        let rank = |(source, candidate): &(&Source, Candidate<'_>)| (is_taken(source, candidate), candidate.score);
        let all =
            sources.iter().flat_map(|source| candidates(&source.file.items).map(move |candidate| (source, candidate)));
        // A program's loop by hand does not train with a struct that nothing names.
        let steps = LoopPlaces::find(&sources.iter().collect::<Vec<_>>(), "").step;
        let mentions = |source: &Source, it: &Candidate<'_>| {
            source
                .tokens
                .iter()
                .filter(|token| matches!(token, TokenTree::Ident(name) if *name == it.item.ident))
                .count()
        };
        let is_used =
            |it: &Candidate<'_>| steps.is_none() || sources.iter().map(|of| mentions(of, it)).sum::<usize>() > 1;
        let all = all.filter(|(source, it)| !it.lacks_batch && (source.in_library || is_used(it)));
        let (mut all, elsewhere): (Vec<(&Source, Candidate<'_>)>, Vec<_>) =
            all.partition(|(source, _)| source.is_own());
        // The first of the best candidates.
        all.sort_by_key(|it| std::cmp::Reverse(rank(it)));
        let is_open = matches!(&all[..], [a, b, ..] if rank(a) == rank(b) && !rank(a).0);
        let tied = if is_open { all.partition_point(|it| rank(it) == rank(&all[0])) } else { 0 };
        let (tied, mut others) = {
            let others = all.split_off(tied);
            (all, others.into_iter())
        };
        let best = if is_open { None } else { others.next() };
        let of_config = |(source, best): &(&Source, Candidate<'_>)| of_config(&loops, (source, best), sources);
        let training = best.as_ref().and_then(of_config).or(loops.first());
        let programs = Programs::find(package, sources, training, best.as_ref().map(|(source, _)| *source));
        found.add(&programs, sources);
        let burn = training.map(|it| format!("Burn's loop in `{}` ({}:{})", it.name(), it.source.name, it.line()));
        let known = burn.or_else(|| loop_by_hand(sources));
        let by_hand = steps.filter(|_| known.is_none());
        let of_its_own = by_hand.as_ref().map(|place| format!("a training loop of its own ({place})"));
        found.part("a training loop", known.or(of_its_own));
        found.left.extend(
            sources
                .iter()
                .filter(|source| is_without_std(source))
                .map(|source| format!("{} is `no_std`, and gpu-tuned needs std", source.name)),
        );
        if is_annotated {
            let reached = reached(sources, programs.training);
            found.notes.extend(Losses::new(&reached).notes());
            let live = live(&reached, programs.training, training, None);
            found.imports = imports(&reached, &Family::new(live.iter()), krate);
            return found;
        }
        let config =
            best.as_ref().map(|(source, it)| format!("config `{}` ({}:{})", it.item.ident, source.name, it.line()));
        found.part("a training config", config);
        let name = best.as_ref().map(|(source, it)| (*source, it.item.ident.to_string()));
        let name = name.as_ref().map(|(source, name)| (*source, name.as_str()));
        let given = Given::new(sources, training, programs.training, name, krate);
        let family = &given.family;
        found.part(
            "the kind of model",
            family.hint.as_ref().map(|(name, place)| format!("{} by `{name}` ({place})", family.kind.name)),
        );
        found.imports = imports(&given.reached, family, krate);
        let mut numbers = FieldNumbers::default();
        match best {
            Some((source, best)) => {
                let (proposal, of_fields, left) = proposal(&given, source, &best);
                numbers = of_fields;
                let samples = numbers.global_batch;
                found.part(
                    "the samples of an optimizer step",
                    samples.map(|samples| format!("{samples} samples a step")),
                );
                found.places = LoopPlaces::find(&given.reached, &proposal.name);
                found.proposal = Some(proposal);
                found.left.extend(left);
                found.notes.extend(other_loops(&loops, training));
            }
            None if is_open => found.left.push(describe_tie(&tied, krate)),
            None => found.left.extend(describe_missing(sources, &elsewhere, krate)),
        }
        if found.proposal.is_none() {
            found.left.extend(by_hand.map(|place| format!("{place}, {TAKE_STEPS}")));
            found.notes.extend(given.losses.notes());
        }
        let mut others: Vec<_> = others.map(also).collect();
        let more = others.split_off(others.len().min(MAX_LISTED)).len();
        found.notes.extend(others);
        found.notes.extend((more > 0).then(|| format!("{more} more structs look like a training config")));
        let of_code = || if found.proposal.is_none() { step_of_code(&given.code) } else { None };
        let samples = numbers.global_batch.or_else(of_code);
        found.model = ModelWords::new(family, (&given.code, &given.chosen), &numbers.dims, samples);
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

/// Imports of modules with faster kernels, if the code shows the kind of model.
fn imports(sources: &[&Source], family: &Family, krate: &str) -> Option<ImportProposal> {
    family.hint.as_ref()?;
    ImportProposal::new(sources.iter().copied(), family.kind.name, krate)
}

fn is_without_std(source: &Source) -> bool {
    source.is_own() && source.file.attrs.iter().any(|attribute| attribute.path().is_ident("no_std"))
}

fn also((source, other): (&Source, Candidate<'_>)) -> String {
    format!("{}:{}: `{}` also looks like a training config", source.name, other.line(), other.item.ident)
}

/// The loop of a config, preferably in the same file.
fn of_config<'l, 's>(
    loops: &'l [TrainingLoop<'s>],
    config: (&Source, &Candidate<'_>),
    sources: &[Source],
) -> Option<&'l TrainingLoop<'s>> {
    let taking = || loops.iter().filter(|training| training.takes(config, sources));
    taking().find(|training| training.source.name == config.0.name).or_else(|| taking().next())
}

/// Notes on loops without a proposal.
fn other_loops(loops: &[TrainingLoop<'_>], taken: Option<&TrainingLoop<'_>>) -> Vec<String> {
    let place = |training: &TrainingLoop<'_>| (training.source.name.clone(), training.line());
    let others = loops.iter().filter(|training| Some(place(training)) != taken.map(place));
    others
        .map(|other| {
            let (file, line) = place(other);
            format!("{file}:{line}: `{}` has a training loop, too, which needs the same lines", other.name())
        })
        .collect()
}

/// The proposal, the numbers of its fields, and changes without a proposed edit.
fn proposal<'a>(
    given: &Given<'a>,
    source: &'a Source,
    candidate: &Candidate<'_>,
) -> (Proposal, FieldNumbers, Vec<String>) {
    let mut patch = Patch::default();
    let (help, numbers) = annotate(source, candidate, given, &mut patch);
    let mut left = Vec::new();
    derive_micro_batch(&given.reached, given.krate, &mut patch);
    let batch = batch_of_dependency(&given.reached, given.krate);
    if let Some(training) = given.training {
        left = training.edit(candidate, given.krate, &mut patch);
        if let Some(program) = given.program.filter(|_| training.name() != "main") {
            program.edit(given.sources, given.krate, &mut patch);
        }
    }
    left.extend(batch);
    let (edits, diff, lines) = patch.finish();
    let proposal = Proposal {
        file: source.name.clone(),
        line: candidate.line(),
        name: candidate.item.ident.to_string(),
        fields: candidate.known.clone(),
        family: given.family.kind.name,
        edits,
        lines,
        diff,
        help,
    };
    (proposal, numbers, left)
}

/// Largest number of files or structs in a message.
const MAX_LISTED: usize = 4;

/// The first texts of a list, and how many more there are.
pub(super) fn listed(mut all: Vec<String>, separator: &str) -> String {
    let more = all.len().saturating_sub(MAX_LISTED);
    all.truncate(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    all.join(separator) + &more
}

/// The lines that a config needs.
fn example(krate: &str) -> String {
    format!(
        "write `#[{krate}::gpu_tuned(MODEL, global_batch = SAMPLES)]` above the struct with the batch size, and above that field \
         `#[tuned]`, or `#[tuned(setting = batch_size)]` if its name is another"
    )
}

/// Describes a tie of several candidates.
fn describe_tie(candidates: &[(&Source, Candidate<'_>)], krate: &str) -> String {
    let place =
        |(source, it): &(&Source, Candidate<'_>)| format!("`{}` in {}:{}", it.item.ident, source.name, it.line());
    let places: Vec<_> = candidates.iter().map(place).collect();
    format!(
        "several structs look like the training config: {}; for the one that trains, {}",
        listed(places, ", "),
        example(krate)
    )
}

/// Describes where no training config was found, and what is close to one.
fn describe_missing(sources: &[Source], elsewhere: &[(&Source, Candidate<'_>)], krate: &str) -> Vec<String> {
    if let Some((source, candidate)) = elsewhere.first()
        && let Owner::Package(package) = &source.owner
    {
        return vec![format!(
            "the training config `{}` is in {}:{}, of package `{package}`: run `cargo gpu-tuned init -p {package}` there",
            candidate.item.ident,
            source.name,
            candidate.line()
        )];
    }
    let own: Vec<String> = sources.iter().filter(|source| source.is_own()).map(|source| source.name.clone()).collect();
    let nothing = || "no source could be read".to_owned();
    let place = if own.is_empty() { nothing() } else { format!("looked in {}", listed(own, ", ")) };
    let hints = own_hints(sources);
    let close = if hints.is_empty() { String::new() } else { format!("; {}", listed(hints, "; ")) };
    vec![format!("no training config found: {place}{close}; {}", example(krate))]
}

/// Structs without a batch size, structs in macros, and constants.
fn own_hints(sources: &[Source]) -> Vec<String> {
    let mut hints = Vec::new();
    for source in sources.iter().filter(|source| source.is_own()) {
        let lacking = candidates(&source.file.items).filter(|candidate| candidate.lacks_batch);
        hints.extend(lacking.map(|it| format!("{}:{}: `{}` has no batch size", source.name, it.line(), it.item.ident)));
        for item in &source.file.items {
            match item {
                Item::Const(item) if is_batch(&item.ident.to_string().to_lowercase()) => {
                    let line = item.ident.span().start().line;
                    hints.push(format!(
                        "{}:{line}: `{}` is a constant, which no build can plan",
                        source.name, item.ident
                    ));
                }
                Item::Macro(item) => {
                    let line = all_tokens(item.mac.tokens.clone()).iter().find_map(|token| match token {
                        TokenTree::Ident(ident) if ident != BATCH && is_batch(&ident.to_string()) => {
                            Some(ident.span().start().line)
                        }
                        _ => None,
                    });
                    let hint =
                        |line| format!("{}:{line}: a macro has a batch size, and macros are not read", source.name);
                    hints.extend(line.map(hint));
                }
                _ => {}
            }
        }
    }
    hints
}
