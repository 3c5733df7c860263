//! Values of each kind, or a mistake that says what was expected.

use gpu_tuned_core::workload::{Optimizer, Stage};
use gpu_tuned_core::{Precision, suggest};
use proc_macro2::{Ident, TokenStream};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Lit, LitBool, LitFloat, LitInt, LitStr, Token, bracketed, parse_str, parse2};

use crate::error::Mistakes;
use crate::model::{Argument, Value};

const TEXT: &str = "a text in quotes";

pub(super) fn count(argument: &Argument, mistakes: &mut Mistakes) -> Option<u64> {
    let tokens = given(argument, "a literal whole number", mistakes)?;
    let literal = parse2::<LitInt>(tokens.clone()).ok();
    let value = literal.and_then(|literal| literal.base10_parse().ok());
    value.or_else(|| wrong(argument, tokens, "a literal whole number", mistakes))
}

pub(super) fn fraction(argument: &Argument, mistakes: &mut Mistakes) -> Option<f64> {
    const EXPECTED: &str = "a number, such as 0.1";
    let tokens = given(argument, EXPECTED, mistakes)?;
    let float = parse2::<LitFloat>(tokens.clone()).ok().and_then(|literal| literal.base10_parse().ok());
    let value = float.or_else(|| parse2::<LitInt>(tokens.clone()).ok()?.base10_parse().ok());
    value.or_else(|| wrong(argument, tokens, EXPECTED, mistakes))
}

pub(super) fn flag(argument: &Argument, mistakes: &mut Mistakes) -> Option<bool> {
    let tokens = given(argument, "true or false", mistakes)?;
    let value = parse2::<LitBool>(tokens.clone()).ok().map(|literal| literal.value);
    value.or_else(|| wrong(argument, tokens, "true or false", mistakes))
}

pub(super) fn text(argument: &Argument, mistakes: &mut Mistakes) -> Option<String> {
    let tokens = given(argument, TEXT, mistakes)?;
    let value = parse2::<LitStr>(tokens.clone()).ok().map(|literal| literal.value());
    value.or_else(|| wrong(argument, tokens, TEXT, mistakes))
}

/// A bare name, such as that of a setting.
pub(super) fn name(argument: &Argument, expected: &str, mistakes: &mut Mistakes) -> Option<String> {
    let tokens = given(argument, expected, mistakes)?;
    let value = parse2::<Ident>(tokens.clone()).ok().map(|ident| ident.to_string());
    value.or_else(|| wrong(argument, tokens, expected, mistakes))
}

pub(super) fn precision(argument: &Argument, mistakes: &mut Mistakes) -> Option<Precision> {
    named(argument, "precision", &Precision::ALL.map(|it| (it.name(), it)), mistakes)
}

pub(super) fn optimizer(argument: &Argument, mistakes: &mut Mistakes) -> Option<Optimizer> {
    named(argument, "optimizer", &Optimizer::ALL.map(|it| (it.name(), it)), mistakes)
}

pub(super) fn stages(argument: &Argument, mistakes: &mut Mistakes) -> Option<Vec<Stage>> {
    const EXPECTED: &str = "a list of [channels, blocks], such as [[64, 2], [128, 2]]";
    let tokens = given(argument, EXPECTED, mistakes)?;
    let read = parse2::<List<List<Number>>>(tokens.clone()).ok().and_then(|stages| {
        let stage = |List(pair): List<Number>| match pair.as_slice() {
            [channels, blocks] => Some(Stage { channels: channels.0, blocks: blocks.0 }),
            _ => None,
        };
        stages.0.into_iter().map(stage).collect()
    });
    read.or_else(|| wrong(argument, tokens, EXPECTED, mistakes))
}

/// A text that stands for one of `all`.
fn named<T: Copy>(argument: &Argument, kind: &str, all: &[(&str, T)], mistakes: &mut Mistakes) -> Option<T> {
    let text = text(argument, mistakes)?;
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    if found.is_none() {
        let names = || all.iter().map(|(name, _)| *name);
        let near = suggest(&text, names());
        let list: Vec<_> = names().collect();
        mistakes
            .at(argument.place(), format!("there is no {kind} `{text}`{near}"))
            .help(format!("expected {}", list.join(", ")));
    }
    found
}

fn given<'m>(argument: &'m Argument, expected: &str, mistakes: &mut Mistakes) -> Option<&'m TokenStream> {
    if let Value::Is(tokens) = &argument.value {
        return Some(tokens);
    }
    mistakes.at(&argument.key, format!("`{}` takes {expected}: write `{0} = …`", argument.name()));
    None
}

fn wrong<T>(argument: &Argument, found: &TokenStream, expected: &str, mistakes: &mut Mistakes) -> Option<T> {
    let mistake = mistakes.at(found, format!("`{}` takes {expected}", argument.name()));
    let is_bare = |text: &str| parse_str::<Lit>(text).is_ok() || parse_str::<Ident>(text).is_ok();
    match parse2::<LitStr>(found.clone()).ok().map(|literal| literal.value()) {
        Some(text) if expected != TEXT && is_bare(&text) => {
            mistake.help(format!("write it without quotes: {text}"));
        }
        None if expected == TEXT && parse2::<Ident>(found.clone()).is_ok() => {
            mistake.help(format!("write it with quotes: \"{found}\""));
        }
        _ => {}
    }
    None
}

struct Number(u64);

impl Parse for Number {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<LitInt>()?.base10_parse().map(Self)
    }
}

/// `[a, b, …]`
struct List<T>(Vec<T>);

impl<T: Parse> Parse for List<T> {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let content;
        bracketed!(content in input);
        Ok(Self(Punctuated::<T, Token![,]>::parse_terminated(&content)?.into_iter().collect()))
    }
}
