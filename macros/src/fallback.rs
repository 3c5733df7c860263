//! The expansion beside mistakes: enough of the item to keep the rest of the user's code free of errors.

use gpu_tuned_core::Settings;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, DeriveInput, Path};

use crate::expand::{fields_mut, inject, settings};
use gpu_tuned_attribute::Model;

/// Returns the item without our attributes, with placeholder defaults and implementations.
pub(crate) fn fallback(model: Model) -> TokenStream {
    let Model { root, allow, mut item, fields, derives, .. } = model;
    for (field, known) in fields_mut(&mut item).zip(&fields) {
        // A nested field gets no default: its type may have none.
        let is_nested = known.helpers.iter().any(|helper| helper.arguments.iter().any(|it| it.key == "dims"));
        if known.helpers.is_empty() || is_nested {
            continue;
        }
        inject(&derives, field, known, &quote!(::core::default::Default::default()));
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
        impl #impl_generics ::core::default::Default for #name #type_generics #where_clause {
            fn default() -> Self {
                ::core::unreachable!()
            }
        }
    }
}

fn tuned(root: &Path, item: &DeriveInput, allow: Option<&Attribute>) -> TokenStream {
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    let settings = settings(root, &Settings::DEFAULT);
    quote! {
        #allow
        impl #impl_generics #root::Tuned for #name #type_generics #where_clause {
            const BUILT: #root::Built = #root::Built {
                config: "",
                workload: ::core::option::Option::None,
                target: "",
                targets: &[],
                misfits: &[],
                settings: #settings,
                global_batch: 1,
                memory: #root::Bytes(0),
                table: ::core::option::Option::None,
            };
            fn goal() -> #root::Goal {
                ::core::unreachable!()
            }
            fn workload(&self) -> #root::WorkloadSpec {
                ::core::unreachable!()
            }
            fn tuned(&self) -> #root::Pins {
                ::core::unreachable!()
            }
            fn apply(&mut self, _: &#root::Settings) {}
        }
    }
}
