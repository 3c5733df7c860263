//! Expansion of a checked model.

mod annotate;
mod default;
mod document;
mod literal;
mod tuned;
mod workload;

use proc_macro2::TokenStream;
use quote::quote;

pub(crate) use annotate::{fields_mut, inject};
pub(crate) use literal::settings;

use gpu_tuned_attribute::{Checked, Model};

/// Expands to the item with defaults and documentation, `Default` for plain structs, and `Tuned`.
pub(crate) fn expand(model: Model, checked: &Checked) -> TokenStream {
    let default = (!model.derives.config.is_always()).then(|| default::implement(&model, checked));
    let tuned = tuned::implement(&model, checked);
    let docs = document::document(&model, checked);
    // Clap shows a struct's documentation as its help text.
    let (of_item, of_impl) = if model.derives.clap.is_possible() { (None, Some(docs)) } else { (Some(docs), None) };
    let item = annotate::annotate(model, checked, of_item);
    let of_impl = of_impl.map(|docs| quote!(#[doc = #docs]));
    quote! {
        #item
        #default
        #of_impl
        #tuned
    }
}
