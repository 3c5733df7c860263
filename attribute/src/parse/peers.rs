//! Defaults of fields in the attributes of other derives.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{Lit, LitStr, Meta, Path};

use super::arguments::{is, split};
use super::conditional::FlatAttribute;
use crate::model::{Argument, DefaultForm, ForeignDefault, Value};

/// Attributes of other derives, each with a key that gives a field a default. Derives are not looked at: an attribute
/// without its derive does not compile.
#[rustfmt::skip]
const DEFAULTS: &[(&str, &str, DefaultForm)] = &[
    // Burn's `Config`, and confique's.
    ("config", "default", DefaultForm::Value),
    // clap's `Parser` and `Args`, by any name in `CLAP`.
    ("arg", "default_value_t", DefaultForm::Value),
    ("arg", "default_value", DefaultForm::Value),
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
    matches!(literal, Lit::Int(_) | Lit::Float(_) | Lit::Bool(_)).then(|| Value::Is(quote::quote!(#literal)))
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
