//! The type of a program's batches, which is divided into micro-batches.

use syn::{Attribute, GenericArgument, ImplItem, Item, ItemImpl, ItemStruct, Meta, PathArguments};

use crate::annotation::{above, range, start_of};
use crate::candidate::{derives, implementation, structs};
use crate::code::last;
use crate::sources::{Patch, Source};

const DERIVE: &str = "MicroBatch";

/// Derives `MicroBatch` for the input of the first training step, else for the only output of batchers, if that is a struct of
/// the package. Returns the struct's name.
pub(super) fn derive<'a>(sources: &[&'a Source], krate: &str, patch: &mut Patch<'a>) -> Option<String> {
    let own = || sources.iter().copied().filter(|source| source.is_own());
    let step = own().find_map(|source| first(&source.file.items, &input_of_step));
    let name = step.or_else(|| {
        let mut outputs: Vec<_> = own().flat_map(|source| all(&source.file.items, &output_of_batcher)).collect();
        outputs.dedup();
        if let [only] = &outputs[..] { Some(only.clone()) } else { None }
    })?;
    let is_it = |item: &&ItemStruct| item.ident == name;
    let found = own().find_map(|source| Some((source, structs(&source.file.items).into_iter().find(is_it)?)));
    let (source, item) = found.filter(|(_, item)| !derives(&item.attrs, DERIVE) && is_divisible(item))?;
    let implements = |of| sources.iter().any(|source| implementation(of, &name, &source.file.items).is_some());
    if implements(DERIVE) {
        return None;
    }
    let ours = format!("{}::{DERIVE}", krate.replace('-', "_"));
    let what = format!("`{name}` is divided into micro-batches");
    let list = item
        .attrs
        .iter()
        .find_map(|attribute| if is_derive(attribute) { Some((attribute, list(attribute)?)) } else { None });
    if let Some((attribute, end)) = list.filter(|_| derives(&item.attrs, "Clone")) {
        patch.note(source, range(attribute).start, what);
        let comma = if source.text[..end].trim_end().ends_with(',') { " " } else { ", " };
        patch.insert(source, end, format!("{comma}{ours}"));
        return Some(name);
    }
    let derived = if derives(&item.attrs, "Clone") || implements("Clone") { ours } else { format!("Clone, {ours}") };
    let first = item.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
    let start = first.map_or_else(|| start_of(&item.vis, item.struct_token.span), |attribute| range(attribute).start);
    patch.note(source, start, what);
    patch.insert(source, start, above(&source.text, start, &format!("#[derive({derived})]")));
    Some(name)
}

/// Returns true if all fields implement `MicroBatch`.
fn is_divisible(item: &ItemStruct) -> bool {
    let is_known = |ty: &syn::Type| last(ty).is_some_and(|name| ["Tensor", "Vec"].contains(&name.as_str()));
    item.generics.params.is_empty() && item.fields.iter().all(|field| is_known(&field.ty))
}

fn first(items: &[Item], of: &impl Fn(&ItemImpl) -> Option<String>) -> Option<String> {
    all(items, of).into_iter().next()
}

/// Types that implementations among items have.
fn all(items: &[Item], of: &impl Fn(&ItemImpl) -> Option<String>) -> Vec<String> {
    let of_item = |item: &Item| match item {
        Item::Mod(module) => module.content.as_ref().map(|(_, items)| all(items, of)).unwrap_or_default(),
        Item::Impl(item) => of(item).into_iter().collect(),
        _ => Vec::new(),
    };
    items.iter().flat_map(of_item).collect()
}

fn input_of_step(item: &ItemImpl) -> Option<String> {
    let of = item.trait_.as_ref()?.0.segments.last()?;
    item.items.iter().filter(|_| of.ident == "TrainStep").find_map(|member| match member {
        ImplItem::Type(ty) if ty.ident == "Input" => last(&ty.ty),
        _ => None,
    })
}

fn output_of_batcher(item: &ItemImpl) -> Option<String> {
    let of = item.trait_.as_ref()?.0.segments.last().filter(|last| last.ident == "Batcher")?;
    let PathArguments::AngleBracketed(arguments) = &of.arguments else { return None };
    match arguments.args.last()? {
        GenericArgument::Type(ty) => last(ty),
        _ => None,
    }
}

fn is_derive(attribute: &Attribute) -> bool {
    attribute.path().is_ident("derive")
}

/// End of the text in an attribute's parentheses.
fn list(attribute: &Attribute) -> Option<usize> {
    let Meta::List(list) = &attribute.meta else { return None };
    (!list.tokens.is_empty()).then(|| list.delimiter.span().close().byte_range().start)
}
