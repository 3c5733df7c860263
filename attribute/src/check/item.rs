//! The item itself: a struct with named fields, above its derives, without a `Default` of its own.

use proc_macro2::TokenStream;
use syn::{Data, Fields};

use super::global_batch;
use crate::mistakes::Mistakes;
use crate::model::{Helper, Model};

pub(super) fn check(model: &Model, mistakes: &mut Mistakes) {
    if let Some(found) = other_than_named_struct(&model.item.data) {
        mistakes
            .at(&model.item.ident, format!("`#[gpu_tuned]` needs a struct with named fields, this is {found}"))
            .help("put the settings into a config struct, such as `struct Config { #[tuned] batch_size: usize }`");
        return;
    }
    if !model.derives.any {
        mistakes
            .at(TokenStream::new(), "`#[gpu_tuned]` must stand above `#[derive(…)]`, there is no derive below it")
            .help("move it above: derives have to see the defaults that it writes")
            .help("a struct without derives needs one, such as `#[derive(Clone, Debug)]`");
    }
    if let Some(default) = model.derives.default.as_ref().filter(|_| !model.derives.config.is_always()) {
        mistakes
            .at(default, "`#[gpu_tuned]` implements `Default` with the tuned values; deriving it too is a conflict")
            .help(
                "remove `Default` from the derive; `#[tuned(default = …)]` gives other fields a default of their own",
            );
    }
    let mut helpers = model.fields.iter().flat_map(|field| &field.helpers);
    // With the global batch in a field, the session applies all settings.
    let has_global_batch = global_batch::named(&model.arguments).is_some();
    if !helpers.any(Helper::is_planned) && !has_global_batch && mistakes.is_empty() {
        mistakes
            .at(&model.item.ident, format!("no field of `{}` is tuned", model.item.ident))
            .help("mark the fields that the build should fill: `#[tuned] batch_size: usize`");
    }
}

fn other_than_named_struct(data: &Data) -> Option<&'static str> {
    match data {
        Data::Struct(data) => match data.fields {
            Fields::Named(_) => None,
            Fields::Unnamed(_) => Some("a tuple struct"),
            Fields::Unit => Some("a struct without fields"),
        },
        Data::Enum(_) => Some("an enum"),
        Data::Union(_) => Some("a union"),
    }
}
