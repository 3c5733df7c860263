//! Which kind of model the sources have.

use gpu_tuned_core::workload::ModelKind;
use proc_macro2::{TokenStream, TokenTree};

use super::sources::Source;

/// What the names of a kind's modules begin with. The first kind that has one is taken: convolutions and dense layers are
/// in many models.
const KINDS: [(&str, &[&str]); 7] = [
    ("transformer", &["TransformerEncoder", "TransformerDecoder", "MultiHeadAttention"]),
    ("unet", &["UNet", "Unet"]),
    ("recurrent", &["Lstm", "BiLstm", "Gru", "BiGru"]),
    ("convnet", &["Conv2d"]),
    ("declared", &["Conv1d", "Conv3d"]),
    ("mlp", &["Linear"]),
    ("declared", &[]),
];

/// The keyword that the code hints at.
pub(super) struct Family {
    pub kind: &'static ModelKind,
    /// The name that says so, and where it is.
    pub hint: Option<(String, String)>,
}

impl Family {
    pub(super) fn of(sources: &[Source]) -> Self {
        let mut names = Vec::new();
        for source in sources {
            let tokens: TokenStream = source.text.parse().unwrap_or_default();
            collect(tokens, &mut |name, line| names.push((name, format!("{}:{line}", source.name))));
        }
        let hint = |prefixes: &[&str]| {
            names.iter().find(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix))).cloned()
        };
        let found = KINDS.iter().find_map(|(kind, prefixes)| Some((ModelKind::named(kind)?, Some(hint(prefixes)?))));
        let (kind, hint) = found.unwrap_or((&ModelKind::ALL[0], None));
        Self { kind, hint }
    }

    /// Whether its cells are GRUs.
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
