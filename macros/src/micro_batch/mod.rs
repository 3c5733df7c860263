//! `#[derive(MicroBatch)]`: parse, check, expand.

mod check;
mod expand;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use gpu_tuned_attribute::{DEEPEST_IN_MACROS, Mistakes, check_depth};

/// Returns the implementation, or every mistake beside a placeholder implementation.
pub(crate) fn run(item: TokenStream) -> TokenStream {
    let parsed = check_depth(&item, DEEPEST_IN_MACROS).and_then(|()| syn::parse2(item));
    let item: DeriveInput = match parsed {
        Ok(item) => item,
        Err(error) => return error.to_compile_error(),
    };
    let mut mistakes = Mistakes::default();
    let root = check::root(&item, &mut mistakes);
    let fields = check::check(&item, &mut mistakes);
    let expansion = expand::Expansion { root, item: &item };
    let implementation = if mistakes.is_empty() { expansion.expand(&fields) } else { expansion.stand_in() };
    quote!(#mistakes #implementation)
}
