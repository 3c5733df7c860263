//! Parsing tokens into the model. Checks only the form `key = value`.

mod arguments;
mod form;
mod item;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use arguments::arguments;

use crate::mistakes::Mistakes;
use crate::model::Model;

/// Parses the attribute's arguments and the item below. Removes the `#[tuned]` attributes from the item.
///
/// # Errors
///
/// When the item is no struct, enum or union.
pub fn parse(attribute: TokenStream, item: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Model> {
    let before = mistakes.len();
    let arguments = arguments(attribute, mistakes);
    let has_whole_arguments = mistakes.len() == before;
    let mut item: DeriveInput = syn::parse2(item)?;
    let derives = item::derives(&item);
    let fields = item::take_fields(&mut item, &derives, mistakes);
    Ok(Model { arguments, has_whole_arguments, item, fields, derives })
}
