//! Parsing tokens into the model. Checks only the form `key = value`.

mod arguments;
pub(crate) mod conditional;
mod form;
mod item;
mod peers;

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::{Attribute, Data, DeriveInput, LitStr, Path, parse_quote};

use arguments::arguments;
pub use peers::gives_default;

use crate::mistakes::Mistakes;
use crate::model::{Argument, Model, Value};

/// Parses the attribute's arguments and the item below. Removes the `#[tuned]` attributes from the item.
///
/// # Errors
///
/// When the item is no struct, enum or union.
pub fn parse(attribute: TokenStream, item: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Model> {
    let before = mistakes.len();
    let arguments = arguments(attribute, mistakes);
    let has_valid_arguments = mistakes.len() == before;
    let mut item: DeriveInput = syn::parse2(item)?;
    item::remove_doubled(&mut item, mistakes);
    let derives = item::derives(&item);
    let fields = item::take_fields(&mut item, mistakes);
    let (root, allow) = (root(&arguments), allow_deprecated(&item));
    Ok(Model { root, allow, arguments, has_valid_arguments, item, fields, derives })
}

/// Returns `#[allow(deprecated)]` for an item with a deprecated part. Other items need none: it is an error under
/// `#![forbid(deprecated)]`.
pub fn allow_deprecated(item: &DeriveInput) -> Option<Attribute> {
    let is_deprecated = |attributes: &[Attribute]| {
        conditional::flatten(attributes).iter().any(|attribute| attribute.meta.path().is_ident("deprecated"))
    };
    let is_of_field = match &item.data {
        Data::Struct(data) => data.fields.iter().any(|field| is_deprecated(&field.attrs)),
        Data::Enum(_) | Data::Union(_) => false,
    };
    (is_of_field || is_deprecated(&item.attrs)).then(|| parse_quote!(#[allow(deprecated)]))
}

/// Returns the path of `crate = path`; `::gpu_tuned` without, or with a mistake.
fn root(arguments: &[Argument]) -> Path {
    let value = arguments.iter().find(|argument| argument.key == "crate").map(|argument| &argument.value);
    let given = if let Some(Value::Is(tokens)) = value { crate_path(tokens) } else { None };
    given.unwrap_or_else(|| parse_quote!(::gpu_tuned))
}

/// Parses a path to the runtime's crate, in quotes or without.
pub fn crate_path(tokens: &TokenStream) -> Option<Path> {
    let parse = Path::parse_mod_style;
    let quoted = syn::parse2::<LitStr>(tokens.clone()).ok();
    quoted.map_or_else(|| parse.parse2(tokens.clone()), |text| text.parse_with(parse)).ok()
}
