use gpu_tuned_core::workload::ModelKind;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Member, Token};

use super::form;
use crate::mistakes::Mistakes;
use crate::model::{Argument, Nested, Value};

/// Parses `key, key = value, key(…)`. Reports parts of another form and parses the rest.
pub(crate) fn arguments(tokens: TokenStream, mistakes: &mut Mistakes) -> Vec<Argument> {
    let parts: Vec<_> = split(tokens).into_iter().flat_map(|part| form::split(part, mistakes)).collect();
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
        [TokenTree::Group(group)] if takes_list(&key.to_string()) && group.delimiter() == Delimiter::Parenthesis => {
            Value::List(arguments(group.stream(), mistakes))
        }
        [TokenTree::Group(group)] if key == "dims" && group.delimiter() == Delimiter::Parenthesis => {
            nested_list(group.stream(), mistakes)
        }
        _ => {
            form::report(&key, &rest, mistakes);
            return None;
        }
    };
    Some(Argument { key, value })
}

fn takes_list(key: &str) -> bool {
    ModelKind::named(key).is_some()
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

/// Splits at commas outside angle brackets, as in `Vec::<A, B>::new()`.
pub(super) fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = Vec::new();
    let mut part: Vec<TokenTree> = Vec::new();
    let mut depth = 0_u32;
    for token in tokens {
        let after = |characters: &[char]| part.last().is_some_and(|last| characters.iter().any(|it| is(last, *it)));
        if is(&token, ',') && depth == 0 && !part.is_empty() {
            parts.push(core::mem::take(&mut part));
            continue;
        }
        // Elsewhere `<` is a comparison; `->` and `=>` close nothing.
        if is(&token, '<') && (depth > 0 || after(&[':', '='])) {
            depth += 1;
        } else if is(&token, '>') && !after(&['-', '=']) {
            depth = depth.saturating_sub(1);
        }
        part.push(token);
    }
    parts.push(part);
    parts
}

pub(super) fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}
