//! The item with defaults for other derives.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Field, parse_quote};

use super::literal;
use gpu_tuned_attribute::{Checked, Role};
use gpu_tuned_attribute::{Derives, Model, bare};

/// A derive that reads defaults from attributes.
#[derive(Clone, Copy)]
pub(crate) enum Derive {
    /// Burn's `Config`.
    Burn,
    /// Clap's `Parser` or `Args`.
    Clap,
}

impl Derive {
    /// Returns the derives that read defaults.
    pub(crate) fn among(derives: &Derives) -> Vec<Self> {
        let burn = derives.config.then_some(Self::Burn);
        let clap = derives.clap.then_some(Self::Clap);
        burn.into_iter().chain(clap).collect()
    }
}

pub(super) fn annotate(model: Model, checked: &Checked, docs: Option<String>) -> DeriveInput {
    let Model { mut item, fields: known, derives, .. } = model;
    let present = Derive::among(&derives);
    for ((field, known), role) in fields_mut(&mut item).zip(&known).zip(&checked.input.roles) {
        let value = match role {
            Role::Tuned(setting) => literal::held(known, checked.compiled.plan.settings.get(*setting)),
            Role::Dimension { default, is_declared: false, .. } => default.clone(),
            Role::Dimension { .. } | Role::Nested { .. } | Role::Untouched(_) => continue,
        };
        for derive in &present {
            inject(*derive, field, &value, known.has_action);
        }
    }
    if let Some(docs) = docs {
        item.attrs.push(parse_quote!(#[doc = #docs]));
    }
    item
}

/// Gives the field a default by the derive's own attribute.
pub(crate) fn inject(derive: Derive, field: &mut Field, value: &TokenStream, has_action: bool) {
    let literal = syn::parse2::<syn::Lit>(value.clone());
    let is_literal = literal.is_ok_and(|literal| !matches!(literal, syn::Lit::Str(_)));
    field.attrs.push(match derive {
        Derive::Burn if is_literal => parse_quote!(#[config(default = #value)]),
        // Burn takes one literal, and parses a string as an expression.
        Derive::Burn => {
            let text: String = value.to_string().split_whitespace().collect();
            parse_quote!(#[config(default = #text)])
        }
        // Clap makes a bool a switch, which cannot be turned off.
        Derive::Clap if is_flag(field) && !has_action => {
            parse_quote!(#[arg(default_value_t = #value, action = ::clap::ArgAction::Set)])
        }
        Derive::Clap => parse_quote!(#[arg(default_value_t = #value)]),
    });
}

fn is_flag(field: &Field) -> bool {
    bare(&field.ty).to_token_stream().to_string() == quote!(bool).to_string()
}

/// The named fields.
pub(crate) fn fields_mut(item: &mut DeriveInput) -> impl Iterator<Item = &mut Field> {
    let data = if let Data::Struct(data) = &mut item.data { Some(data) } else { None };
    data.into_iter().flat_map(|data| data.fields.iter_mut())
}
