//! Structs that look like training configs, the defaults of their fields, and calls of their constructors.

use std::collections::BTreeSet;
use std::ops::Range;

use gpu_tuned_attribute::gives_default;
use gpu_tuned_attribute::sources::{Node, Visitor};
use gpu_tuned_core::{Setting, SettingKind};
use gpu_tuned_optimize::{Role, Words, role};
use quote::ToTokens as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Expr, ExprCall, ExprLit, ExprMethodCall, ExprStruct, Field, ImplItem, ImplItemFn, Item, ItemImpl,
    ItemStruct, Lit, Member, Meta, Stmt, Token, Type,
};

use crate::annotation::range;
use crate::code::{self, Code, last, path, root};
use crate::model::BurnNames;
use crate::sources::{Calls, Patch, Source, all_items, inside, line_start};

/// Fields of training configs beside settings.
const OTHERS: &str = "num_epochs epochs n_epochs learning_rate lr seed optimizer weight_decay warmup_steps max_steps";
/// Names of accumulation in Burn programs beside those of configs.
const ACCUMULATION: [&str; 3] = ["batches_per_step", "grads_accumulation", "accumulation"];
/// Names of mixed precision.
const PRECISION: [&str; 4] = ["amp", "use_amp", "mixed_precision", "use_mixed_precision"];
/// Name of the samples of a batch, and of many tensors.
pub(super) const BATCH: &str = "batch";
/// Minimum score of a candidate.
const MIN_SCORE: u32 = 3;

/// A struct that looks like a training config.
pub(super) struct Candidate<'a> {
    pub item: &'a ItemStruct,
    pub known: Vec<String>,
    pub score: u32,
    /// True if the struct has no field that could be planned.
    pub lacks_batch: bool,
}

impl Candidate<'_> {
    pub(super) fn line(&self) -> usize {
        self.item.ident.span().start().line
    }

    pub(super) fn is_burn(&self) -> bool {
        derives(&self.item.attrs, "Config")
    }

    /// Returns true if the struct is `Clone`, as Burn's configs are.
    pub(super) fn is_clone(&self) -> bool {
        self.is_burn() || derives(&self.item.attrs, "Clone")
    }

    /// The attribute that derives a trait.
    pub(super) fn derive_of(&self, name: &str) -> Option<&Attribute> {
        self.item.attrs.iter().find(|attribute| derives(std::slice::from_ref(*attribute), name))
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&Field, String)> {
        named_fields(self.item)
    }
}

/// Fields of a struct with their names.
pub(super) fn named_fields(item: &ItemStruct) -> impl Iterator<Item = (&Field, String)> {
    item.fields.iter().filter_map(|field| Some((field, field.ident.as_ref()?.to_string())))
}

/// Returns true for the type of a count.
pub(super) fn is_count(ty: &Type) -> bool {
    last(ty).is_some_and(|ty| SettingKind::Count.field_types().contains(&ty.as_str()))
}

/// Names of the fields without Burn's default, which a Burn config's `new` takes in this order.
pub(super) fn without_default(item: &ItemStruct) -> impl Iterator<Item = String> {
    let has_none = |field: &Field| !field.attrs.iter().any(|it| it.path().is_ident("config"));
    named_fields(item).filter(move |(field, _)| has_none(field)).map(|(_, name)| name)
}

/// Returns true for names of the samples of a batch. Short names such as `bs` are left out.
pub(super) fn is_batch(name: &str) -> bool {
    name.ends_with("batch_size") && role(name) == Some(Role::Batch) || [BATCH, "batch_size_train"].contains(&name)
}

/// The setting with this name in programs.
pub(super) fn setting(name: &str) -> Option<Setting> {
    match role(name) {
        _ if is_batch(name) => Some(Setting::BatchSize),
        _ if ACCUMULATION.contains(&name) => Some(Setting::GradientAccumulation),
        _ if PRECISION.contains(&name) => Some(Setting::Precision),
        Some(Role::Accumulation) => Some(Setting::GradientAccumulation),
        Some(Role::Workers) => Some(Setting::NumWorkers),
        _ => Setting::named(name),
    }
}

/// Returns true for names of the samples of an optimizer step.
pub(super) fn is_global_batch(name: &str) -> bool {
    role(name) == Some(Role::GlobalBatch)
}

/// Structs that look like training configs, and those that would with a field for the batch size.
pub(super) fn candidates(items: &[Item]) -> impl Iterator<Item = Candidate<'_>> {
    structs(items).into_iter().filter_map(candidate)
}

pub(super) fn structs(items: &[Item]) -> Vec<&ItemStruct> {
    all_items(items)
        .into_iter()
        .filter_map(|item| if let Item::Struct(item) = item { Some(item) } else { None })
        .collect()
}

fn candidate(item: &ItemStruct) -> Option<Candidate<'_>> {
    let known: Vec<String> = named_fields(item)
        .filter(|(field, name)| name != BATCH || is_count(&field.ty))
        .map(|(_, name)| name)
        .filter(|name| setting(name).is_some() || is_global_batch(name) || OTHERS.split(' ').any(|other| other == name))
        .collect();
    // A struct without a planned field needs no annotation.
    let is_planned = |name: &String| matches!(setting(name), Some(Setting::BatchSize | Setting::NumWorkers));
    let lacks_batch = !known.iter().any(is_planned);
    let name = item.ident.to_string();
    let ends = |words: &Words| words.iter().any(|end| name.ends_with(end));
    let by_name = match BurnNames::get() {
        names if ends(&names.training_configs) => 2,
        names if ends(&names.other_configs) => 1,
        _ => 0,
    };
    let score = known.len() as u32 + by_name + u32::from(derives(&item.attrs, "Config"));
    (score >= MIN_SCORE).then_some(Candidate { item, known, score, lacks_batch })
}

/// The implementation of a trait for a struct.
pub(super) fn implementation<'s>(of: &str, name: &str, items: &'s [Item]) -> Option<&'s ItemImpl> {
    all_items(items).into_iter().find_map(|item| {
        let Item::Impl(item) = item else { return None };
        let is_it = item.trait_.as_ref()?.0.segments.last()?.ident == of;
        (is_it && last(&item.self_ty)? == name).then_some(item)
    })
}

/// Returns true if a derive names a trait, or Burn's `Config` by its usual other name.
pub(super) fn derives(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let is_named = |ident: &proc_macro2::Ident| ident == name || name == "Config" && ident == "BurnConfig";
        let is_it = |token| matches!(token, proc_macro2::TokenTree::Ident(ident) if is_named(&ident));
        attribute.path().is_ident("derive") && list.tokens.clone().into_iter().any(is_it)
    })
}

/// Paths in a derive, as written.
pub(super) fn derived(derive: &Attribute) -> Vec<String> {
    let paths = derive.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated).unwrap_or_default();
    paths.iter().map(|path| path.to_token_stream().to_string().replace(' ', "")).collect()
}

/// Finds the only number that the program gives a field: its default, and the values that the program sets.
pub(super) fn number(of: &syn::ItemStruct, field: &Field, name: &str, code: &Code) -> Option<u64> {
    let mut all: BTreeSet<Option<u64>> =
        code.all.get(&(of.ident.to_string(), name.to_owned())).cloned().unwrap_or_default();
    if !code.flow.always_sets(&of.ident.to_string(), name) {
        all.extend(field.attrs.iter().filter_map(|attribute| default_number(attribute, code)));
    }
    match all.iter().collect::<Vec<_>>()[..] {
        [Some(number)] => Some(*number),
        _ => None,
    }
}

/// The default in an attribute; `Some(None)` for one that is no number.
#[expect(clippy::option_option, reason = "a default and a number are two questions")]
fn default_number(attribute: &Attribute, code: &Code) -> Option<Option<u64>> {
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
pub(super) fn remove_defaults<'a>(source: &'a Source, field: &Field, patch: &mut Patch<'a>) -> bool {
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
        if kept.is_empty() {
            patch.replace(source, with_space(&source.text, range(attribute)), "");
        } else {
            patch.replace(source, inside(list.delimiter.span()), kept.join(", "));
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

    /// Returns true if comments go with the implementation.
    pub(super) fn has_comments(&self) -> bool {
        let text = &self.source.text[self.item.span().byte_range()];
        text.lines().any(|line| line.trim_start().starts_with("//") || line.contains(", //") || line.contains("/*"))
    }

    pub(super) fn remove<'a>(self, patch: &mut Patch<'a>)
    where
        's: 'a,
    {
        let range = lines(&self.source.text, self.item.span().byte_range());
        patch.edit(self.source, range, "", "the annotation implements `Default`");
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
    let begin = line_start(text, start);
    let begin = if text[begin..start].trim().is_empty() { begin } else { start };
    let end = match text[end..].find('\n') {
        Some(newline) if text[end..end + newline].trim().is_empty() => end + newline + 1,
        _ => end,
    };
    let begin = if text[..begin].ends_with("\n\n") { begin - 1 } else { begin };
    begin..end
}

/// Removes calls that set planned fields of a new config, as in `TrainingConfig::new().with_batch_size(64)`.
pub(super) fn remove_overrides<'a>(
    (of, sources): (&Source, &'a [Source]),
    candidate: &Candidate<'_>,
    fields: &[String],
    patch: &mut Patch<'a>,
) {
    for source in users(of, sources, candidate) {
        let is_setter = |call: &&ExprMethodCall| {
            fields.iter().any(|field| call.method == format!("with_{field}"))
                && root(&call.receiver).is_some_and(|[of, _]| candidate.item.ident == of)
        };
        for call in Calls::of_file(&source.file).methods.into_iter().filter(is_setter) {
            let range = call_behind(&source.text, call);
            patch.note(
                source,
                call.method.span().byte_range().start,
                format!("the build plans what `{}` sets", call.method),
            );
            patch.replace(source, range, "");
        }
    }
}

/// Range of a method call behind its receiver, without a comment in between.
pub(super) fn call_behind(text: &str, call: &ExprMethodCall) -> Range<usize> {
    let (start, dot) = (end(&call.receiver), call.dot_token.span.byte_range().start);
    let end = call.paren_token.span.close().byte_range().end;
    // What follows on the line must not get into the comment.
    let is_whole_line = text[end..].starts_with('\n') && text[line_start(text, dot)..dot].trim().is_empty();
    match text[start..dot].trim() {
        "" => start..end,
        _ if is_whole_line => text[..dot].trim_end().len()..end,
        _ => dot..end,
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

/// Removes the arguments of fields that get a default, and methods of the program that Burn then generates.
pub(super) fn edit_constructor<'a>(
    (of, sources): (&Source, &'a [Source]),
    candidate: &Candidate<'_>,
    fields: &[String],
    patch: &mut Patch<'a>,
) {
    if fields.is_empty() {
        return;
    }
    let arguments: Vec<String> = without_default(candidate.item).collect();
    for source in users(of, sources, candidate) {
        let of = candidate.item.ident.to_string();
        let mut calls = Constructors { of, implements: None, arguments: arguments.len(), found: Vec::new() };
        Node::File(&source.file).walk(&mut calls);
        for call in calls.found {
            let range = inside(&call.paren_token.span);
            let kept: Vec<bool> = arguments.iter().map(|field| !fields.contains(field)).collect();
            let removed = unlisted(&source.text, &call.args, range.clone(), &kept);
            let reason = format!("`new` no longer takes {}", listed(fields));
            patch.note(source, range.start, reason);
            for range in removed {
                patch.replace(source, range, "");
            }
        }
    }
    for field in fields {
        remove_setter((of, sources), candidate, field, patch);
    }
}

/// Ranges to remove from a list within parentheses, so that only these arguments are left, and all comments.
fn unlisted(text: &str, list: &Punctuated<Expr, Token![,]>, within: Range<usize>, kept: &[bool]) -> Vec<Range<usize>> {
    let comma = |at: usize| Some(list.pairs().nth(at)?.punct()?.span.byte_range());
    let (mut removed, mut commas) = (Vec::new(), Vec::new());
    for (at, argument) in list.iter().enumerate().filter(|(at, _)| !kept[*at]) {
        removed.push(argument.span().byte_range());
        commas.extend(comma(at));
    }
    // Without a comma behind the last argument, the new last argument has none.
    if !list.trailing_punct()
        && kept.last() == Some(&false)
        && let Some(last) = kept.iter().rposition(|kept| *kept)
    {
        commas.extend(comma(last));
    }
    removed.append(&mut commas);
    removed.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in removed {
        match joined.last_mut().filter(|before| text[before.end..range.start].trim_matches([' ', '\t']).is_empty()) {
            Some(before) => before.end = range.end,
            None => joined.push(range),
        }
    }
    joined.into_iter().map(|range| without_gap(text, range, &within)).collect()
}

/// A removed range with the space around: the whole line, or the space behind; before a closing parenthesis, that in front.
fn without_gap(text: &str, Range { start, end }: Range<usize>, within: &Range<usize>) -> Range<usize> {
    let begin = line_start(text, start).max(within.start);
    let is_first = text[begin..start].trim().is_empty() && begin > within.start;
    let space = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
    let next = end + space(&text[end..]);
    match text[next..].chars().next() {
        Some('\n') if is_first => begin..next + 1,
        Some('\n') => start..end,
        _ if next >= within.end => within.start.max(text[..start].trim_end_matches([' ', '\t']).len())..end,
        _ if text[start..].starts_with(',') => start..end,
        _ => start..next,
    }
}

fn listed(fields: &[String]) -> String {
    fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(" and ")
}

/// Calls of the constructor with all arguments.
struct Constructors<'a> {
    of: String,
    implements: Option<String>,
    arguments: usize,
    found: Vec<&'a ExprCall>,
}

impl<'a> Visitor<'a> for Constructors<'a> {
    fn visit(&mut self, node: Node<'a>) {
        match node {
            Node::Item(Item::Impl(item)) => {
                let outer = std::mem::replace(&mut self.implements, last(&item.self_ty));
                node.walk(self);
                self.implements = outer;
                return;
            }
            Node::Expr(Expr::Call(call)) if self.is_constructor(call) => self.found.push(call),
            _ => {}
        }
        node.walk(self);
    }
}

impl Constructors<'_> {
    fn is_constructor(&self, call: &ExprCall) -> bool {
        let Some([of, function]) = path(&call.func) else { return false };
        let is_it = of == self.of || of == "Self" && self.implements.as_ref() == Some(&self.of);
        is_it && function == "new" && call.args.len() == self.arguments
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
            patch.edit(source, range, "", format!("`Config` generates `{setter}` for a field with a default"));
        }
    }
}

/// Methods of a type, without those of traits.
fn methods<'s>(items: &'s [Item], of: &str) -> Vec<&'s ImplItemFn> {
    let blocks = all_items(items).into_iter().filter_map(|item| match item {
        Item::Impl(item) if item.trait_.is_none() && last(&item.self_ty).as_deref() == Some(of) => Some(item),
        _ => None,
    });
    let to_function = |member: &'s ImplItem| if let ImplItem::Fn(function) = member { Some(function) } else { None };
    blocks.flat_map(|item| item.items.iter().filter_map(to_function)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_size_where_it_is_a_count() {
        for (ty, lacks_batch) in [("usize", false), ("Tensor<2>", true)] {
            let text = format!("struct TrainConfig {{ batch: {ty}, epochs: usize, lr: f64, seed: u64 }}");
            let file = syn::parse_file(&text).expect("Rust");
            let found: Vec<_> = candidates(&file.items).map(|it| it.lacks_batch).collect();
            assert_eq!(found, [lacks_batch], "{ty}");
        }
    }

    #[test]
    fn arguments_leave_a_list_with_its_comments() {
        for (before, kept, after) in [
            ("f(a, 64, 4)", &[true, false, false][..], "f(a)"),
            ("f(64, a, 4)", &[false, true, false], "f(a)"),
            ("f(64, 4, a)", &[false, false, true], "f(a)"),
            ("f(a, 64,)", &[true, false], "f(a,)"),
            ("f(64)", &[false], "f()"),
            ("f(a, 64 /* b */)", &[true, false], "f(a /* b */)"),
            ("f(\n    a, // a\n    64, // b\n    c,\n)", &[true, false, true], "f(\n    a, // a\n    // b\n    c,\n)"),
            ("f(\n    a, // a\n    64\n)", &[true, false], "f(\n    a // a\n)"),
            ("f(\n    64,\n    // c\n    c,\n)", &[false, true], "f(\n    // c\n    c,\n)"),
        ] {
            let call: ExprCall = syn::parse_str(before).expect("a call");
            let mut text = before.to_owned();
            let removed = unlisted(before, &call.args, inside(&call.paren_token.span), kept);
            removed.into_iter().rev().for_each(|range| text.replace_range(range, ""));
            assert_eq!(text, after, "{before}");
        }
    }
}
