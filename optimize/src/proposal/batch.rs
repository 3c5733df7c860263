//! Input of a training step, which must be divisible into micro-batches.

use syn::{Attribute, ImplItem, Item, ItemStruct, Meta};

use super::annotation::{above, range, start_of};
use super::candidate::{derives, structs};
use super::code::last;
use super::patch::Patch;
use super::sources::Source;

const DERIVE: &str = "MicroBatch";

/// Derives `MicroBatch` for the input of the first training step, if that is a struct of the program.
pub(super) fn edit<'a>(sources: &'a [Source], krate: &str, patch: &mut Patch<'a>) {
    let Some(name) = sources.iter().find_map(|source| taken(&source.file.items)) else { return };
    let is_it = |item: &&ItemStruct| item.ident == name;
    let found = sources.iter().find_map(|source| Some((source, structs(&source.file.items).into_iter().find(is_it)?)));
    let Some((source, item)) = found.filter(|(_, item)| !derives(&item.attrs, DERIVE)) else { return };
    if sources.iter().any(|source| implements(&source.file.items, &name)) {
        return;
    }
    let ours = format!("{}::{DERIVE}", krate.replace('-', "_"));
    let what = format!("`{name}` is divided into micro-batches");
    let list = item
        .attrs
        .iter()
        .find_map(|attribute| if is_derive(attribute) { Some((attribute, list(attribute)?)) } else { None });
    if let Some((attribute, end)) = list.filter(|_| derives(&item.attrs, "Clone")) {
        patch.note(source, range(attribute).start, what);
        return patch.insert(source, end, format!(", {ours}"));
    }
    let first = item.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
    let start = first.map_or_else(|| start_of(&item.vis, item.struct_token.span), |attribute| range(attribute).start);
    patch.note(source, start, what);
    patch.insert(source, start, above(&source.text, start, &format!("#[derive(Clone, {ours})]")));
}

/// Input of the first training step among items.
fn taken(items: &[Item]) -> Option<String> {
    items.iter().find_map(|item| match item {
        Item::Mod(module) => taken(&module.content.as_ref()?.1),
        Item::Impl(item) if item.trait_.as_ref()?.0.segments.last()?.ident == "TrainStep" => {
            item.items.iter().find_map(|member| match member {
                ImplItem::Type(ty) if ty.ident == "Input" => last(&ty.ty),
                _ => None,
            })
        }
        _ => None,
    })
}

fn implements(items: &[Item], name: &str) -> bool {
    items.iter().any(|item| {
        let Item::Impl(item) = item else { return false };
        let of = item.trait_.as_ref().and_then(|it| it.0.segments.last()).is_some_and(|last| last.ident == DERIVE);
        of && last(&item.self_ty).as_deref() == Some(name)
    })
}

fn is_derive(attribute: &Attribute) -> bool {
    attribute.path().is_ident("derive")
}

/// End of the text in an attribute's parentheses.
fn list(attribute: &Attribute) -> Option<usize> {
    let Meta::List(list) = &attribute.meta else { return None };
    (!list.tokens.is_empty()).then(|| list.delimiter.span().close().byte_range().start)
}
