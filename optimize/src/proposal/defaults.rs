//! Defaults of a config's fields, wherever programs write them, and their removal where the build plans the field.

use std::collections::BTreeSet;
use std::ops::Range;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, ExprStruct, Field, ImplItem, Item, ItemImpl, Lit, Member, Meta, Stmt, Token};

use super::annotation::range;
use super::candidate::Candidate;
use super::code::{self, Code, last};
use super::sources::{Patch, Source};

/// Attributes with arguments that give a field a default.
const DEFAULTS: [(&str, &[&str]); 5] = [
    ("config", &["default"]),
    ("arg", &["default_value_t", "default_value"]),
    ("clap", &["default_value_t", "default_value"]),
    ("serde", &["default"]),
    ("builder", &["default"]),
];

/// Number of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldNumber {
    /// The only number that the program gives the field.
    Known(u64),
    /// Different numbers, or values that only a run has.
    Unclear,
    /// No value in the code.
    Absent,
}

impl FieldNumber {
    pub(super) const fn known(self) -> Option<u64> {
        match self {
            Self::Known(number) => Some(number),
            Self::Unclear | Self::Absent => None,
        }
    }
}

/// Finds the number of a field: its default, and the values that the program sets.
pub(super) fn number(candidate: &Candidate<'_>, field: &Field, name: &str, code: &Code) -> FieldNumber {
    let mut all: BTreeSet<Option<u64>> =
        code.all.get(&(candidate.item.ident.to_string(), name.to_owned())).cloned().unwrap_or_default();
    all.extend(field.attrs.iter().filter_map(|attribute| default(attribute, code)));
    match all.iter().collect::<Vec<_>>()[..] {
        [] => FieldNumber::Absent,
        [Some(number)] => FieldNumber::Known(*number),
        _ => FieldNumber::Unclear,
    }
}

/// The default in an attribute; `Some(None)` for one that is no number.
#[expect(clippy::option_option, reason = "a default and a number are two questions")]
fn default(attribute: &Attribute, code: &Code) -> Option<Option<u64>> {
    if let Some(value) = code::default(attribute) {
        return Some(code.number(&value));
    }
    let value = arguments(attribute)?.into_iter().find_map(|meta| match meta {
        Meta::NameValue(pair) if is_default(attribute, &pair.path) => Some(pair.value),
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

fn is_default(attribute: &Attribute, argument: &syn::Path) -> bool {
    let mut known = DEFAULTS.iter().filter(|(name, _)| attribute.path().is_ident(name));
    known.any(|(_, arguments)| arguments.iter().any(|name| argument.is_ident(name)))
}

fn arguments(attribute: &Attribute) -> Option<Punctuated<Meta, Token![,]>> {
    attribute.parse_args_with(Punctuated::parse_terminated).ok()
}

/// Removes clap's, serde's and bon's defaults of a field, which the build plans.
pub(super) fn remove<'a>(source: &'a Source, field: &Field, patch: &mut Patch<'a>) {
    for attribute in field.attrs.iter().filter(|attribute| !attribute.path().is_ident("config")) {
        let Some(arguments) = arguments(attribute) else { continue };
        let text = |meta: &Meta| source.text[meta.span().byte_range()].to_owned();
        let kept: Vec<_> = arguments.iter().filter(|meta| !is_default(attribute, meta.path())).map(text).collect();
        if kept.len() == arguments.len() {
            continue;
        }
        let Meta::List(list) = &attribute.meta else { continue };
        let inside = list.delimiter.span().open().byte_range().end..list.delimiter.span().close().byte_range().start;
        if kept.is_empty() {
            let all = range(attribute);
            let space = source.text[all.end..].len() - source.text[all.end..].trim_start().len();
            patch.replace(source, all.start..all.end + space, "");
        } else {
            patch.replace(source, inside, kept.join(", "));
        }
    }
}

/// An implementation of `Default` by one literal, which the annotation replaces.
pub(super) struct OwnDefault<'s> {
    pub source: &'s Source,
    item: &'s ItemImpl,
    literal: Option<&'s ExprStruct>,
}

impl<'s> OwnDefault<'s> {
    pub(super) fn find(candidate: &Candidate<'_>, sources: &'s [Source]) -> Option<Self> {
        let name = candidate.item.ident.to_string();
        sources.iter().filter(|source| source.is_own()).find_map(|source| {
            let item = implementation(&name, &source.file.items)?;
            Some(Self { source, item, literal: literal(item) })
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

fn implementation<'s>(name: &str, items: &'s [Item]) -> Option<&'s ItemImpl> {
    items.iter().find_map(|item| match item {
        Item::Mod(module) => implementation(name, &module.content.as_ref()?.1),
        Item::Impl(item) => {
            let is_default = item.trait_.as_ref()?.0.segments.last()?.ident == "Default";
            (is_default && last(&item.self_ty)? == name).then_some(item)
        }
        _ => None,
    })
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
