//! Reports on sources without a training config.

use proc_macro2::{TokenStream, TokenTree};
use syn::Item;

use crate::candidate::{self, Candidate};
use crate::sources::{Owner, Source};

/// Largest number of files or structs in a message.
pub(super) const MAX_LISTED: usize = 4;

/// The first texts of a list, and how many more there are.
fn listed(mut all: Vec<String>, separator: &str) -> String {
    let more = all.len().saturating_sub(MAX_LISTED);
    all.truncate(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    all.join(separator) + &more
}

/// The lines that a config needs.
fn example(krate: &str) -> String {
    format!(
        "write `#[{}::gpu_tuned(MODEL, global_batch = SAMPLES)]` above the struct with the batch size, and above that field \
         `#[tuned]`, or `#[tuned(setting = batch_size)]` if its name is another",
        krate.replace('-', "_")
    )
}

/// Describes a tie of several candidates.
pub(super) fn several(candidates: &[(&Source, Candidate<'_>)], krate: &str) -> String {
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
pub(super) fn describe(sources: &[Source], elsewhere: &[(&Source, Candidate<'_>)], krate: &str) -> Vec<String> {
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
        let lacking = candidate::candidates(&source.file.items).filter(|candidate| candidate.lacks_batch);
        hints.extend(lacking.map(|it| format!("{}:{}: `{}` has no batch size", source.name, it.line(), it.item.ident)));
        for item in &source.file.items {
            match item {
                Item::Const(item) if candidate::is_batch(&item.ident.to_string().to_lowercase()) => {
                    let line = item.ident.span().start().line;
                    hints.push(format!(
                        "{}:{line}: `{}` is a constant, which no build can plan",
                        source.name, item.ident
                    ));
                }
                Item::Macro(item) => {
                    let line = batch_in(item.mac.tokens.clone());
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

/// Line of the first batch size among tokens.
fn batch_in(tokens: TokenStream) -> Option<usize> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if candidate::is_batch(&ident.to_string()) => Some(ident.span().start().line),
        TokenTree::Group(group) => batch_in(group.stream()),
        _ => None,
    })
}
