use gpu_tuned_core::workload::ModelKind;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::ext::IdentExt;

use crate::error::Mistakes;
use crate::model::{Argument, Value};

/// Reads `key, key = value, key(…)`. A part that is none of these is a mistake; the others are still read.
pub(crate) fn arguments(tokens: TokenStream, mistakes: &mut Mistakes) -> Vec<Argument> {
    split(tokens).into_iter().filter_map(|part| argument(part, mistakes)).collect()
}

fn argument(part: Vec<TokenTree>, mistakes: &mut Mistakes) -> Option<Argument> {
    let mut tokens = part.into_iter();
    let key = match tokens.next()? {
        // `r#layers` means what `layers` does.
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
        _ => {
            let rest: TokenStream = rest.into_iter().collect();
            mistakes.at(rest, format!("expected `{key} = value`"));
            return None;
        }
    };
    Some(Argument { key, value })
}

fn takes_list(key: &str) -> bool {
    ModelKind::named(key).is_some()
}

/// Cuts at commas, but not at those inside the angle brackets of a value: `Vec::<A, B>::new()`.
fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut parts = Vec::new();
    let mut part: Vec<TokenTree> = Vec::new();
    let mut depth = 0_u32;
    for token in tokens {
        let after = |characters: &[char]| part.last().is_some_and(|last| characters.iter().any(|it| is(last, *it)));
        if is(&token, ',') && depth == 0 && !part.is_empty() {
            parts.push(core::mem::take(&mut part));
            continue;
        }
        // Elsewhere `<` compares, and `->` and `=>` close nothing.
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

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}
