//! The item with defaults for other derives.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Field, parse_quote};

use super::literal;
use gpu_tuned_attribute::{Checked, DerivePresence, Derives, Field as Known, Model, Role, bare};

/// A derive that reads defaults from attributes.
#[derive(Clone, Copy)]
enum Derive {
    /// Burn's `Config`.
    Burn,
    /// Clap's `Parser` or `Args`.
    Clap,
}

impl Derive {
    const ALL: [Self; 2] = [Self::Burn, Self::Clap];

    fn presence(self, derives: &Derives) -> &DerivePresence {
        match self {
            Self::Burn => &derives.config,
            Self::Clap => &derives.clap,
        }
    }

    /// Returns true if the field has a default for this derive.
    fn has_default(self, known: &Known) -> bool {
        let names: &[&str] = match self {
            Self::Burn => &["config"],
            Self::Clap => &["arg", "clap"],
        };
        known.defaults.iter().any(|default| names.iter().any(|name| default.attribute == name))
    }
}

pub(super) fn annotate(model: Model, checked: &Checked, docs: Option<String>) -> DeriveInput {
    let Model { root, mut item, fields: known, derives, .. } = model;
    for ((field, known), role) in fields_mut(&mut item).zip(&known).zip(&checked.input.roles) {
        let value = match role {
            Role::Tuned(setting) => literal::held(&root, known, checked.compiled.plan.settings.get(*setting)),
            Role::Dimension { default, .. } => default.clone(),
            Role::Nested { .. } | Role::Untouched(_) => continue,
        };
        inject(&derives, field, known, &value);
    }
    if let Some(docs) = docs {
        item.attrs.push(parse_quote!(#[doc = #docs]));
    }
    item
}

/// Gives the field a default by the attribute of each derive, under the conditions of the derive and of `#[tuned]`.
pub(crate) fn inject(derives: &Derives, field: &mut Field, known: &Known, value: &TokenStream) {
    for derive in Derive::ALL.into_iter().filter(|derive| !derive.has_default(known)) {
        let of_derive = match derive.presence(derives) {
            DerivePresence::Never => continue,
            DerivePresence::If(condition) => Some(condition),
            DerivePresence::Always => None,
        };
        let attribute = attribute(derive, field, value, known.has_action);
        let conditions: Vec<_> = of_derive.into_iter().chain(known.condition()).collect();
        field.attrs.push(match conditions[..] {
            [] => parse_quote!(#[#attribute]),
            _ => parse_quote!(#[cfg_attr(all(#(#conditions),*), #attribute)]),
        });
    }
}

fn attribute(derive: Derive, field: &Field, value: &TokenStream, has_action: bool) -> TokenStream {
    let literal = syn::parse2::<syn::Lit>(value.clone());
    let is_literal = literal.is_ok_and(|literal| !matches!(literal, syn::Lit::Str(_)));
    match derive {
        Derive::Burn if is_literal => quote!(config(default = #value)),
        // Burn takes one literal, and parses a string as an expression.
        Derive::Burn => {
            let text: String = value.to_string().split_whitespace().collect();
            quote!(config(default = #text))
        }
        // Clap makes a bool a switch, which cannot be turned off. Its own derive names `clap`, too.
        Derive::Clap if is_flag(field) && !has_action => {
            quote!(arg(default_value_t = #value, action = clap::ArgAction::Set))
        }
        Derive::Clap => quote!(arg(default_value_t = #value)),
    }
}

fn is_flag(field: &Field) -> bool {
    bare(&field.ty).to_token_stream().to_string() == quote!(bool).to_string()
}

/// The named fields.
pub(crate) fn fields_mut(item: &mut DeriveInput) -> impl Iterator<Item = &mut Field> {
    let data = if let Data::Struct(data) = &mut item.data { Some(data) } else { None };
    data.into_iter().flat_map(|data| data.fields.iter_mut())
}
