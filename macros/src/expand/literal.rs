//! Values as tokens.

use gpu_tuned_attribute::{Field, Holder};
use gpu_tuned_core::dims::{Choices, Dim, DimKind, DimValue, PRODUCT_KEYS, Presence, Schema};
use gpu_tuned_core::{Goal, Precision, SettingKind, SettingValue, Settings};
use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;

/// Returns an unsuffixed whole number.
pub(super) fn count(value: u64) -> Literal {
    Literal::u64_unsuffixed(value)
}

/// Returns a struct expression: the fields with an expression, and the defaults of the others.
pub(super) fn structure(path: &TokenStream, dims: &[Dim], value: impl Fn(&Dim) -> Option<TokenStream>) -> TokenStream {
    let fields: Vec<_> = dims
        .iter()
        .filter_map(|dim| {
            let name = format_ident!("{}", dim.name);
            let value = value(dim)?;
            let value = if dim.presence == Presence::Optional { some(&value) } else { value };
            Some(quote!(#name: #value))
        })
        .collect();
    quote!(#path { #(#fields,)* ..::core::default::Default::default() })
}

fn some(value: &TokenStream) -> TokenStream {
    quote!(::core::option::Option::Some(#value))
}

/// Returns the value of a dimension.
pub(super) fn dim(kind: &DimKind, value: &DimValue) -> TokenStream {
    let counts = |counts: &[u64]| counts.iter().map(|it| count(*it)).collect::<Vec<_>>();
    match (kind, value) {
        (_, DimValue::Count(value)) => count(*value).to_token_stream(),
        (_, DimValue::Flag(flag)) => flag.to_token_stream(),
        (_, DimValue::Number(number)) => Literal::f64_unsuffixed(*number).to_token_stream(),
        (DimKind::Choice(choices), DimValue::Choice(name)) => variant(choices, name),
        (DimKind::ChoiceList(choices), DimValue::ChoiceList(names)) => {
            let variants = names.iter().map(|name| variant(choices, name));
            quote!(::std::vec![#(#variants),*])
        }
        (_, DimValue::Counts(values)) => {
            let values = counts(values);
            quote!(::std::vec![#(#values),*])
        }
        (_, DimValue::Stages(stages)) => {
            let stages = stages.iter().map(|stage| {
                let [channels, blocks] = stage.map(count);
                quote!(::gpu_tuned::workload::Stage { channels: #channels, blocks: #blocks })
            });
            quote!(::std::vec![#(#stages),*])
        }
        (_, DimValue::Product(sizes)) => {
            let fields = PRODUCT_KEYS.iter().zip(sizes).map(|(key, size)| {
                let (key, size) = (format_ident!("{key}"), count(*size));
                quote!(#key: #size)
            });
            quote!(::gpu_tuned::workload::Product { #(#fields),* })
        }
        (_, DimValue::Choice(_) | DimValue::ChoiceList(_)) => TokenStream::new(),
    }
}

/// Returns the path of a name's variant.
fn variant(choices: &Choices, name: &str) -> TokenStream {
    let found = choices.names.iter().find(|(known, _)| *known == name);
    let (_, variant) = found.expect("BUG: the name was read as one of these");
    let path = choices.path.split("::").map(|part| format_ident!("{part}"));
    let variant: TokenStream = variant.parse().expect("BUG: a variant is Rust");
    quote!(::gpu_tuned #(::#path)* ::#variant)
}

/// Returns the value of a setting in the form of its field.
pub(super) fn held(field: &Field, value: SettingValue) -> TokenStream {
    let SettingValue::Precision(precision) = value else { return setting(value) };
    match field.holder(SettingKind::Precision) {
        Some(Holder::Text { is_owned: true }) => {
            let name = precision.name();
            quote!(::std::string::String::from(#name))
        }
        Some(Holder::Text { is_owned: false }) => precision.name().to_token_stream(),
        Some(Holder::Switch) => precision.is_mixed().to_token_stream(),
        Some(Holder::Plain | Holder::Enum) | None => {
            let (ty, variant) = (&field.ty, format_ident!("{precision:?}"));
            quote_spanned!(ty.span()=> ::gpu_tuned::__precision_variant!(#ty, #variant))
        }
    }
}

pub(super) fn setting(value: SettingValue) -> TokenStream {
    match value {
        SettingValue::Count(value) => count(value).to_token_stream(),
        SettingValue::Flag(flag) => flag.to_token_stream(),
        SettingValue::Precision(value) => variant(&Precision::CHOICES, value.name()),
    }
}

pub(crate) fn settings(settings: &Settings) -> TokenStream {
    let values = gpu_tuned_core::Setting::ALL.map(|it| {
        let name = quote::format_ident!("{}", it.name());
        let value = setting(settings.get(it));
        quote!(#name: #value)
    });
    quote!(::gpu_tuned::Settings { #(#values),* })
}

pub(super) fn goal(goal: &Goal) -> TokenStream {
    let values = goal.values();
    structure(&quote!(::gpu_tuned::Goal), Goal::DIMS, |it| Some(dim(&it.kind, values.get(it.name)?)))
}
