//! Values as tokens.

use gpu_tuned_attribute::{Field, Holder};
use gpu_tuned_core::dims::{Choices, Dim, DimKind, DimValue, PRODUCT_KEYS, Presence, Schema};
use gpu_tuned_core::{Goal, Kernels, Precision, SettingKind, SettingValue, Settings};
use proc_macro2::{Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Path, Type};

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
    let rest = (fields.len() < dims.len()).then(|| quote!(..::std::default::Default::default()));
    quote!(#path { #(#fields,)* #rest })
}

fn some(value: &TokenStream) -> TokenStream {
    quote!(::std::option::Option::Some(#value))
}

/// Returns the value of a dimension.
pub(super) fn dim(root: &Path, kind: &DimKind, value: &DimValue) -> TokenStream {
    let counts = |counts: &[u64]| counts.iter().map(|it| count(*it)).collect::<Vec<_>>();
    match (kind, value) {
        (_, DimValue::Count(value)) => count(*value).to_token_stream(),
        (_, DimValue::Flag(flag)) => flag.to_token_stream(),
        (_, DimValue::Number(number)) => Literal::f64_unsuffixed(*number).to_token_stream(),
        (DimKind::Choice(choices), DimValue::Choice(name)) => variant(root, choices, name),
        (DimKind::ChoiceList(choices), DimValue::ChoiceList(names)) => {
            let variants = names.iter().map(|name| variant(root, choices, name));
            quote!(::std::vec![#(#variants),*])
        }
        (_, DimValue::Counts(values)) => {
            let values = counts(values);
            quote!(::std::vec![#(#values),*])
        }
        (_, DimValue::Stages(stages)) => {
            let stages = stages.iter().map(|stage| {
                let [channels, blocks] = stage.map(count);
                quote!(#root::workload::Stage { channels: #channels, blocks: #blocks })
            });
            quote!(::std::vec![#(#stages),*])
        }
        (_, DimValue::Product(sizes)) => {
            let fields = PRODUCT_KEYS.iter().zip(sizes).map(|(key, size)| {
                let (key, size) = (format_ident!("{key}"), count(*size));
                quote!(#key: #size)
            });
            quote!(#root::workload::Product { #(#fields),* })
        }
        (_, DimValue::Choice(_) | DimValue::ChoiceList(_)) => TokenStream::new(),
    }
}

/// Returns the path of a name's variant.
fn variant(root: &Path, choices: &Choices, name: &str) -> TokenStream {
    let found = choices.names.iter().find(|(known, _)| *known == name);
    let (_, variant) = found.expect("BUG: the name was read as one of these");
    let path = choices.path.split("::").map(|part| format_ident!("{part}"));
    let variant: TokenStream = variant.parse().expect("BUG: a variant is Rust");
    quote!(#root #(::#path)* ::#variant)
}

/// Returns the value of a setting in the form of its field.
pub(super) fn held(root: &Path, field: &Field, value: SettingValue) -> TokenStream {
    let precision = match value {
        SettingValue::Precision(precision) => precision,
        SettingValue::Kernels(kernels) => return held_kernels(root, field, kernels),
        SettingValue::Count(_) | SettingValue::Flag(_) => return setting(root, value),
    };
    match field.holder(SettingKind::Precision) {
        Some(Holder::Text { is_owned }) => text(precision.name(), is_owned),
        Some(Holder::Switch) => precision.is_mixed().to_token_stream(),
        Some(Holder::Plain | Holder::Enum) | None => {
            let (ty, variant) = (&field.ty, format_ident!("{precision:?}"));
            let root = locate(root, ty);
            quote_spanned!(place(ty)=> #root::__precision_variant!(#ty, #variant))
        }
    }
}

/// Returns kernels in the form of their field.
fn held_kernels(root: &Path, field: &Field, kernels: Kernels) -> TokenStream {
    match field.holder(SettingKind::Kernels) {
        Some(Holder::Text { is_owned }) => text(kernels.name(), is_owned),
        Some(Holder::Switch) => kernels.is_library().to_token_stream(),
        Some(Holder::Plain | Holder::Enum) | None => setting(root, kernels.into()),
    }
}

/// Returns a text as a `String` or a `&str`.
fn text(text: &str, is_owned: bool) -> TokenStream {
    if is_owned { quote!(::std::borrow::ToOwned::to_owned(#text)) } else { text.to_token_stream() }
}

/// Returns the path with the place of the type, where the compiler then reports errors of a macro call.
pub(super) fn locate(root: &Path, ty: &Type) -> TokenStream {
    let with_place = |mut token: TokenTree| {
        token.set_span(token.span().located_at(ty.span()));
        token
    };
    root.to_token_stream().into_iter().map(with_place).collect()
}

/// Returns the span of generated code about a type: the compiler points at the type, which `macro_rules!` may have got from
/// elsewhere than the struct.
pub(crate) fn place(ty: &Type) -> Span {
    Span::mixed_site().located_at(ty.span())
}

pub(super) fn setting(root: &Path, value: SettingValue) -> TokenStream {
    match value {
        SettingValue::Count(value) => count(value).to_token_stream(),
        SettingValue::Flag(flag) => flag.to_token_stream(),
        SettingValue::Precision(value) => variant(root, &Precision::CHOICES, value.name()),
        SettingValue::Kernels(value) => variant(root, &Kernels::CHOICES, value.name()),
    }
}

pub(crate) fn settings(root: &Path, settings: &Settings) -> TokenStream {
    let values = gpu_tuned_core::Setting::ALL.map(|it| {
        let name = quote::format_ident!("{}", it.name());
        let value = setting(root, settings.get(it));
        quote!(#name: #value)
    });
    quote!(#root::Settings { #(#values),* })
}

pub(super) fn goal(root: &Path, goal: &Goal) -> TokenStream {
    let values = goal.values();
    structure(&quote!(#root::Goal), Goal::DIMS, |it| Some(dim(root, &it.kind, values.get(it.name)?)))
}
