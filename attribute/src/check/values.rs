//! Values of each kind, and the workload from the dimensions of the attribute and of the fields.

use std::collections::BTreeMap;

use gpu_tuned_core::dims::{Choices, Dim, DimKind, DimValue, DimValues, PRODUCT_KEYS, Presence, Schema};
use gpu_tuned_core::workload::{ModelKind, ModelSpec, Training, WorkloadSpec};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, LitBool, LitInt, LitStr, Token, bracketed, parse_str, parse2};

use crate::model::{Argument, Mistakes, Value, check_keys};

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
    let near = choices.suggest(text);
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
    // Settings and dimensions are named without quotes.
    let is_word = |text: &str| expected.contains("name") && parse_str::<Ident>(text).is_ok();
    let is_bare = |text: &str| parse_str::<Lit>(text).is_ok() || is_word(text);
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
                Err(_) => Some("no setting and no dimension is that large".to_owned()),
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
    fn has_name(tokens: TokenStream) -> bool {
        let mut after_name = false;
        tokens.into_iter().any(|token| {
            let is_name = match &token {
                TokenTree::Ident(_) => true,
                TokenTree::Punct(punct) => punct.as_char() == '!',
                _ => false,
            };
            let is_called = core::mem::replace(&mut after_name, is_name);
            match token {
                TokenTree::Ident(name) => name.to_string().contains(char::is_uppercase),
                TokenTree::Group(group) => is_called || has_name(group.stream()),
                _ => false,
            }
        })
    }
    parse2::<ExprLit>(tokens.clone()).is_err()
        && parse2::<Expr>(tokens.clone()).is_ok_and(|value| !matches!(value, Expr::Array(_)))
        && has_name(tokens.clone())
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

/// A number with or without a point, and with the suffix of a type or without.
struct Real(f64);

impl Parse for Real {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let literal: Lit = input.parse()?;
        let (value, suffix) = match &literal {
            Lit::Int(literal) => (literal.base10_parse()?, literal.suffix()),
            Lit::Float(literal) => (literal.base10_parse()?, literal.suffix()),
            other => return Err(syn::Error::new(other.span(), "no number")),
        };
        let is_type = suffix.is_empty() || ["f32", "f64"].contains(&suffix) || INTEGERS.contains(&suffix);
        if is_type { Ok(Self(value)) } else { Err(syn::Error::new(literal.span(), "a unit")) }
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

/// The dimensions given so far, each with its place.
pub(super) struct Dims<'m> {
    given: BTreeMap<&'static str, Given<'m>>,
    /// True after a mistake in a dimension: a dimension that seems to be missing may be the wrong one.
    has_faults: bool,
}

struct Given<'m> {
    /// The argument with the value.
    argument: &'m Argument,
    value: Option<DimValue>,
}

impl<'m> Dims<'m> {
    /// Reads the training keys of the attribute.
    pub(super) fn from_training(arguments: &'m [Argument], mistakes: &mut Mistakes) -> Self {
        let mut dims = Self { given: BTreeMap::new(), has_faults: false };
        dims.take(arguments, Training::DIMS, mistakes);
        dims
    }

    /// Reads the dimensions in a family's list.
    pub(super) fn read(&mut self, owner: &Argument, kind: &ModelKind, list: &'m [Argument], mistakes: &mut Mistakes) {
        let names: Vec<_> = kind.dims.iter().map(|dim| dim.name).collect();
        let before = mistakes.len();
        check_keys(list, &owner.name(), &names, mistakes);
        self.has_faults |= mistakes.len() > before;
        self.take(list, kind.dims, mistakes);
    }

    fn take(&mut self, arguments: &'m [Argument], known: &'static [Dim], mistakes: &mut Mistakes) {
        let before = mistakes.len();
        for argument in arguments {
            if let Some(known) = known.iter().find(|known| argument.key == known.name) {
                let value = dim(&known.kind, argument, mistakes);
                self.given.entry(known.name).or_insert(Given { argument, value });
            }
        }
        self.has_faults |= mistakes.len() > before;
    }

    /// Adds the dimension of a field, named at `place`.
    pub(super) fn add(
        &mut self,
        dim: &'static Dim,
        place: impl ToTokens,
        argument: &'m Argument,
        value: Option<DimValue>,
        mistakes: &mut Mistakes,
    ) {
        if self.given.contains_key(dim.name) {
            mistakes
                .at(place, format!("the dimension `{}` is given twice", dim.name))
                .help("give it by one field, or in the attribute");
            return;
        }
        self.given.insert(dim.name, Given { argument, value });
    }

    /// Records a mistake in a dimension's field.
    pub(super) fn mark_faulty(&mut self) {
        self.has_faults = true;
    }

    /// Returns the workload of a family. Reports dimensions that are missing, out of range or contradictory.
    pub(super) fn spec(self, family: &Ident, kind: &ModelKind, mistakes: &mut Mistakes) -> Option<WorkloadSpec> {
        let is_missing = |dim: &&Dim| dim.presence == Presence::Required && !self.given.contains_key(dim.name);
        let missing: Vec<_> = kind.dims.iter().filter(is_missing).collect();
        if !missing.is_empty() && !self.has_faults {
            report_missing(&missing, family, mistakes);
        }
        let mut values = self.values(kind.dims);
        for dim in kind.dims.iter().filter(|dim| dim.presence == Presence::Required) {
            values.entry(dim.name).or_insert_with(|| dim.kind.placeholder());
        }
        let is_complete = missing.is_empty() && self.given.values().all(|given| given.value.is_some());
        self.checked(ModelSpec::from_values(kind, &values), &Training::default(), is_complete, mistakes)
    }

    /// Returns the named workload, with the training keys of the attribute over those of the file.
    pub(super) fn over(self, named: WorkloadSpec, mistakes: &mut Mistakes) -> Option<WorkloadSpec> {
        let is_complete = self.given.values().all(|given| given.value.is_some());
        self.checked(named.model, &named.training, is_complete, mistakes)
    }

    fn checked(
        &self,
        model: ModelSpec,
        training: &Training,
        is_complete: bool,
        mistakes: &mut Mistakes,
    ) -> Option<WorkloadSpec> {
        let mut values = training.values();
        values.extend(self.values(Training::DIMS));
        let spec = WorkloadSpec { model, training: Training::from_values(&values) };
        // Placeholders of missing dimensions would contradict the others.
        let found = if is_complete { spec.mistakes() } else { self.out_of_range(spec.model.kind()) };
        for (name, message) in found {
            let place = self.given.get(name).map(|given| given.argument.place());
            mistakes.at(place.unwrap_or_default(), message);
        }
        is_complete.then_some(spec)
    }

    fn out_of_range(&self, kind: &ModelKind) -> Vec<(&'static str, String)> {
        let dims = kind.dims.iter().chain(Training::DIMS);
        dims.filter_map(|dim| Some((dim.name, dim.mistake(self.given.get(dim.name)?.value.as_ref()?)?))).collect()
    }

    fn values(&self, dims: &[Dim]) -> DimValues {
        dims.iter().filter_map(|dim| Some((dim.name, self.given.get(dim.name)?.value.clone()?))).collect()
    }
}

/// Reports the missing dimensions of a family, with the places where they can be given.
fn report_missing(missing: &[&Dim], family: &Ident, mistakes: &mut Mistakes) {
    let names: Vec<_> = missing.iter().map(|dim| dim.name).collect();
    let mistake = mistakes.at(family, format!("`{family}` needs {}", names.join(", ")));
    mistake.help(format!("give dimensions here: `{family}({} = …)`", names.join(" = …, ")));
    if let Some(dim) = missing.iter().find(|dim| matches!(dim.kind, DimKind::Count(_) | DimKind::Flag)) {
        mistake.help(format!("or take them from fields: `#[tuned(dim = {}, default = …)]`", dim.name));
    }
}
