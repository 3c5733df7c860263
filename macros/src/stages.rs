//! The attribute's stages: parse, check, expand.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gpu_tuned_attribute::{DEEPEST_IN_MACROS, Mistakes, Model, Table, check, check_depth, parse};
use gpu_tuned_core::{Settings, atomic_file};
use proc_macro2::{TokenStream, TokenTree};
use quote::quote_spanned;
use syn::ext::IdentExt;
use syn::{Attribute, DeriveInput};

use crate::expand::{EXPAND_DIR, expand, fields_mut, inject, settings};

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
            if is_struct(item) {
                mistakes.at(place, format!("`#[gpu_tuned]` cannot read this struct: {error}"));
            } else {
                mistakes.at(place, "`#[gpu_tuned]` needs a struct with named fields");
            }
            return quote!(#mistakes #item);
        }
    };
    let Some(checked) = check(&model, table, &mut mistakes) else {
        let item = fallback(model);
        return quote!(#mistakes #item);
    };
    let (name, place) = (model.item.ident.unraw().to_string(), model.item.ident.span());
    let expansion = expand(model, &checked);
    let Some(directory) = std::env::var_os(EXPAND_DIR).filter(|directory| !directory.is_empty()) else {
        return expansion;
    };
    let krate = std::env::var_os("CARGO_CRATE_NAME").unwrap_or_default();
    let directory = Path::new(&directory).join(krate);
    // The compiler's spans print their places.
    let path = directory.join(file_name(&directory, &name, format!("{place:?}")));
    let written = std::fs::create_dir_all(&directory).and_then(|()| atomic_file::replace(&path, expansion.to_string()));
    let Err(error) = written else { return expansion };
    mistakes
        .at(TokenStream::new(), format!("cannot write the expansion to `{}`: {error}", path.display()))
        .help(format!("name a folder that can be written in {EXPAND_DIR}, or unset the variable"));
    quote!(#mistakes #expansion)
}

/// Returns the name of the file for the expansion of the struct `name` at `place`: `NAME.rs`; `NAME-2.rs` for the next struct
/// of this name that a process expands.
fn file_name(directory: &Path, name: &str, place: String) -> String {
    static PLACES: Mutex<BTreeMap<PathBuf, Vec<String>>> = Mutex::new(BTreeMap::new());
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = places.entry(directory.join(name)).or_default();
    let index = known.iter().position(|known| *known == place).unwrap_or_else(|| {
        known.push(place);
        known.len() - 1
    });
    if index == 0 { format!("{name}.rs") } else { format!("{name}-{}.rs", index + 1) }
}

/// Returns true for tokens that begin a struct, whatever follows.
fn is_struct(item: &TokenStream) -> bool {
    let is_word = |token: TokenTree| matches!(token, TokenTree::Ident(word) if word == "struct");
    item.clone().into_iter().any(is_word)
}

/// Returns the item beside mistakes: without our attributes, with placeholder defaults and implementations, to keep the
/// rest of the user's code free of errors.
fn fallback(model: Model) -> TokenStream {
    let Model { root, allow, mut item, fields, derives, .. } = model;
    for (field, known) in fields_mut(&mut item).zip(&fields) {
        // A nested field gets no default: its type may have none.
        let is_nested = known.helpers.iter().any(|helper| helper.arguments.iter().any(|it| it.key == "dims"));
        if known.helpers.is_empty() || is_nested {
            continue;
        }
        inject(&derives, field, known, &quote!(::std::default::Default::default()));
    }
    let default = (derives.default.is_none() && !derives.config.is_always()).then(|| default(&item, allow.as_ref()));
    let tuned = tuned(&root, &item, allow.as_ref());
    quote! {
        #item
        #default
        #tuned
    }
}

fn default(item: &DeriveInput, allow: Option<&Attribute>) -> TokenStream {
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    quote! {
        #allow
        impl #impl_generics ::std::default::Default for #name #type_generics #where_clause {
            fn default() -> Self {
                ::std::unreachable!()
            }
        }
    }
}

fn tuned(root: &syn::Path, item: &DeriveInput, allow: Option<&Attribute>) -> TokenStream {
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    let settings = settings(root, &Settings::DEFAULT);
    quote! {
        #allow
        impl #impl_generics #root::Tuned for #name #type_generics #where_clause {
            const BUILT: #root::Built = #root::Built {
                config: "",
                workload: ::std::option::Option::None,
                target: "",
                targets: &[],
                misfits: &[],
                settings: #settings,
                global_batch: 1,
                memory: #root::Bytes(0),
                table: ::std::option::Option::None,
            };
            fn goal() -> #root::Goal {
                ::std::unreachable!()
            }
            fn workload(&self) -> #root::WorkloadSpec {
                ::std::unreachable!()
            }
            fn tuned(&self) -> #root::Pins {
                ::std::unreachable!()
            }
            fn apply(&mut self, _: &#root::Settings) {}
        }
    }
}
