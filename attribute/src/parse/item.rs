use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Fields, Meta, Path, Token};

use super::arguments::arguments;
use super::conditional::{self, FlatAttribute};
use super::peers;
use crate::mistakes::Mistakes;
use crate::model::{Derives, Field, Helper};

/// Collects the derives below the attribute.
pub(super) fn derives(item: &DeriveInput) -> Derives {
    let mut derives = Derives::default();
    for FlatAttribute { condition, meta } in conditional::flatten(&item.attrs) {
        let Meta::List(list) = &meta else { continue };
        if !list.path.is_ident("derive") {
            continue;
        }
        derives.any = true;
        let paths = list.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated).unwrap_or_default();
        for path in paths {
            let Some(last) = path.segments.last() else { continue };
            match last.ident.to_string().as_str() {
                "Config" => derives.config.add(condition.clone()),
                "Parser" | "Args" => derives.clap.add(condition.clone()),
                "Default" | "SmartDefault" => derives.default = Some(path),
                _ => {}
            }
        }
    }
    derives
}

/// Removes further `#[gpu_tuned]`s, each of which is a mistake.
pub(super) fn remove_doubled(item: &mut DeriveInput, mistakes: &mut Mistakes) {
    item.attrs.retain(|attribute| {
        let is_doubled = attribute.path().segments.last().is_some_and(|last| last.ident == "gpu_tuned");
        if is_doubled {
            mistakes
                .at(attribute, "`#[gpu_tuned]` is given twice")
                .help("a struct has one plan: keep one attribute, or use a struct for each model");
        }
        !is_doubled
    });
}

/// Removes every `#[tuned]` from the item and returns the named fields.
pub(super) fn take_fields(item: &mut DeriveInput, mistakes: &mut Mistakes) -> Vec<Field> {
    let has_serde_default = conditional::flatten(&item.attrs).iter().any(|attribute| {
        attribute.meta.path().is_ident("serde") && peers::arguments(attribute).any(|argument| argument.key == "default")
    });
    let remove_helpers = |attributes: &mut Vec<Attribute>| drop(conditional::remove(attributes, is_helper));
    match &mut item.data {
        Data::Struct(data) => {
            let named = matches!(data.fields, Fields::Named(_));
            let fields = data.fields.iter_mut().filter_map(|it| take_field(it, has_serde_default, mistakes));
            let fields: Vec<_> = fields.collect();
            if named { fields } else { Vec::new() }
        }
        Data::Enum(data) => {
            for variant in &mut data.variants {
                remove_helpers(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| remove_helpers(&mut field.attrs));
            }
            Vec::new()
        }
        Data::Union(data) => {
            data.fields.named.iter_mut().for_each(|field| remove_helpers(&mut field.attrs));
            Vec::new()
        }
    }
}

fn is_helper(meta: &Meta) -> bool {
    meta.path().is_ident("tuned")
}

fn take_field(field: &mut syn::Field, has_serde_default: bool, mistakes: &mut Mistakes) -> Option<Field> {
    let helpers = conditional::remove(&mut field.attrs, is_helper);
    let attributes = conditional::flatten(&field.attrs);
    let mut of_clap = attributes.iter().filter(|it| peers::CLAP.iter().any(|name| it.meta.path().is_ident(name)));
    let has_action =
        of_clap.any(|it| peers::arguments(it).any(|argument| argument.key == "action" || argument.key == "num_args"));
    Some(Field {
        ident: field.ident.clone()?,
        ty: field.ty.clone(),
        cfgs: conditional::cfgs(&field.attrs),
        helpers: helpers.into_iter().filter_map(|attribute| helper(attribute, mistakes)).collect(),
        defaults: peers::defaults(&attributes, has_serde_default),
        has_action,
    })
}

fn helper(FlatAttribute { condition, meta }: FlatAttribute, mistakes: &mut Mistakes) -> Option<Helper> {
    match meta {
        Meta::Path(path) => Some(Helper { path, arguments: Vec::new(), condition }),
        Meta::List(list) => Some(Helper { path: list.path, arguments: arguments(list.tokens, mistakes), condition }),
        Meta::NameValue(pair) => {
            mistakes.at(pair, "expected `#[tuned]` or `#[tuned(key = value)]`");
            None
        }
    }
}
