//! Defaults of a field: ours, Burn's and clap's.

use gpu_tuned_core::Setting;
use proc_macro2::TokenStream;
use syn::LitInt;

use crate::mistakes::Mistakes;
use crate::model::{Argument, Field, Value};

/// Returns true for tokens that parse as an expression. Other tokens would break the whole expansion.
pub(super) fn is_expression(tokens: &TokenStream) -> bool {
    syn::parse2::<syn::Expr>(tokens.clone()).is_ok()
}

/// Returns clap's default of a user's own field. Clap reports values that are no expressions.
pub(super) fn from_clap(field: &Field) -> Option<TokenStream> {
    let typed = field.defaults.iter().find(|default| default.argument.key == "default_value_t")?;
    if let Value::Is(tokens) = &typed.argument.value { Some(tokens.clone()).filter(is_expression) } else { None }
}

/// Reports a default on a tuned field, with advice for both possible intentions.
pub(super) fn refuse(default: &Argument, place: TokenStream, setting: Setting, mistakes: &mut Mistakes) {
    let text = quote::quote!(#default);
    let mistake = mistakes.at(place, format!("the build plans `{setting}`, so it cannot have a default of its own"));
    mistake.help(format!("drop `{text}` to train with the planned value"));
    let Value::Is(value) = &default.value else { return };
    if setting == Setting::BatchSize && syn::parse2::<LitInt>(value.clone()).is_ok() {
        mistake.help(format!(
            "or, if {value} samples make an optimizer step, write `#[gpu_tuned(…, global_batch = {value})]`"
        ));
    }
}

/// Returns the only default of a dimension: ours, or another macro's.
pub(super) fn for_dimension<'m>(
    field: &'m Field,
    dim: &Argument,
    ours: Option<&'m Argument>,
    mistakes: &mut Mistakes,
) -> Option<&'m Argument> {
    let theirs = field.defaults.first();
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => {
            mistakes
                .at(ours, format!("`#[{}]` gives this field a default already", theirs.attribute))
                .help("keep one of them");
            None
        }
        (Some(ours), None) => Some(ours),
        (None, Some(theirs)) if theirs.argument.key == "default_value" => {
            mistakes
                .at(&theirs.argument, "the build plans with a dimension's default, and cannot read one in quotes")
                .help("write `default_value_t = …`");
            None
        }
        (None, Some(theirs)) => Some(&theirs.argument),
        (None, None) => {
            let name = dim.place();
            mistakes
                .at(dim, "a dimension needs a default: the build plans with it")
                .help(format!("write `#[tuned(dim = {name}, default = …)]`, with the value that most runs have"));
            None
        }
    }
}
