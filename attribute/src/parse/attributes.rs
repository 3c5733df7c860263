//! Attributes of other macros: those behind conditions of `cfg_attr`, and defaults of fields.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Lit, LitStr, Meta, Path, Token, parse_quote, parse_quote_spanned};

use super::{is, split};
use crate::model::{Argument, DefaultForm, ForeignDefault, Value};

/// An attribute, taken out of the `cfg_attr`s around it.
pub(crate) struct FlatAttribute {
    /// The conditions of the `cfg_attr`s as one; `None` without.
    pub(crate) condition: Option<TokenStream>,
    pub(crate) meta: Meta,
}

/// Returns the attributes, in order, with those in a `cfg_attr`.
pub(crate) fn flatten(attributes: &[Attribute]) -> Vec<FlatAttribute> {
    let mut found = Vec::new();
    for attribute in attributes {
        take(attribute.meta.clone(), &[], &|_| true, &mut found);
    }
    found
}

/// Removes the attributes of this name, also from a `cfg_attr`, and returns them.
pub(super) fn remove(attributes: &mut Vec<Attribute>, is_meant: impl Fn(&Meta) -> bool) -> Vec<FlatAttribute> {
    let mut found = Vec::new();
    attributes.retain_mut(|attribute| {
        let before = found.len();
        let rest = take(attribute.meta.clone(), &[], &is_meant, &mut found);
        match rest {
            // An untouched attribute keeps its tokens.
            Some(rest) if found.len() > before => attribute.meta = rest,
            Some(_) => {}
            None => return found.len() == before,
        }
        true
    });
    found
}

/// Moves the attributes that are meant to `found`, and returns the others.
fn take(
    meta: Meta,
    around: &[TokenStream],
    is_meant: &dyn Fn(&Meta) -> bool,
    found: &mut Vec<FlatAttribute>,
) -> Option<Meta> {
    let Some((condition, inner)) = parts(&meta) else {
        if !is_meant(&meta) {
            return Some(meta);
        }
        let condition = match around {
            [] => None,
            [only] => Some(only.clone()),
            several => Some(quote!(all(#(#several),*))),
        };
        found.push(FlatAttribute { condition, meta });
        return None;
    };
    let around = [around, core::slice::from_ref(&condition)].concat();
    let rest: Vec<Meta> = inner.into_iter().filter_map(|meta| take(meta, &around, is_meant, found)).collect();
    if rest.is_empty() { None } else { Some(parse_quote!(cfg_attr(#condition, #(#rest),*))) }
}

/// Returns the condition and the attributes of a `cfg_attr`; `None` for another attribute.
fn parts(meta: &Meta) -> Option<(TokenStream, Vec<Meta>)> {
    let Meta::List(list) = meta else { return None };
    if !list.path.is_ident("cfg_attr") {
        return None;
    }
    let condition: TokenStream = list.tokens.clone().into_iter().take_while(|token| !is(token, ',')).collect();
    let rest: TokenStream = list.tokens.clone().into_iter().skip_while(|token| !is(token, ',')).skip(1).collect();
    let inner = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(rest).ok()?;
    Some((condition, inner.into_iter().collect()))
}

/// Returns the `cfg`s among the attributes. Of those in a `cfg_attr`, the condition is part of the `cfg`.
pub(crate) fn cfgs(attributes: &[Attribute]) -> Vec<Attribute> {
    let of_attribute = |attribute: &Attribute| {
        if attribute.path().is_ident("cfg") {
            return vec![attribute.clone()];
        }
        let cfg = |FlatAttribute { condition, meta }: FlatAttribute| match meta {
            Meta::List(list) if list.path.is_ident("cfg") => {
                let inner = &list.tokens;
                Some(parse_quote_spanned!(list.span()=> #[cfg(any(not(#condition), #inner))]))
            }
            _ => None,
        };
        flatten(core::slice::from_ref(attribute)).into_iter().filter_map(cfg).collect()
    };
    attributes.iter().flat_map(of_attribute).collect()
}

/// Attributes of other derives, each with a key that gives a field a default. Derives are not looked at: an attribute
/// without its derive does not compile.
#[rustfmt::skip]
const DEFAULTS: &[(&str, &str, DefaultForm)] = &[
    // Burn's `Config`, and confique's.
    ("config", "default", DefaultForm::Value),
    // clap's `Parser` and `Args`, by any name in `CLAP`.
    ("arg", "default_value_t", DefaultForm::Value),
    ("arg", "default_value", DefaultForm::Value),
    ("arg", "skip", DefaultForm::Value),
    ("arg", "default_value_os", DefaultForm::Hidden),
    ("arg", "default_value_os_t", DefaultForm::Hidden),
    ("arg", "default_values", DefaultForm::Hidden),
    ("arg", "default_values_t", DefaultForm::Hidden),
    ("arg", "default_value_if", DefaultForm::Hidden),
    ("arg", "default_value_ifs", DefaultForm::Hidden),
    // serde's `Deserialize`.
    ("serde", "default", DefaultForm::Function),
    ("serde", "skip", DefaultForm::Hidden),
    ("serde", "skip_deserializing", DefaultForm::Hidden),
    // bon, typed-builder and derive_builder.
    ("builder", "default", DefaultForm::Value),
    ("builder", "default_code", DefaultForm::Value),
    ("builder", "skip", DefaultForm::Value),
    ("builder", "field", DefaultForm::Value),
    // educe and derivative.
    ("educe", "Default", DefaultForm::Value),
    ("derivative", "Default", DefaultForm::Value),
    // argh, gumdrop, derive-new and facet.
    ("argh", "default", DefaultForm::Value),
    ("options", "default", DefaultForm::Value),
    ("new", "default", DefaultForm::Value),
    ("new", "value", DefaultForm::Value),
    ("facet", "default", DefaultForm::Value),
];

/// Names of the attribute in which clap's derive takes the settings of an argument: `arg`, and the older ones.
pub(super) const CLAP: [&str; 3] = ["arg", "clap", "structopt"];

/// Collects the defaults of a field. `#[serde(default)]` on the struct gives skipped fields the planned value.
pub(super) fn defaults(attributes: &[FlatAttribute], has_serde_default: bool) -> Vec<ForeignDefault> {
    let mut found = Vec::new();
    let mut has_config = false;
    for attribute in attributes {
        let is_config = attribute.meta.path().is_ident("config");
        // Burn reads only the first `config` attribute.
        if is_config && core::mem::replace(&mut has_config, true) {
            continue;
        }
        found.extend(arguments(attribute).filter_map(|argument| default(attribute, argument)));
    }
    let is_skipped = |default: &ForeignDefault| default.attribute == "serde" && default.argument.key != "default";
    found.retain(|default| !(has_serde_default && is_skipped(default)));
    found
}

/// Returns true if this key gives a field a default in an attribute of this name.
pub fn gives_default(attribute: &Path, key: &Path) -> bool {
    attribute.get_ident().zip(key.get_ident()).is_some_and(|(name, key)| form(name, key).is_some())
}

fn form(name: &Ident, key: &Ident) -> Option<DefaultForm> {
    let is_clap = CLAP.iter().any(|of_clap| name == of_clap);
    let is_name = |attribute: &str| if is_clap { attribute == CLAP[0] } else { name == attribute };
    Some(DEFAULTS.iter().find(|(attribute, default, _)| is_name(attribute) && key == default)?.2)
}

fn default(attribute: &FlatAttribute, argument: Argument) -> Option<ForeignDefault> {
    let name = attribute.meta.path().get_ident()?;
    let form = form(name, &argument.key)?;
    let value = if form == DefaultForm::Value { unquoted(&argument.value) } else { None };
    let value = value.unwrap_or_else(|| argument.value.clone());
    let unquoted = Argument { key: argument.key.clone(), value };
    Some(ForeignDefault {
        attribute: name.clone(),
        argument,
        unquoted,
        form,
        is_conditional: attribute.condition.is_some(),
    })
}

/// Returns the number or flag of a text: some derives take expressions in quotes.
fn unquoted(value: &Value) -> Option<Value> {
    let Value::Is(tokens) = value else { return None };
    let text = syn::parse2::<LitStr>(tokens.clone()).ok()?;
    let literal = text.parse::<Lit>().ok()?;
    matches!(literal, Lit::Int(_) | Lit::Float(_) | Lit::Bool(_)).then(|| Value::Is(quote!(#literal)))
}

/// Returns the arguments of another macro's attribute: `key`, `key = value` and `key(…)`. That macro reports its own
/// mistakes.
pub(super) fn arguments(attribute: &FlatAttribute) -> impl Iterator<Item = Argument> {
    let tokens = if let Meta::List(list) = &attribute.meta { list.tokens.clone() } else { TokenStream::new() };
    split(tokens).into_iter().filter_map(|part| {
        let (TokenTree::Ident(key), rest) = (part.first()?.clone(), &part[1..]) else { return None };
        let value = match rest {
            [] => Value::Absent,
            [equals, value @ ..] if is(equals, '=') => Value::Is(value.iter().cloned().collect()),
            _ => Value::List(Vec::new()),
        };
        Some(Argument { key, value })
    })
}
