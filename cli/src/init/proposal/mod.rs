//! Structs that look like training configs, and the annotation that they could have.

mod annotation;
mod candidate;
mod family;
mod sources;

use serde::Serialize;

use super::change;
use crate::project::Project;
use candidate::Candidate;
use family::Family;
use sources::Source;

/// An annotation for a struct. It is only shown.
#[derive(Debug, Serialize)]
pub(super) struct Proposal {
    pub file: String,
    pub line: usize,
    pub name: String,
    /// The fields by which it was recognised.
    pub fields: Vec<String>,
    /// The keyword for its model.
    pub family: &'static str,
    pub diff: String,
    pub help: Vec<String>,
}

/// What was found in the package's sources.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub proposal: Option<Proposal>,
    pub notes: Vec<String>,
}

/// Looks through the package's own `src`. A package that has an annotated struct gets no proposal.
pub(super) fn find(project: &Project, krate: &str) -> Found {
    let (sources, notes) = sources::read(&project.root().join("src"), project.workspace());
    let mut found = Found { proposal: None, notes };
    if sources.iter().any(|source| candidate::is_annotated(&source.file.items)) {
        return found;
    }
    let all = sources.iter().flat_map(|source| candidate::of(&source.file.items).map(move |it| (source, it)));
    let mut all: Vec<(&Source, Candidate<'_>)> = all.collect();
    // The first of those that look most like it.
    all.sort_by_key(|(_, candidate)| std::cmp::Reverse(candidate.score));
    let mut all = all.into_iter();
    if let Some((source, best)) = all.next() {
        let mut proposal = proposal(source, &best, &Family::of(&sources), krate);
        proposal.help.extend(without_default(&sources, &best));
        found.proposal = Some(proposal);
    }
    let other = |(source, other): (&Source, Candidate<'_>)| {
        format!("{}:{}: `{}` looks like a training config, too", source.name, other.line(), other.item.ident)
    };
    found.notes.extend(all.map(other));
    found
}

/// What becomes of a `Default` that the struct has: the annotation implements it.
fn without_default(sources: &[Source], candidate: &Candidate<'_>) -> Option<String> {
    let name = &candidate.item.ident;
    if candidate.is_burn() {
        return None;
    }
    if candidate.derives_default() {
        return Some("take `Default` out of the derive: the annotation implements it".to_owned());
    }
    let own = |source: &Source| Some((source.name.clone(), candidate::default_of(name, &source.file.items)?));
    let (file, line) = sources.iter().find_map(own)?;
    Some(format!(
        "{file}:{line}: take this `impl Default` away, the annotation implements it; values that are not planned become \
         `#[tuned(default = …)]`"
    ))
}

fn proposal(source: &Source, candidate: &Candidate<'_>, family: &Family, krate: &str) -> Proposal {
    let annotated = annotation::of(&source.text, candidate, family, krate);
    let name = &source.name;
    Proposal {
        file: name.clone(),
        line: candidate.line(),
        name: candidate.item.ident.to_string(),
        fields: candidate.known.clone(),
        family: family.kind.name,
        diff: change::unified(&source.text, &annotated.text, &format!("a/{name}"), &format!("b/{name}")),
        help: annotated.help,
    }
}
