//! `impl MicroBatch`.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Generics, Member, Path, Type, parse_quote};

use gpu_tuned_attribute::allow_deprecated;

use super::check::Field;

/// The expansion for one item.
pub(super) struct Expansion<'i> {
    /// The path of the runtime's crate.
    pub(super) root: Path,
    pub(super) item: &'i DeriveInput,
}

impl Expansion<'_> {
    pub(super) fn expand(&self, fields: &[Field<'_>]) -> TokenStream {
        let root = &self.root;
        let first = fields.iter().find(|field| !field.is_shared).expect("BUG: a field holds samples");
        let len = self.call(first, &quote!(len), &[]);
        let batched = || fields.iter().filter(|field| !field.is_shared);
        let bytes = batched().map(|field| self.call(field, &quote!(bytes), &[quote!(device)]));
        let arrived = batched().map(|field| self.call(field, &quote!(has_arrived), &[]));
        let parts = batched().map(|field| {
            let (name, len, check) =
                (name(&field.member), self.call(field, &quote!(len), &[]), self.call(field, &quote!(check), &[]));
            quote!((#name, #len, #check))
        });
        let last = batched().count() - 1;
        let mut narrowed = 0;
        let narrow = fields.iter().map(|field| {
            if field.is_shared {
                let (ty, member) = (field.ty, &field.member);
                return quote_spanned!(ty.span()=> #member: <#ty as ::core::clone::Clone>::clone(&self.#member));
            }
            let samples =
                if narrowed == last { quote!(samples) } else { quote!(::core::clone::Clone::clone(&samples)) };
            narrowed += 1;
            let (member, value) = (&field.member, self.call(field, &quote!(narrow), &[samples]));
            quote!(#member: #value)
        });
        let moved = fields.iter().map(|field| {
            let (ty, member) = (field.ty, &field.member);
            let value = quote!(self.#member);
            if field.is_shared {
                return quote!(#member: #value);
            }
            quote_spanned!(ty.span()=> #member: <#ty as #root::MicroBatch>::on_device(#value, device))
        });
        let store = self.store(fields);
        let body = quote! {
            fn len(&self) -> usize {
                #len
            }

            fn narrow(&self, samples: ::core::ops::Range<usize>) -> Self {
                Self { #(#narrow),* }
            }

            fn on_device(self, device: &#root::__private::Device) -> Self {
                Self { #(#moved),* }
            }

            fn has_arrived(&self) -> bool {
                #(#arrived)&&*
            }

            fn check(&self) -> ::core::result::Result<(), #root::__private::UnequalParts> {
                #root::__private::UnequalParts::compare([#(#parts),*])
            }

            fn bytes(&self, device: &#root::__private::Device) -> usize {
                #(#bytes)+*
            }

            #store
        };
        self.implement(&self.bounded(fields), &body)
    }

    /// `MicroBatch::store`; nothing for a struct with shared fields, which may change without the samples.
    fn store(&self, fields: &[Field<'_>]) -> TokenStream {
        let root = &self.root;
        if fields.iter().any(|field| field.is_shared) {
            return TokenStream::new();
        }
        let stored = |kept: &dyn Fn(&Member) -> TokenStream| {
            let fields = fields.iter().map(|Field { ty, member, .. }| {
                let kept = kept(member);
                quote_spanned!(ty.span()=> #member: <#ty as #root::MicroBatch>::store(self.#member, #kept)?)
            });
            quote!(::core::option::Option::Some(Self { #(#fields),* }))
        };
        let in_place = stored(&|member| quote!(::core::option::Option::Some(kept.#member)));
        let anew = stored(&|_| quote!(::core::option::Option::None));
        quote! {
            fn store(self, kept: ::core::option::Option<Self>) -> ::core::option::Option<Self> {
                match kept {
                    ::core::option::Option::Some(kept) => #in_place,
                    ::core::option::Option::None => #anew,
                }
            }
        }
    }

    /// Returns an implementation beside mistakes, to keep the rest of the user's code free of errors.
    pub(super) fn stand_in(&self) -> TokenStream {
        let root = &self.root;
        let body = quote! {
            fn len(&self) -> usize {
                ::core::unreachable!()
            }

            fn narrow(&self, _: ::core::ops::Range<usize>) -> Self {
                ::core::unreachable!()
            }

            fn on_device(self, _: &#root::__private::Device) -> Self {
                ::core::unreachable!()
            }

            fn has_arrived(&self) -> bool {
                ::core::unreachable!()
            }

            fn bytes(&self, _: &#root::__private::Device) -> usize {
                ::core::unreachable!()
            }
        };
        self.implement(&self.item.generics, &body)
    }

    fn implement(&self, generics: &Generics, body: &TokenStream) -> TokenStream {
        let (root, name, allow) = (&self.root, &self.item.ident, allow_deprecated(self.item));
        let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
        quote! {
            #[automatically_derived]
            #allow
            impl #impl_generics #root::MicroBatch for #name #type_generics #where_clause {
                #body
            }
        }
    }

    /// Calls a method of a field's batch, with the span of the field's type.
    fn call(&self, field: &Field<'_>, method: &TokenStream, arguments: &[TokenStream]) -> TokenStream {
        let (root, ty, member) = (&self.root, field.ty, &field.member);
        quote_spanned!(ty.span()=> <#ty as #root::MicroBatch>::#method(&self.#member #(, #arguments)*))
    }

    /// Returns the item's generics, with the bounds of the fields.
    fn bounded(&self, fields: &[Field<'_>]) -> Generics {
        let (root, item) = (&self.root, self.item);
        let mut generics = item.generics.clone();
        if generics.type_params().next().is_none() {
            return generics;
        }
        let parameters: Vec<_> = item.generics.type_params().map(|parameter| parameter.ident.to_string()).collect();
        let clause = generics.make_where_clause();
        for Field { ty, is_shared, .. } in fields {
            if !mentions(ty, &parameters) {
                continue;
            }
            clause.predicates.push(if *is_shared {
                parse_quote!(#ty: ::core::clone::Clone)
            } else {
                parse_quote!(#ty: #root::MicroBatch)
            });
        }
        // The trait's own bounds do not follow from the fields: a derived `Clone` has bounds of its own.
        clause.predicates.push(parse_quote!(Self: ::core::clone::Clone + ::core::marker::Send + 'static));
        generics
    }
}

/// Name of a field in messages.
fn name(member: &Member) -> String {
    match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

fn mentions(ty: &Type, parameters: &[String]) -> bool {
    fn any(tokens: TokenStream, parameters: &[String]) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => parameters.iter().any(|parameter| ident == parameter),
            TokenTree::Group(group) => any(group.stream(), parameters),
            _ => false,
        })
    }
    any(ty.to_token_stream(), parameters)
}
