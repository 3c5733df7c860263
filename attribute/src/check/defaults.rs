//! Defaults of a field: ours, and those of other derives.

use gpu_tuned_core::Setting;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{ExprPath, Lit, LitInt, LitStr};

use super::values;
use crate::mistakes::Mistakes;
use crate::model::{Argument, DefaultForm, Field, ForeignDefault, Value};

/// Returns true for tokens that parse as an expression. Other tokens would break the whole expansion.
pub(super) fn is_expression(tokens: &TokenStream) -> bool {
    syn::parse2::<syn::Expr>(tokens.clone()).is_ok()
}

/// Returns the default of a user's own field by another macro's attribute: clap's expression, serde's function, or a
/// number or flag of the field's own type.
pub fn peer_default(field: &Field) -> Option<TokenStream> {
    field.defaults.iter().filter(|default| !default.is_conditional).find_map(|default| {
        let Value::Is(tokens) = &default.argument.value else { return None };
        if default.form == DefaultForm::Function {
            let path = syn::parse2::<LitStr>(tokens.clone()).ok()?.parse::<ExprPath>().ok()?;
            return Some(quote!(#path()));
        }
        // Clap reports values that are no expressions.
        if default.argument.key == "default_value_t" && is_expression(tokens) {
            return Some(tokens.clone());
        }
        let Value::Is(tokens) = &default.unquoted.value else { return None };
        is_literal_of(tokens, field).then(|| tokens.clone())
    })
}

/// Returns true for a number or a flag of the field's type.
fn is_literal_of(tokens: &TokenStream, field: &Field) -> bool {
    let types: &[&str] = match syn::parse2::<Lit>(tokens.clone()) {
        Ok(Lit::Bool(_)) => &["bool"],
        Ok(Lit::Float(_)) => &["f32", "f64"],
        Ok(Lit::Int(_)) => &values::INTEGERS,
        _ => &[],
    };
    field.type_name().is_some_and(|name| types.contains(&name.as_str()))
}

/// Reports a default in `#[tuned]` on a tuned field.
pub(super) fn refuse(default: &Argument, setting: Setting, mistakes: &mut Mistakes) {
    refuse_at(default.place(), default, default, setting, "", mistakes);
}

/// Reports a default of another macro on a tuned field.
pub(super) fn refuse_foreign(default: &ForeignDefault, setting: Setting, mistakes: &mut Mistakes) {
    let ForeignDefault { attribute, argument, unquoted, .. } = default;
    let instead = if attribute == "serde" {
        "; `#[serde(default)]` above the struct gives every missing key its default"
    } else {
        ""
    };
    let place = if let Value::List(_) = argument.value { argument.key.to_token_stream() } else { quote!(#argument) };
    refuse_at(place, argument, unquoted, setting, instead, mistakes);
}

/// Reports a default on a tuned field, with advice for both possible intentions.
fn refuse_at(
    place: TokenStream,
    default: &Argument,
    unquoted: &Argument,
    setting: Setting,
    instead: &str,
    mistakes: &mut Mistakes,
) {
    let text =
        if let Value::List(_) = default.value { format!("{}(…)", default.key) } else { quote!(#default).to_string() };
    let mistake = mistakes.at(place, format!("the build plans `{setting}`, so it cannot have a default of its own"));
    mistake.help(format!("drop `{text}` to train with the planned value{instead}"));
    if setting != Setting::BatchSize {
        return;
    }
    let literal = if let Value::Is(value) = &unquoted.value { syn::parse2::<LitInt>(value.clone()).ok() } else { None };
    match literal {
        Some(value) => mistake.help(format!(
            "or, if {value} samples make an optimizer step, write `#[gpu_tuned(…, global_batch = {value})]`"
        )),
        None => mistake.help(
            "or, if the default is the samples of an optimizer step, write that number: `#[gpu_tuned(…, global_batch = …)]`",
        ),
    };
}

/// Returns the only default of a dimension: ours, or another macro's.
pub(super) fn for_dimension<'m>(
    field: &'m Field,
    dim: &Argument,
    ours: Option<&'m Argument>,
    mistakes: &mut Mistakes,
) -> Option<&'m Argument> {
    let theirs = field.defaults.iter().find(|default| default.form == DefaultForm::Value);
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => {
            mistakes
                .at(ours, format!("`#[{}]` gives this field a default already", theirs.attribute))
                .help("keep one of them");
            None
        }
        (Some(ours), None) => Some(ours),
        (None, Some(theirs)) => Some(&theirs.unquoted),
        (None, None) => {
            let name = dim.place();
            mistakes
                .at(dim, "a dimension needs a default: the build plans with it")
                .help(format!("write `#[tuned(dim = {name}, default = …)]`, with the value that most runs have"));
            None
        }
    }
}
