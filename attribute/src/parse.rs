//! Parsing tokens into the model. Checks only the form `key = value`.

mod attributes;
#[cfg(all(test, feature = "sources"))]
mod tests;

use std::path::PathBuf;

use gpu_tuned_core::suggest;
use gpu_tuned_core::workload::ModelKind;
use gpu_tuned_project::workspace::dependency_name;
use proc_macro2::{Delimiter, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::format_ident;
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Expr, Fields, LitStr, Member, Meta, Path, Token, parse_quote};

pub(crate) use attributes::flatten;
pub use attributes::gives_default;
use attributes::{CLAP, FlatAttribute};

use crate::model::{Argument, Derives, Field, Helper, Mistakes, Model, Nested, Value, is_known_key};

/// Parses the attribute's arguments and the item below. Removes the `#[tuned]` attributes from the item.
///
/// # Errors
///
/// When the item is no struct, enum or union.
pub fn parse(attribute: TokenStream, item: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Model> {
    let before = mistakes.len();
    let arguments = arguments(attribute, mistakes);
    let has_valid_arguments = mistakes.len() == before;
    let mut item: DeriveInput = syn::parse2(item)?;
    remove_doubled(&mut item, mistakes);
    let derives = derives(&item);
    let fields = take_fields(&mut item, mistakes);
    let (root, allow) = (root(&arguments), allow_deprecated(&item));
    Ok(Model { root, allow, arguments, has_valid_arguments, item, fields, derives })
}

/// Returns `#[allow(deprecated)]` for an item with a deprecated part. Other items need none: it is an error under
/// `#![forbid(deprecated)]`.
pub fn allow_deprecated(item: &DeriveInput) -> Option<Attribute> {
    let is_deprecated = |attributes: &[Attribute]| {
        flatten(attributes).iter().any(|attribute| attribute.meta.path().is_ident("deprecated"))
    };
    let is_of_field = match &item.data {
        Data::Struct(data) => data.fields.iter().any(|field| is_deprecated(&field.attrs)),
        Data::Enum(_) | Data::Union(_) => false,
    };
    (is_of_field || is_deprecated(&item.attrs)).then(|| parse_quote!(#[allow(deprecated)]))
}

/// Returns the path of `crate = path`; that of the runtime's dependency without, or with a mistake.
fn root(arguments: &[Argument]) -> Path {
    let value = arguments.iter().find(|argument| argument.key == "crate").map(|argument| &argument.value);
    let given = if let Some(Value::Is(tokens)) = value { crate_path(tokens) } else { None };
    given.unwrap_or_else(runtime_path)
}

/// Returns the path of the runtime's crate, under the name that the manifest of the compiled package gives it: `::gpu_tuned`.
pub fn runtime_path() -> Path {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let name = package.and_then(|package| dependency_name(&package, RUNTIME)).unwrap_or_else(|| RUNTIME.to_owned());
    let name = format_ident!("{}", name.replace('-', "_"));
    parse_quote!(::#name)
}

const RUNTIME: &str = "gpu-tuned";

/// Parses a path to the runtime's crate, in quotes or without.
pub fn crate_path(tokens: &TokenStream) -> Option<Path> {
    let parse = Path::parse_mod_style;
    let quoted = syn::parse2::<LitStr>(tokens.clone()).ok();
    quoted.map_or_else(|| parse.parse2(tokens.clone()), |text| text.parse_with(parse)).ok()
}

/// Collects the derives below the attribute.
fn derives(item: &DeriveInput) -> Derives {
    let mut derives = Derives::default();
    for FlatAttribute { condition, meta } in flatten(&item.attrs) {
        let Meta::List(list) = &meta else { continue };
        if !list.path.is_ident("derive") {
            continue;
        }
        derives.any = true;
        let paths = list.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated).unwrap_or_default();
        for path in paths {
            let Some(last) = path.segments.last() else { continue };
            match last.ident.to_string().as_str() {
                "Config" | "BurnConfig" => derives.config.add(condition.clone()),
                "Parser" | "Args" => derives.clap.add(condition.clone()),
                "Default" | "SmartDefault" => derives.default = Some(path),
                _ => {}
            }
        }
    }
    derives
}

/// Removes further `#[gpu_tuned]`s, each of which is a mistake.
fn remove_doubled(item: &mut DeriveInput, mistakes: &mut Mistakes) {
    item.attrs.retain(|attribute| {
        let is_doubled = attribute.path().segments.last().is_some_and(|last| last.ident == "gpu_tuned");
        if is_doubled {
            mistakes
                .at(attribute, "`#[gpu_tuned]` is given twice")
                .help("a struct has one plan: keep one attribute, or use a struct for each model");
        }
        !is_doubled
    });
}

/// Removes every `#[tuned]` from the item and returns the named fields.
fn take_fields(item: &mut DeriveInput, mistakes: &mut Mistakes) -> Vec<Field> {
    let has_serde_default = flatten(&item.attrs).iter().any(|attribute| {
        attribute.meta.path().is_ident("serde")
            && attributes::arguments(attribute).any(|argument| argument.key == "default")
    });
    let remove_helpers = |attributes: &mut Vec<Attribute>| drop(attributes::remove(attributes, is_helper));
    match &mut item.data {
        Data::Struct(data) => {
            let named = matches!(data.fields, Fields::Named(_));
            let fields = data.fields.iter_mut().filter_map(|it| take_field(it, has_serde_default, mistakes));
            let fields: Vec<_> = fields.collect();
            if named { fields } else { Vec::new() }
        }
        Data::Enum(data) => {
            for variant in &mut data.variants {
                remove_helpers(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| remove_helpers(&mut field.attrs));
            }
            Vec::new()
        }
        Data::Union(data) => {
            data.fields.named.iter_mut().for_each(|field| remove_helpers(&mut field.attrs));
            Vec::new()
        }
    }
}

fn is_helper(meta: &Meta) -> bool {
    meta.path().is_ident("tuned")
}

fn take_field(field: &mut syn::Field, has_serde_default: bool, mistakes: &mut Mistakes) -> Option<Field> {
    let helpers = attributes::remove(&mut field.attrs, is_helper);
    let attributes = flatten(&field.attrs);
    let mut of_clap = attributes.iter().filter(|it| CLAP.iter().any(|name| it.meta.path().is_ident(name)));
    let has_action = of_clap
        .any(|it| attributes::arguments(it).any(|argument| argument.key == "action" || argument.key == "num_args"));
    Some(Field {
        ident: field.ident.clone()?,
        ty: field.ty.clone(),
        cfgs: attributes::cfgs(&field.attrs),
        helpers: helpers.into_iter().filter_map(|attribute| helper(attribute, mistakes)).collect(),
        defaults: attributes::defaults(&attributes, has_serde_default),
        has_action,
    })
}

fn helper(FlatAttribute { condition, meta }: FlatAttribute, mistakes: &mut Mistakes) -> Option<Helper> {
    match meta {
        Meta::Path(path) => Some(Helper { path, arguments: Vec::new(), condition }),
        Meta::List(list) => Some(Helper { path: list.path, arguments: arguments(list.tokens, mistakes), condition }),
        Meta::NameValue(pair) => {
            mistakes.at(pair, "expected `#[tuned]` or `#[tuned(key = value)]`");
            None
        }
    }
}

/// Parses `key, key = value, key(…)`. Reports parts of another form and parses the rest.
fn arguments(tokens: TokenStream, mistakes: &mut Mistakes) -> Vec<Argument> {
    let parts: Vec<_> = split(tokens).into_iter().flat_map(|part| split_missing_comma(part, mistakes)).collect();
    parts.into_iter().filter_map(|part| argument(part, mistakes)).collect()
}

fn argument(part: Vec<TokenTree>, mistakes: &mut Mistakes) -> Option<Argument> {
    let mut tokens = part.into_iter();
    let key = match tokens.next()? {
        // `r#layers` is the key `layers`.
        TokenTree::Ident(key) => key.unraw(),
        other => {
            let part: TokenStream = core::iter::once(other).chain(tokens).collect();
            mistakes.at(part, "expected `key = value`");
            return None;
        }
    };
    let rest: Vec<TokenTree> = tokens.collect();
    let value = match rest.as_slice() {
        [] => Value::Absent,
        [equals] if is(equals, '=') => {
            mistakes.at(&key, format!("`{key} =` has no value"));
            return None;
        }
        [equals, value @ ..] if is(equals, '=') => Value::Is(value.iter().cloned().collect()),
        [TokenTree::Group(group)]
            if ModelKind::named(&key.to_string()).is_some() && group.delimiter() == Delimiter::Parenthesis =>
        {
            Value::List(arguments(group.stream(), mistakes))
        }
        [TokenTree::Group(group)] if key == "dims" && group.delimiter() == Delimiter::Parenthesis => {
            nested_list(group.stream(), mistakes)
        }
        _ => {
            report_form(&key, &rest, mistakes);
            return None;
        }
    };
    Some(Argument { key, value })
}

/// Parses the list of `dims(…)`; an empty list is no value.
fn nested_list(tokens: TokenStream, mistakes: &mut Mistakes) -> Value {
    if tokens.is_empty() {
        return Value::Absent;
    }
    Value::Nested(split(tokens).into_iter().filter_map(|part| nested(part, mistakes)).collect())
}

/// Parses `dimension: path = default`. Without a path, the field has the dimension's name.
fn nested(mut part: Vec<TokenTree>, mistakes: &mut Mistakes) -> Option<Nested> {
    let own_name = match part.as_slice() {
        [TokenTree::Ident(key), colon, ..] if is(colon, ':') => key.clone(),
        _ => {
            let argument = argument(part, mistakes)?;
            return Some(Nested { path: vec![Member::Named(argument.key.clone())], argument });
        }
    };
    let end = part.iter().position(|token| is(token, '=')).unwrap_or(part.len());
    let path: TokenStream = part.drain(1..end).skip(1).collect();
    Some(Nested { path: members(&own_name, path, mistakes), argument: argument(part, mistakes)? })
}

/// Parses the fields of a path; empty after a mistake, because the dimension counts as given.
fn members(dim: &Ident, path: TokenStream, mistakes: &mut Mistakes) -> Vec<Member> {
    if path.is_empty() {
        mistakes.at(dim, format!("`{dim}:` has no field"));
        return Vec::new();
    }
    let Ok(members) = Punctuated::<Member, Token![.]>::parse_separated_nonempty.parse2(path.clone()) else {
        mistakes.at(path, "expected a field, such as `n_layers`, or a path of fields, such as `encoder.n_layers`");
        return Vec::new();
    };
    members.into_iter().collect()
}

/// Splits at the commas between arguments: none is in `Vec::<A, B>::new()`, `None as Option<Result<A, B>>` or `|a, b| a + b`.
fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut pieces = vec![Vec::new()];
    for token in tokens {
        let own_comma = usize::from(pieces.len() > 1);
        match pieces.last_mut() {
            Some(last) if !is(&token, ',') || last.len() == own_comma => last.push(token),
            _ => pieces.push(vec![token]),
        }
    }
    let mut parts: Vec<Vec<TokenTree>> = Vec::new();
    let mut pieces = pieces.as_slice();
    while let Some((first, rest)) = pieces.split_first() {
        let more = if may_continue(first) { continuation(first, rest) } else { 0 };
        let comma = usize::from(!parts.is_empty());
        parts.push(first[comma..].iter().chain(rest[..more].iter().flatten()).cloned().collect());
        pieces = &rest[more..];
    }
    parts
}

/// Returns true for an argument that a comma may not end: generic arguments or the parameters of a closure can be open.
fn may_continue(part: &[TokenTree]) -> bool {
    part.iter().any(|token| is(token, '<') || is(token, '|'))
}

/// Largest number of commas in a value, outside of brackets.
const MOST_COMMAS: usize = 32;

/// Counts the pieces, each from a comma on, that make the value of the first piece an expression; 0 if none do.
fn continuation(first: &[TokenTree], rest: &[Vec<TokenTree>]) -> usize {
    let begin = first.iter().position(|token| is(token, '=')).map_or(first.len(), |equals| equals + 1);
    let is_whole = |more: &usize| {
        let tokens = first[begin..].iter().chain(rest[..*more].iter().flatten()).cloned();
        syn::parse2::<Expr>(tokens.collect()).is_ok()
    };
    (0..=rest.len().min(MOST_COMMAS)).find(is_whole).unwrap_or(0)
}

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// Reports the mistake in `key` and the tokens after it, which are no argument.
fn report_form(key: &Ident, rest: &[TokenTree], mistakes: &mut Mistakes) {
    let place: TokenStream = rest.iter().cloned().collect();
    let is_model = ModelKind::named(&key.to_string()).is_some();
    match rest {
        [TokenTree::Group(group)] if is_model && group.delimiter() != Delimiter::Parenthesis => {
            mistakes.at(place, format!("`{key}` takes its dimensions in parentheses: `{key}(…)`"));
        }
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis && !is_known_key(&key.to_string()) => {
            report_model(key, mistakes);
        }
        _ => {
            mistakes.at(place, format!("expected `{key} = value`"));
        }
    }
}

fn report_model(key: &Ident, mistakes: &mut Mistakes) {
    let name = key.to_string();
    let near = suggest(&name, ModelKind::ALL.iter().map(|kind| kind.name));
    let mistake = mistakes.at(key, format!("there is no model `{name}`{near}"));
    if let Some(description) = ModelKind::description_of(&name).filter(|_| near.is_empty()) {
        mistake.help(format!("describe it as `{description}`"));
    }
    mistake.help(format!("there are {}", ModelKind::list()));
}

/// Splits an argument at semicolons and where a second `key =` follows a value, and reports the missing commas.
fn split_missing_comma(mut part: Vec<TokenTree>, mistakes: &mut Mistakes) -> Vec<Vec<TokenTree>> {
    let rest = if let Some(place) = part.iter().position(|token| is(token, ';')) {
        let rest = part.split_off(place + 1);
        mistakes.at(part.pop(), "expected `,`, found `;`");
        rest
    } else if let Some(place) = part.windows(3).position(begins_argument) {
        let rest = part.split_off(place + 1);
        mistakes.at(&rest[0], format!("a comma is missing before `{}`", rest[0]));
        rest
    } else {
        return vec![part];
    };
    [part, rest].into_iter().flat_map(|part| split_missing_comma(part, mistakes)).collect()
}

/// Returns true for a value followed by `key =`. After `let`, `mut` and `ref`, a name is a pattern.
fn begins_argument(three: &[TokenTree]) -> bool {
    let [before, TokenTree::Ident(_), TokenTree::Punct(equals)] = three else { return false };
    let is_value = match before {
        TokenTree::Ident(before) => !["let", "mut", "ref"].iter().any(|keyword| before == keyword),
        TokenTree::Group(_) | TokenTree::Literal(_) => true,
        TokenTree::Punct(_) => false,
    };
    is_value && equals.as_char() == '=' && equals.spacing() == Spacing::Alone
}

/// Largest depth of code that a macro parses: on 6 MiB of stack, which a thread of the compiler has left.
pub const DEEPEST_IN_MACROS: usize = 1_536;

/// Refuses code that is nested or chained too deeply. A step of depth takes the parser up to 4 KiB of stack, in a build without
/// optimisation.
///
/// # Errors
///
/// One at the place that is too deep.
pub fn check_depth(tokens: &TokenStream, deepest: usize) -> syn::Result<()> {
    let message = "code is nested or chained too deeply, and is not read";
    beyond(tokens, deepest).map_or(Ok(()), |place| Err(syn::Error::new(place, message)))
}

/// The place where the depth exceeds the limit.
///
/// Groups nest; so do operators, calls and generic arguments, at most once a token, until a comma, a semicolon or a block ends
/// them.
fn beyond(tokens: &TokenStream, deepest: usize) -> Option<Span> {
    let mut open = vec![(tokens.clone().into_iter().peekable(), 0, 0)];
    while let Some((tokens, depth, run)) = open.last_mut() {
        let Some(token) = tokens.next() else {
            open.pop();
            continue;
        };
        *run = if is_separator(&token) { 0 } else { *run + steps(&token) };
        let depth = *depth + *run;
        if depth > deepest {
            return Some(token.span());
        }
        if let TokenTree::Group(group) = token {
            let is_block = group.delimiter() == Delimiter::Brace;
            if is_block && !tokens.peek().is_some_and(continues_expression) {
                *run = 0;
            }
            open.push((group.stream().into_iter().peekable(), depth + IN_GROUP, 0));
        }
    }
    None
}

/// Steps of depth within a group, measured with syn 3.
const IN_GROUP: usize = 12;

/// Steps of depth for a token, measured with syn 3: types, and the arguments of closures, take more than operators and calls.
fn steps(token: &TokenTree) -> usize {
    match token {
        TokenTree::Punct(punct) if punct.as_char() == '<' => 16,
        TokenTree::Punct(punct) if punct.as_char() == '&' => 12,
        TokenTree::Punct(punct) if punct.as_char() == '|' => 4,
        _ => 1,
    }
}

fn is_separator(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | ';'))
}

/// Returns true if this token after a block belongs to what is before: `else`, a method, an operator.
fn continues_expression(token: &TokenTree) -> bool {
    match token {
        TokenTree::Ident(word) => word == "else" || word == "as",
        TokenTree::Punct(punct) => punct.as_char() != '#',
        _ => false,
    }
}
