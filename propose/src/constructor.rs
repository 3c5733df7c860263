//! Calls of a Burn config's `new`, which takes the fields without a default, and of methods that Burn generates for the others.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprMethodCall, ImplItem, ImplItemFn, Item, ItemImpl};

use crate::candidate::Candidate;
use crate::code::{last, path, root};
use crate::defaults::lines;
use crate::sources::{Patch, Source};

/// Removes calls that set planned fields of a new config, as in `TrainingConfig::new().with_batch_size(64)`.
pub(super) fn remove_overrides<'a>(
    (of, sources): (&Source, &'a [Source]),
    candidate: &Candidate<'_>,
    fields: &[String],
    patch: &mut Patch<'a>,
) {
    for source in users(of, sources, candidate) {
        let setters = fields.iter().map(|field| format!("with_{field}")).collect();
        let mut overrides = Overrides { of: candidate.item.ident.to_string(), setters, found: Vec::new() };
        overrides.visit_file(&source.file);
        for call in overrides.found {
            let (start, end) = (end(&call.receiver), call.paren_token.span.close().byte_range().end);
            patch.note(
                source,
                call.method.span().byte_range().start,
                format!("the build plans what `{}` sets", call.method),
            );
            patch.replace(source, start..end, "");
        }
    }
}

/// End of an expression. `span` reads all tokens of a chain of calls; the parentheses of the last call end there, too.
fn end(value: &Expr) -> usize {
    match value {
        Expr::MethodCall(call) => call.paren_token.span.close().byte_range().end,
        other => other.span().byte_range().end,
    }
}

/// Sources in which the struct's name means it.
fn users<'a>(of: &Source, sources: &'a [Source], candidate: &Candidate<'_>) -> impl Iterator<Item = &'a Source> {
    let name = candidate.item.ident.to_string();
    sources.iter().filter(move |source| source.can_mean(&name, of, sources))
}

struct Overrides<'a> {
    of: String,
    setters: Vec<String>,
    found: Vec<&'a ExprMethodCall>,
}

impl<'a> Visit<'a> for Overrides<'a> {
    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        let is_setter = self.setters.iter().any(|setter| call.method == setter);
        if is_setter && root(&call.receiver).is_some_and(|[of, _]| of == self.of) {
            self.found.push(call);
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// Removes the arguments of fields that get a default, and methods of the program that Burn then generates.
pub(super) fn edit<'a>(
    (of, sources): (&Source, &'a [Source]),
    candidate: &Candidate<'_>,
    fields: &[String],
    patch: &mut Patch<'a>,
) {
    if fields.is_empty() {
        return;
    }
    let arguments: Vec<String> = candidate.without_default().collect();
    for source in users(of, sources, candidate) {
        let of = candidate.item.ident.to_string();
        let mut calls = Calls { of, implements: None, arguments: arguments.len(), found: Vec::new() };
        calls.visit_file(&source.file);
        for call in calls.found {
            let kept = call.args.iter().zip(&arguments).filter(|(_, field)| !fields.contains(field));
            let kept: Vec<_> = kept.map(|(argument, _)| &source.text[argument.span().byte_range()]).collect();
            let inside =
                call.paren_token.span.open().byte_range().end..call.paren_token.span.close().byte_range().start;
            patch.note(source, inside.start, format!("`new` no longer takes {}", listed(fields)));
            patch.replace(source, inside, kept.join(", "));
        }
    }
    for field in fields {
        remove_setter((of, sources), candidate, field, patch);
    }
}

fn listed(fields: &[String]) -> String {
    fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(" and ")
}

/// Calls of the constructor with all arguments.
struct Calls<'a> {
    of: String,
    implements: Option<String>,
    arguments: usize,
    found: Vec<&'a ExprCall>,
}

impl<'a> Visit<'a> for Calls<'a> {
    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let outer = std::mem::replace(&mut self.implements, last(&item.self_ty));
        visit::visit_item_impl(self, item);
        self.implements = outer;
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if let Some([of, function]) = path(&call.func) {
            let is_it = of == self.of || of == "Self" && self.implements.as_ref() == Some(&self.of);
            if is_it && function == "new" && call.args.len() == self.arguments {
                self.found.push(call);
            }
        }
        visit::visit_expr_call(self, call);
    }
}

fn remove_setter<'a>(
    (of, sources): (&Source, &'a [Source]),
    candidate: &Candidate<'_>,
    field: &str,
    patch: &mut Patch<'a>,
) {
    let (name, setter) = (candidate.item.ident.to_string(), format!("with_{field}"));
    for source in sources.iter().filter(|source| source.is_beside(of)) {
        for function in methods(&source.file.items, &name).into_iter().filter(|function| function.sig.ident == setter) {
            let range = lines(&source.text, function.span().byte_range());
            patch.note(source, range.start, format!("`Config` generates `{setter}` for a field with a default"));
            patch.replace(source, range, "");
        }
    }
}

fn methods<'s>(items: &'s [Item], of: &str) -> Vec<&'s ImplItemFn> {
    let in_item = |item: &'s Item| match item {
        Item::Mod(module) => module.content.as_ref().map(|(_, items)| methods(items, of)).unwrap_or_default(),
        Item::Impl(item) if item.trait_.is_none() && last(&item.self_ty).as_deref() == Some(of) => {
            let function =
                |member: &'s ImplItem| if let ImplItem::Fn(function) = member { Some(function) } else { None };
            item.items.iter().filter_map(function).collect()
        }
        _ => Vec::new(),
    };
    items.iter().flat_map(in_item).collect()
}
