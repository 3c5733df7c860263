//! From tokens to the model. Nothing is judged here beyond the shape of `key = value`.

mod arguments;
mod item;

use proc_macro2::TokenStream;
use syn::DeriveInput;

pub(crate) use arguments::arguments;

use crate::error::Mistakes;
use crate::model::Model;

/// Reads the attribute's arguments and the item below it, which loses its `#[tuned]` attributes.
///
/// # Errors
///
/// When the item is not a struct, enum or union at all.
pub(crate) fn parse(attribute: TokenStream, item: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Model> {
    let arguments = arguments(attribute, mistakes);
    let mut item: DeriveInput = syn::parse2(item)?;
    let derives = item::derives(&item);
    let fields = item::take_fields(&mut item, &derives, mistakes);
    Ok(Model { arguments, item, fields, derives })
}
