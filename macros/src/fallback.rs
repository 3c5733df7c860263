//! The expansion beside mistakes: enough of the item to keep the rest of the user's code free of errors.

use gpu_tuned_core::Settings;
use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::expand::{Derive, fields_mut, inject, settings};
use gpu_tuned_attribute::Model;

/// Returns the item without our attributes, with placeholder defaults and implementations.
pub(crate) fn fallback(model: Model) -> TokenStream {
    let Model { mut item, fields, derives, .. } = model;
    for (field, known) in fields_mut(&mut item).zip(&fields) {
        // A nested field gets no default: its type may have none.
        let is_nested = known.helpers.iter().any(|helper| helper.arguments.iter().any(|it| it.key == "dims"));
        if known.helpers.is_empty() || !known.defaults.is_empty() || is_nested {
            continue;
        }
        for derive in Derive::among(&derives) {
            inject(derive, field, &quote!(::core::default::Default::default()), known.has_action);
        }
    }
    let default = (derives.default.is_none() && !derives.config).then(|| default(&item));
    let tuned = tuned(&item);
    quote! {
        #item
        #default
        #tuned
    }
}

fn default(item: &DeriveInput) -> TokenStream {
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    quote! {
        impl #impl_generics ::core::default::Default for #name #type_generics #where_clause {
            fn default() -> Self {
                ::core::unreachable!()
            }
        }
    }
}

fn tuned(item: &DeriveInput) -> TokenStream {
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    let settings = settings(&Settings::DEFAULT);
    quote! {
        impl #impl_generics ::gpu_tuned::Tuned for #name #type_generics #where_clause {
            const BUILT: ::gpu_tuned::Built = ::gpu_tuned::Built {
                config: "",
                workload: ::core::option::Option::None,
                target: "",
                targets: &[],
                misfits: &[],
                settings: #settings,
                global_batch: 1,
                memory: ::gpu_tuned::Bytes(0),
                table: ::core::option::Option::None,
            };
            fn goal() -> ::gpu_tuned::Goal {
                ::core::unreachable!()
            }
            fn workload(&self) -> ::gpu_tuned::WorkloadSpec {
                ::core::unreachable!()
            }
            fn tuned(&self) -> ::gpu_tuned::Pins {
                ::core::unreachable!()
            }
            fn apply(&mut self, _: &::gpu_tuned::Settings) {}
        }
    }
}
