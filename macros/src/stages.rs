//! The attribute's stages: parse, check, expand.

use std::path::PathBuf;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;

use crate::expand::expand;
use crate::fallback::fallback;
use gpu_tuned_attribute::Mistakes;
use gpu_tuned_attribute::Table;
use gpu_tuned_attribute::parse;
use gpu_tuned_attribute::{DEEPEST_IN_MACROS, check, check_depth};

/// The variable with the directory for expansions.
const EXPAND_DIR: &str = "GPU_TUNED_EXPAND_DIR";

/// Expands the item, or returns it with every mistake.
pub(crate) fn run(attribute: TokenStream, item: &TokenStream, table: Table) -> TokenStream {
    if let Err(error) = [&attribute, item].into_iter().try_for_each(|tokens| check_depth(tokens, DEEPEST_IN_MACROS)) {
        let error = error.to_compile_error();
        return quote!(#error #item);
    }
    let mut mistakes = Mistakes::default();
    let model = match parse(attribute, item.clone(), &mut mistakes) {
        Ok(model) => model,
        Err(error) => {
            let place = quote_spanned!(error.span()=> item);
            mistakes.at(place, "`#[gpu_tuned]` needs a struct with named fields");
            return quote!(#mistakes #item);
        }
    };
    let Some(checked) = check(&model, table, &mut mistakes) else {
        let item = fallback(model);
        return quote!(#mistakes #item);
    };
    let name = model.item.ident.unraw().to_string();
    let expansion = expand(model, &checked);
    show(&name, &expansion).err().map_or(expansion.clone(), |error| {
        mistakes.at(TokenStream::new(), format!("{EXPAND_DIR}: {error}"));
        quote!(#mistakes #expansion)
    })
}

/// Writes the expansion to the variable's directory, if the variable is set.
fn show(name: &str, expansion: &TokenStream) -> std::io::Result<()> {
    let Some(directory) = std::env::var_os(EXPAND_DIR).map(PathBuf::from) else { return Ok(()) };
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(name).with_extension("rs"), expansion.to_string())
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
