//! `#[derive(MicroBatch)]`: parse, check, expand.

#[cfg(test)]
mod tests;

use gpu_tuned_attribute::{DEEPEST_IN_MACROS, Mistakes, allow_deprecated, check_depth, crate_path, runtime_path};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Fields, Generics, Index, Member, Meta, MetaNameValue, Path, Token, Type, parse_quote,
};

use crate::expand::{mentions, place};

/// Returns the implementation, or every mistake beside a placeholder implementation.
pub(crate) fn run(item: TokenStream) -> TokenStream {
    let parsed = check_depth(&item, DEEPEST_IN_MACROS).and_then(|()| syn::parse2(item));
    let item: DeriveInput = match parsed {
        Ok(item) => item,
        Err(error) => return error.to_compile_error(),
    };
    let mut mistakes = Mistakes::default();
    let root = root(&item, &mut mistakes);
    let fields = check(&item, &mut mistakes);
    let expansion = Expansion { root, item: &item };
    let implementation = if mistakes.is_empty() { expansion.expand(&fields) } else { expansion.stand_in() };
    quote!(#mistakes #implementation)
}

/// A field; a shared one belongs to the batch as a whole.
struct Field<'i> {
    member: Member,
    ty: &'i Type,
    is_shared: bool,
}

const HELP: &str =
    "hold the tensors of a batch in a struct, such as `struct Batch { images: Tensor<4>, labels: Tensor<1, Int> }`";

const TAKES: &str = "it takes shared: `#[micro_batch(shared)]`";

/// Returns the path of the runtime's crate: that of `#[micro_batch(crate = path)]`, or that of the package's dependency.
fn root(item: &DeriveInput, mistakes: &mut Mistakes) -> Path {
    let mut root = None;
    for attribute in item.attrs.iter().filter(|attribute| is_helper(attribute)) {
        let found = attribute.parse_args::<MetaNameValue>().ok().filter(|pair| pair.path.is_ident("crate"));
        let found = found.and_then(|pair| crate_path(&pair.value.to_token_stream()));
        if found.is_none() {
            mistakes
                .at(attribute, "on the item, `#[micro_batch(…)]` takes only `crate = path`")
                .help("`#[micro_batch(shared)]` on a field marks a field that is not of each sample");
        }
        root = found.or(root);
    }
    root.unwrap_or_else(runtime_path)
}

/// Checks the fields: at least one has samples.
fn check<'i>(item: &'i DeriveInput, mistakes: &mut Mistakes) -> Vec<Field<'i>> {
    let data = match &item.data {
        Data::Struct(data) => data,
        Data::Enum(_) => return misplaced(&item.ident, "an enum", mistakes),
        Data::Union(_) => return misplaced(&item.ident, "a union", mistakes),
    };
    if data.fields.is_empty() {
        return misplaced(&item.ident, "a struct without fields", mistakes);
    }
    let fields = fields(&data.fields, mistakes);
    if mistakes.is_empty() && fields.iter().all(|field| field.is_shared) {
        mistakes
            .at(&item.ident, format!("no field of `{}` holds samples: all are shared", item.ident))
            .help("leave out `#[micro_batch(shared)]` where the first dimension counts the samples");
    }
    fields
}

fn misplaced<'i>(place: &Ident, found: &str, mistakes: &mut Mistakes) -> Vec<Field<'i>> {
    mistakes.at(place, format!("`MicroBatch` is derived for structs with fields, this is {found}")).help(HELP);
    Vec::new()
}

fn fields<'i>(fields: &'i Fields, mistakes: &mut Mistakes) -> Vec<Field<'i>> {
    let field = |(index, field): (usize, &'i syn::Field)| {
        let place = Index { index: u32::try_from(index).unwrap_or(u32::MAX), span: field.ty.span() };
        let member = field.ident.clone().map_or(Member::Unnamed(place), Member::Named);
        Field { member, ty: &field.ty, is_shared: is_shared(&field.attrs, mistakes) }
    };
    fields.iter().enumerate().map(field).collect()
}

fn is_helper(attribute: &Attribute) -> bool {
    attribute.path().is_ident("micro_batch")
}

fn is_shared(attributes: &[Attribute], mistakes: &mut Mistakes) -> bool {
    let mut is_shared = false;
    for attribute in attributes.iter().filter(|attribute| is_helper(attribute)) {
        let keys = match attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) {
            Ok(keys) => keys,
            Err(error) => {
                let place = quote_spanned!(error.span()=> micro_batch);
                mistakes.at(place, format!("`#[micro_batch(…)]` cannot be read: {error}")).help(TAKES);
                continue;
            }
        };
        if keys.is_empty() {
            mistakes.at(attribute, "`#[micro_batch()]` says nothing").help(TAKES);
        }
        for key in keys {
            match &key {
                Meta::Path(path) if path.is_ident("shared") => {
                    if is_shared {
                        mistakes.at(path, "`shared` is given twice").help("once is enough");
                    }
                    is_shared = true;
                }
                other if other.path().is_ident("shared") => {
                    mistakes.at(other, "`shared` takes no value").help(TAKES);
                }
                other => {
                    let name = other.path().to_token_stream().to_string();
                    let near = gpu_tuned_core::suggest(&name, ["shared"]);
                    mistakes.at(other.path(), format!("`micro_batch` does not take `{name}`{near}")).help(TAKES);
                }
            }
        }
    }
    is_shared
}

/// The expansion for one item.
struct Expansion<'i> {
    /// The path of the runtime's crate.
    root: Path,
    item: &'i DeriveInput,
}

impl Expansion<'_> {
    fn expand(&self, fields: &[Field<'_>]) -> TokenStream {
        let root = &self.root;
        let first = fields.iter().find(|field| !field.is_shared).expect("BUG: a field holds samples");
        let len = self.call(first, &quote!(len), &[]);
        let batched = || fields.iter().filter(|field| !field.is_shared);
        let bytes = batched().map(|field| self.call(field, &quote!(bytes), &[quote!(__device)]));
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
                return quote_spanned!(place(ty)=> #member: <#ty as ::std::clone::Clone>::clone(&self.#member));
            }
            let samples =
                if narrowed == last { quote!(__samples) } else { quote!(::std::clone::Clone::clone(&__samples)) };
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
            quote_spanned!(place(ty)=> #member: <#ty as #root::MicroBatch>::on_device(#value, __device))
        });
        let store = self.store(fields);
        let body = quote! {
            fn len(&self) -> usize {
                #len
            }

            fn narrow(&self, __samples: ::std::ops::Range<usize>) -> Self {
                Self { #(#narrow),* }
            }

            fn on_device(self, __device: &#root::__private::Device) -> Self {
                Self { #(#moved),* }
            }

            fn has_arrived(&self) -> bool {
                #(#arrived)&&*
            }

            fn check(&self) -> ::std::result::Result<(), #root::__private::UnequalParts> {
                #root::__private::UnequalParts::compare([#(#parts),*])
            }

            fn bytes(&self, __device: &#root::__private::Device) -> usize {
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
                quote_spanned!(place(ty)=> #member: <#ty as #root::MicroBatch>::store(self.#member, #kept)?)
            });
            quote!(::std::option::Option::Some(Self { #(#fields),* }))
        };
        let in_place = stored(&|member| quote!(::std::option::Option::Some(__kept.#member)));
        let anew = stored(&|_| quote!(::std::option::Option::None));
        quote! {
            fn store(self, __kept: ::std::option::Option<Self>) -> ::std::option::Option<Self> {
                match __kept {
                    ::std::option::Option::Some(__kept) => #in_place,
                    ::std::option::Option::None => #anew,
                }
            }
        }
    }

    /// Returns an implementation beside mistakes, to keep the rest of the user's code free of errors.
    fn stand_in(&self) -> TokenStream {
        let root = &self.root;
        let body = quote! {
            fn len(&self) -> usize {
                ::std::unreachable!()
            }

            fn narrow(&self, _: ::std::ops::Range<usize>) -> Self {
                ::std::unreachable!()
            }

            fn on_device(self, _: &#root::__private::Device) -> Self {
                ::std::unreachable!()
            }

            fn has_arrived(&self) -> bool {
                ::std::unreachable!()
            }

            fn bytes(&self, _: &#root::__private::Device) -> usize {
                ::std::unreachable!()
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
        quote_spanned!(place(ty)=> <#ty as #root::MicroBatch>::#method(&self.#member #(, #arguments)*))
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
                parse_quote!(#ty: ::std::clone::Clone)
            } else {
                parse_quote!(#ty: #root::MicroBatch)
            });
        }
        // The trait's own bounds do not follow from the fields: a derived `Clone` has bounds of its own.
        clause.predicates.push(parse_quote!(Self: ::std::clone::Clone + ::std::marker::Send + 'static));
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
