//! `impl Default`, for structs without Burn's `Config`.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse_quote;
use syn::spanned::Spanned as _;

use super::literal;
use gpu_tuned_attribute::{Checked, DerivePresence, Field, Model, Role, bare, peer_default};

pub(super) fn implement(model: &Model, checked: &Checked) -> TokenStream {
    let (root, name, allow) = (&model.root, &model.item.ident, &model.allow);
    let mut generics = model.item.generics.clone();
    let parameters: Vec<String> = generics.type_params().map(|parameter| parameter.ident.to_string()).collect();
    let mut values = Vec::new();
    for (field, role) in model.fields.iter().zip(&checked.input.roles) {
        let (ident, cfgs, ty) = (&field.ident, &field.cfgs, bare(&field.ty));
        // The compiler points at the field whose type has no default.
        let place = Span::call_site().located_at(ty.span());
        let of_type = quote_spanned!(place=> <#ty as #root::__private::FieldDefault>::field_default());
        let value = match role {
            Role::Tuned(setting) => Some(literal::held(root, field, checked.compiled.plan.settings.get(*setting))),
            Role::Dimension { default, .. } => Some(default.clone()),
            Role::Nested { default, .. } | Role::Untouched(default) => default.clone(),
        };
        // Without its `#[tuned]`, a field has the default of another derive.
        let without = field.condition().map(|condition| (condition, peer_default(field)));
        let takes_type = value.is_none() || matches!(without, Some((_, None)));
        if takes_type && mentions(field, &parameters) {
            generics.make_where_clause().predicates.push(parse_quote!(#ty: ::core::default::Default));
        }
        let value = value.unwrap_or_else(|| of_type.clone());
        values.push(match without {
            None => quote!(#(#cfgs)* #ident: #value),
            Some((condition, peer)) => {
                let peer = peer.unwrap_or(of_type);
                quote! {
                    #(#cfgs)* #[cfg(#condition)] #ident: #value,
                    #(#cfgs)* #[cfg(not(#condition))] #ident: #peer
                }
            }
        });
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    // Without Burn's derive, which gives each field its default.
    let cfg = if let DerivePresence::If(condition) = &model.derives.config {
        Some(quote!(#[cfg(not(#condition))]))
    } else {
        None
    };
    quote! {
        #[automatically_derived]
        #allow
        #cfg
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
