//! Parsing values of each kind.

use gpu_tuned_core::dims::{Choices, DimKind, DimValue, PRODUCT_KEYS};
use gpu_tuned_core::suggest;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, LitBool, LitFloat, LitInt, LitStr, Token, bracketed, parse_str, parse2};

use crate::mistakes::Mistakes;
use crate::model::{Argument, Value};

const TEXT: &str = "a text in quotes";
const WHOLE: &str = "a literal whole number";

/// Parses the value of a dimension.
pub(super) fn dim(kind: &DimKind, argument: &Argument, mistakes: &mut Mistakes) -> Option<DimValue> {
    match kind {
        DimKind::Count(_) => read(argument, WHOLE, mistakes, |Number(count)| Some(DimValue::Count(count))),
        DimKind::Flag => read(argument, "true or false", mistakes, |flag: LitBool| Some(DimValue::Flag(flag.value))),
        DimKind::Number(_) => {
            read(argument, "a number, such as 0.1", mistakes, |Real(number)| Some(DimValue::Number(number)))
        }
        DimKind::Choice(choices) => choice(argument, choices, mistakes).map(DimValue::Choice),
        DimKind::ChoiceList(choices) => choice_list(argument, choices, mistakes).map(DimValue::ChoiceList),
        DimKind::Counts(_) => read(argument, &kind.expected(), mistakes, |List(counts): List<Number>| {
            Some(DimValue::Counts(counts.into_iter().map(|Number(count)| count).collect()))
        }),
        DimKind::Stages => read(argument, &kind.expected(), mistakes, |List(stages): List<List<Number>>| {
            stages.iter().map(sizes).collect::<Option<_>>().map(DimValue::Stages)
        }),
        DimKind::Product => {
            let expected = format!("a list [{}]", PRODUCT_KEYS.join(", "));
            read(argument, &expected, mistakes, |list: List<Number>| sizes(&list).map(DimValue::Product))
        }
    }
}

fn read<P: Parse>(
    argument: &Argument,
    expected: &str,
    mistakes: &mut Mistakes,
    value: impl FnOnce(P) -> Option<DimValue>,
) -> Option<DimValue> {
    let tokens = given(argument, expected, mistakes)?;
    let read = parse2::<P>(tokens.clone()).ok().and_then(value);
    read.or_else(|| wrong(argument, tokens, expected, mistakes))
}

fn sizes<const N: usize>(List(numbers): &List<Number>) -> Option<[u64; N]> {
    numbers.iter().map(|Number(size)| *size).collect::<Vec<_>>().try_into().ok()
}

pub(super) fn text(argument: &Argument, mistakes: &mut Mistakes) -> Option<String> {
    let tokens = given(argument, TEXT, mistakes)?;
    let value = parse2::<LitStr>(tokens.clone()).ok().map(|literal| literal.value());
    value.or_else(|| wrong(argument, tokens, TEXT, mistakes))
}

/// Parses a bare name, such as the name of a setting.
pub(super) fn name(argument: &Argument, expected: &str, mistakes: &mut Mistakes) -> Option<String> {
    let tokens = given(argument, expected, mistakes)?;
    let value = parse2::<Ident>(tokens.clone()).ok().map(|ident| ident.unraw().to_string());
    value.or_else(|| wrong(argument, tokens, expected, mistakes))
}

/// Parses one of several names in quotes.
fn choice(argument: &Argument, choices: &Choices, mistakes: &mut Mistakes) -> Option<String> {
    let text = text(argument, mistakes)?;
    known(&text, &argument.place(), choices, mistakes).then_some(text)
}

fn choice_list(argument: &Argument, choices: &Choices, mistakes: &mut Mistakes) -> Option<Vec<String>> {
    let expected = format!("a list of texts, such as [\"{}\"]", choices.names[0].0);
    let tokens = given(argument, &expected, mistakes)?;
    let Ok(List(texts)) = parse2::<List<LitStr>>(tokens.clone()) else {
        return wrong(argument, tokens, &expected, mistakes);
    };
    // Checks each text, so that all mistakes are reported at once.
    let good: Vec<_> = texts.iter().filter(|text| known(&text.value(), text, choices, mistakes)).collect();
    (good.len() == texts.len()).then(|| texts.iter().map(LitStr::value).collect())
}

fn known(text: &str, place: &impl ToTokens, choices: &Choices, mistakes: &mut Mistakes) -> bool {
    let names = || choices.names.iter().map(|(name, _)| *name);
    if names().any(|name| name == text) {
        return true;
    }
    let near = suggest(text, names());
    let list: Vec<_> = names().collect();
    mistakes
        .at(place, format!("there is no {} `{text}`{near}", choices.what))
        .help(format!("expected {}", list.join(", ")));
    false
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
    if let Some(help) = remedy(found, expected) {
        mistake.help(help);
    }
    None
}

/// Returns the way to write a value of another form.
fn remedy(found: &TokenStream, expected: &str) -> Option<String> {
    let is_bare = |text: &str| parse_str::<Lit>(text).is_ok() || parse_str::<Ident>(text).is_ok();
    match parse2::<Lit>(found.clone()).ok() {
        // No whole number is negative, in quotes or without.
        Some(Lit::Str(text)) if expected == WHOLE && text.value().starts_with('-') => None,
        Some(Lit::Str(text)) if expected != TEXT && is_bare(&text.value()) => {
            let inner = text.value().parse().ok().and_then(|inner| remedy(&inner, expected));
            Some(inner.unwrap_or_else(|| format!("write it without quotes: {}", text.value())))
        }
        Some(Lit::Float(number)) if expected == WHOLE => {
            let value = number.base10_parse::<f64>().ok().filter(|value| value.fract() == 0.0)?;
            let is_count = value.is_sign_positive() && value < 1e15;
            is_count.then(|| format!("write it without a point, an exponent or a suffix: {value}"))
        }
        Some(Lit::Int(number)) if expected == WHOLE && !number.base10_digits().starts_with('-') => {
            match number.base10_parse::<i64>() {
                Ok(_) if number.suffix().is_empty() => None,
                Ok(count) => Some(format!("write it without a suffix: {count}")),
                Err(_) => Some(format!("the largest is {}", i64::MAX)),
            }
        }
        Some(_) => None,
        None if expected == TEXT && parse2::<Ident>(found.clone()).is_ok() => {
            Some(format!("write it with quotes: \"{found}\""))
        }
        None => is_computed(found).then(|| CONSTANT.to_owned()),
    }
}

/// Returns true for an expression with a constant or a call; a single word in lower case may be a typing error.
fn is_computed(tokens: &TokenStream) -> bool {
    let has_name = |token: TokenTree| match token {
        TokenTree::Ident(name) => name.to_string().contains(char::is_uppercase),
        TokenTree::Group(_) => true,
        _ => false,
    };
    parse2::<ExprLit>(tokens.clone()).is_err()
        && parse2::<Expr>(tokens.clone()).is_ok_and(|value| !matches!(value, Expr::Array(_)))
        && tokens.clone().into_iter().any(has_name)
}

/// The integer types.
pub(super) const INTEGERS: [&str; 12] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];

/// The reason why an attribute takes no constants.
pub(super) const CONSTANT: &str = "the attribute is expanded before constants have values: write the value itself";

/// A whole number, with the suffix of an integer or without.
pub(super) struct Number(pub(super) u64);

impl Parse for Number {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let literal: LitInt = input.parse()?;
        // TOML has no integer above.
        let count = literal.base10_parse::<u64>()?;
        let is_integer = literal.suffix().is_empty() || INTEGERS.contains(&literal.suffix());
        match i64::try_from(count) {
            Ok(_) if is_integer => Ok(Self(count)),
            Ok(_) => Err(syn::Error::new(literal.span(), "no integer")),
            Err(_) => Err(syn::Error::new(literal.span(), "too large")),
        }
    }
}

/// A number with or without a point.
struct Real(f64);

impl Parse for Real {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitInt) {
            input.parse::<LitInt>()?.base10_parse()
        } else {
            input.parse::<LitFloat>()?.base10_parse()
        }
        .map(Self)
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
