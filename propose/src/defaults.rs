//! Defaults of a config's fields, wherever programs write them, and their removal where the build plans the field.

use std::collections::BTreeSet;
use std::ops::Range;

use gpu_tuned_attribute::gives_default;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, ExprStruct, Field, ImplItem, ItemImpl, Lit, Member, Meta, Stmt, Token};

use crate::annotation::range;
use crate::candidate::{Candidate, implementation};
use crate::code::{self, Code};
use crate::sources::{Patch, Source};

/// Finds the only number that the program gives a field: its default, and the values that the program sets.
pub(super) fn number(of: &syn::ItemStruct, field: &Field, name: &str, code: &Code) -> Option<u64> {
    let mut all: BTreeSet<Option<u64>> =
        code.all.get(&(of.ident.to_string(), name.to_owned())).cloned().unwrap_or_default();
    all.extend(field.attrs.iter().filter_map(|attribute| default(attribute, code)));
    match all.iter().collect::<Vec<_>>()[..] {
        [Some(number)] => Some(*number),
        _ => None,
    }
}

/// The default in an attribute; `Some(None)` for one that is no number.
#[expect(clippy::option_option, reason = "a default and a number are two questions")]
fn default(attribute: &Attribute, code: &Code) -> Option<Option<u64>> {
    if let Some(value) = code::default(attribute) {
        return Some(code.number(&value));
    }
    let value = arguments(attribute)?.into_iter().find_map(|meta| match meta {
        Meta::NameValue(pair) if gives_default(attribute.path(), &pair.path) => Some(pair.value),
        _ => None,
    })?;
    Some(match value {
        // The name of a function in serde, a number in clap.
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            let text = text.value();
            text.parse().ok().or_else(|| code.values().named(text.rsplit("::").next()?))
        }
        value => code.number(&value),
    })
}

fn arguments(attribute: &Attribute) -> Option<Punctuated<Meta, Token![,]>> {
    attribute.parse_args_with(Punctuated::parse_terminated).ok()
}

/// Removes the defaults of a planned field in attributes of other derives. Returns true if files without the field's key no
/// longer load.
pub(super) fn remove<'a>(source: &'a Source, field: &Field, patch: &mut Patch<'a>) -> bool {
    let mut is_needed_in_files = false;
    for attribute in field.attrs.iter().filter(|attribute| !attribute.path().is_ident("config")) {
        let Some(arguments) = arguments(attribute) else { continue };
        let text = |meta: &Meta| source.text[meta.span().byte_range()].to_owned();
        let is_kept = |meta: &&Meta| !gives_default(attribute.path(), meta.path());
        let kept: Vec<_> = arguments.iter().filter(is_kept).map(text).collect();
        if kept.len() == arguments.len() {
            continue;
        }
        is_needed_in_files |= attribute.path().is_ident("serde");
        let Meta::List(list) = &attribute.meta else { continue };
        let inside = list.delimiter.span().open().byte_range().end..list.delimiter.span().close().byte_range().start;
        if kept.is_empty() {
            patch.replace(source, with_space(&source.text, range(attribute)), "");
        } else {
            patch.replace(source, inside, kept.join(", "));
        }
    }
    is_needed_in_files
}

/// A range with the space behind.
pub(super) fn with_space(text: &str, Range { start, end }: Range<usize>) -> Range<usize> {
    start..text.len() - text[end..].trim_start().len()
}

/// An implementation of `Default` by one literal, which the annotation replaces.
pub(super) struct OwnDefault<'s> {
    pub source: &'s Source,
    item: &'s ItemImpl,
    literal: Option<&'s ExprStruct>,
}

impl<'s> OwnDefault<'s> {
    /// Finds the implementation in the crate of the struct. The literal counts in the file of the struct only: its values may
    /// have no meaning elsewhere.
    pub(super) fn find(candidate: &Candidate<'_>, of: &Source, sources: &'s [Source]) -> Option<Self> {
        let name = candidate.item.ident.to_string();
        let is_same = |source: &&Source| source.name == of.name;
        let others = sources.iter().filter(|source| !is_same(source) && source.is_beside(of));
        sources.iter().filter(is_same).chain(others).find_map(|source| {
            let item = implementation("Default", &name, &source.file.items)?;
            Some(Self { source, item, literal: literal(item).filter(|_| is_same(&source)) })
        })
    }

    pub(super) fn line(&self) -> usize {
        self.item.impl_token.span.start().line
    }

    /// Value of a field as written; `None` if the literal does not have one.
    pub(super) fn value(&self, field: &str) -> Option<String> {
        let mut fields = self.literal?.fields.iter();
        let found = fields.find(|it| matches!(&it.member, Member::Named(name) if name == field))?;
        Some(self.source.text[found.expr.span().byte_range()].to_owned())
    }

    /// Returns true if every field has a value in the literal.
    pub(super) fn is_readable(&self, candidate: &Candidate<'_>) -> bool {
        candidate.fields().all(|(_, name)| self.value(&name).is_some())
    }

    pub(super) fn remove<'a>(self, patch: &mut Patch<'a>)
    where
        's: 'a,
    {
        let range = lines(&self.source.text, self.item.span().byte_range());
        patch.note(self.source, range.start, "the annotation implements `Default`");
        patch.replace(self.source, range, "");
    }
}

fn literal(item: &ItemImpl) -> Option<&ExprStruct> {
    let [ImplItem::Fn(function)] = &item.items[..] else { return None };
    match &function.block.stmts[..] {
        [Stmt::Expr(Expr::Struct(literal), None)] if literal.rest.is_none() => Some(literal),
        _ => None,
    }
}

/// The whole lines of a range, with an empty line before.
pub(super) fn lines(text: &str, Range { start, end }: Range<usize>) -> Range<usize> {
    let begin = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let begin = if text[begin..start].trim().is_empty() { begin } else { start };
    let end = match text[end..].find('\n') {
        Some(newline) if text[end..end + newline].trim().is_empty() => end + newline + 1,
        _ => end,
    };
    let begin = if text[..begin].ends_with("\n\n") { begin - 1 } else { begin };
    begin..end
}
