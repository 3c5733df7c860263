use proc_macro2::TokenStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Fields, Meta, Path, Token};

use super::arguments;
use crate::mistakes::Mistakes;
use crate::model::{Argument, Derives, Field, ForeignDefault, Helper};

/// Collects the derives below the attribute.
pub(super) fn derives(item: &DeriveInput) -> Derives {
    let mut derives = Derives::default();
    for attribute in &item.attrs {
        // `cfg_attr` may contain a derive.
        derives.any |= attribute.path().is_ident("derive") || attribute.path().is_ident("cfg_attr");
        if !attribute.path().is_ident("derive") {
            continue;
        }
        let paths = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated).unwrap_or_default();
        for path in paths {
            let Some(last) = path.segments.last() else { continue };
            derives.config |= last.ident == "Config";
            derives.clap |= last.ident == "Parser" || last.ident == "Args";
            if last.ident == "Default" {
                derives.default = Some(path);
            }
        }
    }
    derives
}

/// Removes every `#[tuned]` from the item and returns the named fields.
pub(super) fn take_fields(item: &mut DeriveInput, derives: &Derives, mistakes: &mut Mistakes) -> Vec<Field> {
    match &mut item.data {
        Data::Struct(data) => {
            let named = matches!(data.fields, Fields::Named(_));
            let fields: Vec<_> = data.fields.iter_mut().filter_map(|it| take_field(it, derives, mistakes)).collect();
            if named { fields } else { Vec::new() }
        }
        Data::Enum(data) => {
            for variant in &mut data.variants {
                variant.attrs.retain(|attribute| !is_helper(attribute));
                variant.fields.iter_mut().for_each(|field| field.attrs.retain(|attribute| !is_helper(attribute)));
            }
            Vec::new()
        }
        Data::Union(data) => {
            data.fields.named.iter_mut().for_each(|field| field.attrs.retain(|attribute| !is_helper(attribute)));
            Vec::new()
        }
    }
}

fn is_helper(attribute: &Attribute) -> bool {
    attribute.path().is_ident("tuned")
}

fn take_field(field: &mut syn::Field, derives: &Derives, mistakes: &mut Mistakes) -> Option<Field> {
    let (helpers, others) = field.attrs.drain(..).partition(is_helper);
    field.attrs = others;
    let has_action = derives.clap
        && clap_arguments(&field.attrs).any(|(_, argument)| argument.key == "action" || argument.key == "num_args");
    Some(Field {
        ident: field.ident.clone()?,
        ty: field.ty.clone(),
        cfgs: field.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect(),
        helpers: helpers.into_iter().filter_map(|attribute| helper(attribute, mistakes)).collect(),
        defaults: foreign_defaults(&field.attrs, derives),
        has_action,
    })
}

fn helper(attribute: Attribute, mistakes: &mut Mistakes) -> Option<Helper> {
    match attribute.meta {
        Meta::Path(path) => Some(Helper { path, arguments: Vec::new() }),
        Meta::List(list) => Some(Helper { path: list.path, arguments: arguments(list.tokens, mistakes) }),
        Meta::NameValue(pair) => {
            mistakes.at(pair, "expected `#[tuned]` or `#[tuned(key = value)]`");
            None
        }
    }
}

fn foreign_defaults(attributes: &[Attribute], derives: &Derives) -> Vec<ForeignDefault> {
    let mut found = Vec::new();
    if derives.config {
        // Burn reads only the first `config` attribute.
        let first = attributes.iter().find(|attribute| attribute.path().is_ident("config"));
        found.extend(first.into_iter().flat_map(foreign_arguments).filter(|it| it.argument.key == "default"));
    }
    if derives.clap {
        let names = ["default_value", "default_value_t"];
        let clap = clap_arguments(attributes).filter(|(_, argument)| names.iter().any(|name| argument.key == name));
        found.extend(clap.map(|(attribute, argument)| ForeignDefault { attribute, argument }));
    }
    found
}

fn clap_arguments(attributes: &[Attribute]) -> impl Iterator<Item = (syn::Ident, Argument)> {
    let ours = attributes.iter().filter(|it| it.path().is_ident("arg") || it.path().is_ident("clap"));
    ours.flat_map(foreign_arguments).map(|it| (it.attribute, it.argument))
}

/// Parses the arguments of another macro's attribute. That macro reports its own mistakes.
fn foreign_arguments(attribute: &Attribute) -> Vec<ForeignDefault> {
    let (Meta::List(list), Some(name)) = (&attribute.meta, attribute.path().get_ident()) else { return Vec::new() };
    let tokens: TokenStream = list.tokens.clone();
    let read = arguments(tokens, &mut Mistakes::default());
    read.into_iter().map(|argument| ForeignDefault { attribute: name.clone(), argument }).collect()
}
