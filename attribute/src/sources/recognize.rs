//! Recognizing the attribute by its path.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, ItemUse, Meta, Path, UseTree};

use crate::parse::conditional::flatten;

/// The attribute's name.
const NAME: &str = "gpu_tuned";

/// The names of the attribute in one file: `gpu_tuned` and renamed imports.
#[derive(Clone, Debug, Default)]
pub struct Aliases(BTreeSet<String>);

impl Aliases {
    /// Collects the renamed imports of a file: `use gpu_tuned::gpu_tuned as tuned`.
    pub fn in_file(file: &syn::File) -> Self {
        let mut aliases = Self::default();
        aliases.visit_file(file);
        aliases
    }

    fn add_renamed(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => self.add_renamed(&path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_renamed(tree)),
            UseTree::Rename(rename) if rename.ident == NAME => drop(self.0.insert(rename.rename.to_string())),
            UseTree::Rename(_) | UseTree::Name(_) | UseTree::Glob(_) => {}
        }
    }

    /// Returns true for a path that names the attribute.
    fn name(&self, path: &Path) -> bool {
        let is_alias = || path.get_ident().is_some_and(|ident| self.0.contains(&ident.to_string()));
        path.segments.last().is_some_and(|last| last.ident == NAME) || is_alias()
    }

    /// Finds the attribute among the tokens of a macro, where it cannot be read.
    pub(super) fn find_in_macro(&self, tokens: TokenStream) -> Option<Span> {
        let mut after_hash = false;
        for token in tokens {
            if let TokenTree::Group(group) = &token {
                if after_hash && group.delimiter() == Delimiter::Bracket {
                    let meta = syn::parse2::<Meta>(group.stream()).ok();
                    if meta.is_some_and(|meta| self.name(meta.path())) {
                        return Some(group.span_open());
                    }
                }
                if let Some(found) = self.find_in_macro(group.stream()) {
                    return Some(found);
                }
            }
            after_hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        }
        None
    }
}

impl Visit<'_> for Aliases {
    fn visit_item_use(&mut self, item: &ItemUse) {
        // A crate renamed with `as` does not change the last segment of a path.
        if let UseTree::Path(path) = &item.tree {
            self.add_renamed(&path.tree);
        }
    }
}

/// The attribute among the attributes of an item.
pub struct Found {
    /// The arguments in `#[gpu_tuned(…)]`.
    pub arguments: TokenStream,
    /// The place of the attribute.
    pub span: Span,
    /// The item's other attributes, as the macro gets them: without the derives above.
    pub others: Vec<Attribute>,
}

/// Finds the attribute among the attributes of an item, in `cfg_attr` too.
pub fn find_attribute(attributes: &[Attribute], aliases: &Aliases) -> Option<Found> {
    let (index, metas, at) = attributes.iter().enumerate().find_map(|(index, attribute)| {
        let flat = flatten(core::slice::from_ref(attribute));
        let metas: Vec<Meta> = flat.into_iter().map(|inner| inner.meta).collect();
        let at = metas.iter().position(|meta| aliases.name(meta.path()))?;
        Some((index, metas, at))
    })?;
    let (above, below) = (&attributes[..index], &attributes[index + 1..]);
    // Derives above were expanded before, and are gone.
    let mut others: Vec<_> = above.iter().filter(|above| !above.path().is_ident("derive")).cloned().collect();
    let template = &attributes[index];
    others.extend(metas.iter().skip(at + 1).map(|meta| Attribute { meta: meta.clone(), ..template.clone() }));
    others.extend(below.iter().cloned());
    let meta = &metas[at];
    let arguments = if let Meta::List(list) = meta { list.tokens.clone() } else { TokenStream::new() };
    Some(Found { arguments, span: meta.span(), others })
}
