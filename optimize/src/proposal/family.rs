//! Kind of model of a program.

use gpu_tuned_core::workload::ModelKind;
use proc_macro2::{TokenStream, TokenTree};

use super::sources::Source;
use crate::names::{KindNames, Names};

/// Kind of model that the code indicates.
pub(super) struct Family {
    pub kind: &'static ModelKind,
    /// Name of the indicating module, and its place.
    pub hint: Option<(String, String)>,
}

impl Family {
    pub(super) fn new(sources: &[Source]) -> Self {
        let mut names = Vec::new();
        for source in sources {
            let tokens: TokenStream = source.text.parse().unwrap_or_default();
            collect(tokens, &mut |name, line| names.push((name, format!("{}:{line}", source.name))));
        }
        let hint = |names_of: &KindNames| {
            let has_prefix = |name: &str| names_of.burn_modules().any(|prefix| name.starts_with(prefix));
            names.iter().find(|(name, _)| has_prefix(name)).cloned()
        };
        let mut kinds = Names::get().kinds();
        let found = kinds.find_map(|names| Some((ModelKind::named(&names.name)?, Some(hint(names)?))));
        let (kind, hint) = found.unwrap_or_else(|| (ModelKind::named("declared").expect("BUG: a kind of model"), None));
        Self { kind, hint }
    }

    /// Names of a dimension in programs, its own first.
    pub(super) fn names_of(&self, dim: &'static str) -> Vec<&'static str> {
        let names = Names::get().kind(self.kind.name);
        std::iter::once(dim).chain(names.into_iter().flat_map(|names| names.aliases(dim))).collect()
    }

    pub(super) fn is_gru(&self) -> bool {
        self.hint.as_ref().is_some_and(|(name, _)| name.contains("Gru"))
    }
}

fn collect(tokens: TokenStream, found: &mut impl FnMut(String, usize)) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => found(ident.to_string(), ident.span().start().line),
            TokenTree::Group(group) => collect(group.stream(), found),
            _ => {}
        }
    }
}
