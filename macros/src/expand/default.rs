//! `impl Default`, for structs without Burn's `Config`.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse_quote;

use super::literal;
use gpu_tuned_attribute::{Checked, Role};
use gpu_tuned_attribute::{Field, Model};

pub(super) fn implement(model: &Model, checked: &Checked) -> TokenStream {
    let name = &model.item.ident;
    let mut generics = model.item.generics.clone();
    let parameters: Vec<String> = generics.type_params().map(|parameter| parameter.ident.to_string()).collect();
    let mut values = Vec::new();
    for (field, role) in model.fields.iter().zip(&checked.input.roles) {
        let (ident, cfgs) = (&field.ident, &field.cfgs);
        let value = match role {
            Role::Tuned(setting) => literal::held(field, checked.compiled.plan.settings.get(*setting)),
            Role::Dimension { default, .. }
            | Role::Nested { default: Some(default), .. }
            | Role::Untouched(Some(default)) => default.clone(),
            Role::Nested { default: None, .. } | Role::Untouched(None) => {
                if mentions(field, &parameters) {
                    let ty = &field.ty;
                    generics.make_where_clause().predicates.push(parse_quote!(#ty: ::core::default::Default));
                }
                quote!(::core::default::Default::default())
            }
        };
        values.push(quote!(#(#cfgs)* #ident: #value));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics ::core::default::Default for #name #type_generics #where_clause {
            fn default() -> Self {
                Self { #(#values),* }
            }
        }
    }
}

/// Returns true if the field's type depends on a type parameter.
fn mentions(field: &Field, parameters: &[String]) -> bool {
    fn any(tokens: TokenStream, parameters: &[String]) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => parameters.iter().any(|parameter| ident == parameter),
            TokenTree::Group(group) => any(group.stream(), parameters),
            _ => false,
        })
    }
    any(field.ty.to_token_stream(), parameters)
}
