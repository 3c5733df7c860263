//! Edits that make a model ready for 16 bits.

use syn::visit::{self, Visit};
use syn::{ExprCall, Field, TypePath};

use crate::candidate::{derives, structs};
use crate::code;
use crate::sources::Source;

/// Returns the edits for mixed precision, with their places.
pub(super) fn edits(sources: &[&Source]) -> Vec<String> {
    sources.iter().flat_map(|source| statistics(source).chain(loss(source))).collect()
}

/// Modules whose running statistics would be rounded in 16 bits.
fn statistics(source: &Source) -> impl Iterator<Item = String> {
    let modules = structs(&source.file.items).into_iter().filter(|item| derives(&item.attrs, "Module"));
    let fields = modules.flat_map(|item| &item.fields).filter(|field| has_statistics(field));
    fields.map(|field| {
        let span =
            field.ident.as_ref().map_or_else(|| syn::spanned::Spanned::span(&field.ty), proc_macro2::Ident::span);
        let name = field.ident.as_ref().map(|name| format!("`{name}`: ")).unwrap_or_default();
        let line = span.start().line;
        format!(
            "{}:{line}: {name}hold the `BatchNorm` in an `InF32`, which keeps its running statistics in f32: \
             `InF32<BatchNorm>`, made with `.into()`",
            source.name
        )
    })
}

fn has_statistics(field: &Field) -> bool {
    struct Search(bool);
    impl<'ast> Visit<'ast> for Search {
        fn visit_type_path(&mut self, ty: &'ast TypePath) {
            match ty.path.segments.last() {
                Some(last) if last.ident == "InF32" => {}
                Some(last) if last.ident == "BatchNorm" => self.0 = true,
                _ => visit::visit_type_path(self, ty),
            }
        }
    }
    let mut search = Search(false);
    search.visit_field(field);
    search.0
}

/// The first loss of a file that converts nothing to f32.
fn loss(source: &Source) -> Option<String> {
    struct Search(Option<(usize, String)>);
    impl<'ast> Visit<'ast> for Search {
        fn visit_expr_call(&mut self, call: &'ast ExprCall) {
            if let Some([of, function]) = code::path(&call.func)
                && function == "new"
                && (of.ends_with("Loss") || of.ends_with("LossConfig"))
            {
                let line = syn::spanned::Spanned::span(call).start().line;
                self.0.get_or_insert((line, of.trim_end_matches("Config").to_owned()));
            }
            visit::visit_expr_call(self, call);
        }
    }
    if source.text.contains("in_f32") {
        return None;
    }
    let mut search = Search(None);
    search.visit_file(&source.file);
    let (line, loss) = search.0?;
    Some(format!(
        "{}:{line}: pass the model's output, and real-valued targets, through `in_f32` before `{loss}`: losses mix \
         float types in 16 bits",
        source.name
    ))
}
