//! A global batch in a field of the config: `global_batch = batch_size`.

use gpu_tuned_core::{SettingKind, suggest};
use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;
use syn::{LitStr, parse2};

use super::{fields, values};
use crate::keys;
use crate::mistakes::Mistakes;
use crate::model::{Argument, DefaultForm, Field, Model, Value};

/// The key that takes a field.
pub(super) const KEY: &str = "global_batch";

/// Returns the name after `global_batch =`. The struct may have no such field.
pub(super) fn named(arguments: &[Argument]) -> Option<Ident> {
    match &keys::find(arguments, KEY)?.value {
        Value::Is(tokens) => parse2(tokens.clone()).ok(),
        Value::Absent | Value::List(_) | Value::Nested(_) => None,
    }
}

/// Reads the field's default, with which the build plans.
pub(super) fn read(model: &Model, name: &Ident, mistakes: &mut Mistakes) -> Option<u64> {
    let unraw = name.unraw().to_string();
    let Some(field) = model.fields.iter().find(|field| field.name() == unraw) else {
        let names: Vec<_> = model.fields.iter().map(Field::name).collect();
        let near = suggest(&unraw, names.iter().map(String::as_str));
        let mistake = mistakes.at(name, format!("there is no field `{name}`{near}"));
        mistake.help("`global_batch` takes a number, or the field with the samples of an optimizer step");
        if unraw.chars().all(|character| !character.is_lowercase()) {
            mistake.help(values::CONSTANT);
        }
        return None;
    };
    let before = mistakes.len();
    if let Some(helper) = field.helpers.first().filter(|helper| helper.is_planned()) {
        mistakes.at(&helper.path, format!("`{name}` is the global batch, which is not planned")).help(
            "remove `#[tuned]`: micro-batches are planned all the same, and `session.strategy()` cuts steps into them",
        );
        return None;
    }
    fields::check_type(field, SettingKind::Count, "the global batch", mistakes);
    fields::check_is_there(field, mistakes);
    let samples = samples(model, field, name, mistakes)?;
    (mistakes.len() == before).then_some(samples)
}

fn samples(model: &Model, field: &Field, name: &Ident, mistakes: &mut Mistakes) -> Option<u64> {
    let ours = field.helpers.first().and_then(|helper| keys::find(&helper.arguments, "default"));
    let theirs = field.defaults.iter().find(|default| default.form == DefaultForm::Value);
    let Some(default) = ours.or_else(|| Some(&theirs?.unquoted)) else {
        let attribute = if model.derives.config.is_always() {
            "#[config(default = 64)]"
        } else if model.derives.clap.is_always() {
            "#[arg(default_value_t = 64)]"
        } else {
            "#[tuned(default = 64)]"
        };
        mistakes
            .at(name, format!("`{name}` needs a default: the build plans with it"))
            .help(format!("write `{attribute}` above it, with the samples that an optimizer step has"));
        return None;
    };
    let value = if let Value::Is(tokens) = &default.value { whole(tokens) } else { None };
    if value.is_none() {
        mistakes.at(default.place(), format!("the build plans with the default of `{name}`: expected a whole number"));
    }
    value
}

/// Parses a whole number, in quotes or without.
fn whole(tokens: &TokenStream) -> Option<u64> {
    let bare = parse2::<values::Number>(tokens.clone()).ok().map(|values::Number(count)| count);
    bare.or_else(|| parse2::<LitStr>(tokens.clone()).ok()?.value().parse().ok())
}
