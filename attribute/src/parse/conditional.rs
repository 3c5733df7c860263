//! `cfg_attr`: attributes behind conditions.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Meta, Token, parse_quote, parse_quote_spanned};

use super::arguments::is;

/// An attribute, taken out of the `cfg_attr`s around it.
pub(crate) struct FlatAttribute {
    /// The conditions of the `cfg_attr`s as one; `None` without.
    pub(crate) condition: Option<TokenStream>,
    pub(crate) meta: Meta,
}

/// Returns the attributes, in order, with those in a `cfg_attr`.
pub(crate) fn flatten(attributes: &[Attribute]) -> Vec<FlatAttribute> {
    let mut found = Vec::new();
    for attribute in attributes {
        take(attribute.meta.clone(), &[], &|_| true, &mut found);
    }
    found
}

/// Removes the attributes of this name, also from a `cfg_attr`, and returns them.
pub(super) fn remove(attributes: &mut Vec<Attribute>, is_meant: impl Fn(&Meta) -> bool) -> Vec<FlatAttribute> {
    let mut found = Vec::new();
    attributes.retain_mut(|attribute| {
        let before = found.len();
        let rest = take(attribute.meta.clone(), &[], &is_meant, &mut found);
        match rest {
            // An untouched attribute keeps its tokens.
            Some(rest) if found.len() > before => attribute.meta = rest,
            Some(_) => {}
            None => return found.len() == before,
        }
        true
    });
    found
}

/// Moves the attributes that are meant to `found`, and returns the others.
fn take(
    meta: Meta,
    around: &[TokenStream],
    is_meant: &dyn Fn(&Meta) -> bool,
    found: &mut Vec<FlatAttribute>,
) -> Option<Meta> {
    let Some((condition, inner)) = parts(&meta) else {
        if !is_meant(&meta) {
            return Some(meta);
        }
        let condition = match around {
            [] => None,
            [only] => Some(only.clone()),
            several => Some(quote!(all(#(#several),*))),
        };
        found.push(FlatAttribute { condition, meta });
        return None;
    };
    let around = [around, core::slice::from_ref(&condition)].concat();
    let rest: Vec<Meta> = inner.into_iter().filter_map(|meta| take(meta, &around, is_meant, found)).collect();
    if rest.is_empty() { None } else { Some(parse_quote!(cfg_attr(#condition, #(#rest),*))) }
}

/// Returns the condition and the attributes of a `cfg_attr`; `None` for another attribute.
fn parts(meta: &Meta) -> Option<(TokenStream, Vec<Meta>)> {
    let Meta::List(list) = meta else { return None };
    if !list.path.is_ident("cfg_attr") {
        return None;
    }
    let condition: TokenStream = list.tokens.clone().into_iter().take_while(|token| !is(token, ',')).collect();
    let rest: TokenStream = list.tokens.clone().into_iter().skip_while(|token| !is(token, ',')).skip(1).collect();
    let inner = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(rest).ok()?;
    Some((condition, inner.into_iter().collect()))
}

/// Returns the `cfg`s among the attributes, with those in a `cfg_attr`.
pub(crate) fn cfgs(attributes: &[Attribute]) -> Vec<Attribute> {
    let of_attribute = |attribute: &Attribute| {
        if attribute.path().is_ident("cfg") {
            return vec![attribute.clone()];
        }
        let inner = flatten(core::slice::from_ref(attribute)).into_iter().filter(|it| it.meta.path().is_ident("cfg"));
        inner
            .map(|FlatAttribute { condition, meta }| parse_quote_spanned!(meta.span()=> #[cfg_attr(#condition, #meta)]))
            .collect()
    };
    attributes.iter().flat_map(of_attribute).collect()
}
