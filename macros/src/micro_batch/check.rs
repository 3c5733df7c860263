//! The roles of the fields: samples or shared.

use proc_macro2::Ident;
use quote::{ToTokens, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Fields, Index, Member, Meta, MetaNameValue, Path, Token, Type, parse_quote};

use gpu_tuned_attribute::{Mistakes, crate_path};

/// A field; a shared one belongs to the batch as a whole.
pub(super) struct Field<'i> {
    pub(super) member: Member,
    pub(super) ty: &'i Type,
    pub(super) is_shared: bool,
}

const HELP: &str =
    "hold the tensors of a batch in a struct, such as `struct Batch { images: Tensor<4>, labels: Tensor<1, Int> }`";

const TAKES: &str = "it takes shared: `#[micro_batch(shared)]`";

/// Returns the path of the runtime's crate: that of `#[micro_batch(crate = path)]`, or `::gpu_tuned`.
pub(super) fn root(item: &DeriveInput, mistakes: &mut Mistakes) -> Path {
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
    root.unwrap_or_else(|| parse_quote!(::gpu_tuned))
}

/// Checks the fields: at least one has samples.
pub(super) fn check<'i>(item: &'i DeriveInput, mistakes: &mut Mistakes) -> Vec<Field<'i>> {
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
