//! Structs that look like training configs.

use gpu_tuned_core::Setting;
use syn::{Attribute, Field, Fields, Item, ItemStruct, Meta, Type};

/// Fields of training configs for a batch size.
const BATCH: &[&str] = &["batch_size", "train_batch_size", "micro_batch_size"];
/// Fields of training configs beside settings.
const OTHERS: &str = "num_epochs epochs n_epochs learning_rate lr seed optimizer weight_decay grad_accumulation_steps \
                      warmup_steps max_steps";
/// Minimum score of a candidate.
const MIN_SCORE: u32 = 3;

/// A struct that looks like a training config.
pub(super) struct Candidate<'a> {
    pub item: &'a ItemStruct,
    pub known: Vec<String>,
    pub score: u32,
}

impl Candidate<'_> {
    pub(super) fn line(&self) -> usize {
        self.item.ident.span().start().line
    }

    pub(super) fn is_burn(&self) -> bool {
        derives(&self.item.attrs, "Config")
    }

    /// Returns true if the struct is `Clone`, as Burn's configs are.
    pub(super) fn is_clone(&self) -> bool {
        self.is_burn() || derives(&self.item.attrs, "Clone")
    }

    pub(super) fn derives_default(&self) -> bool {
        derives(&self.item.attrs, "Default")
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&Field, String)> {
        self.item.fields.iter().filter_map(|field| Some((field, field.ident.as_ref()?.to_string())))
    }
}

pub(super) fn is_batch(name: &str) -> bool {
    BATCH.contains(&name)
}

pub(super) fn candidates(items: &[Item]) -> impl Iterator<Item = Candidate<'_>> {
    structs(items).into_iter().filter_map(candidate)
}

/// Line of a struct's `impl Default`.
pub(super) fn default_of(name: &proc_macro2::Ident, items: &[Item]) -> Option<usize> {
    items.iter().find_map(|item| match item {
        Item::Mod(module) => default_of(name, &module.content.as_ref()?.1),
        Item::Impl(item) => {
            let Type::Path(of) = item.self_ty.as_ref() else { return None };
            let is_ours = of.path.segments.last().is_some_and(|segment| segment.ident == *name);
            let trait_name = &item.trait_.as_ref()?.0.segments.last()?.ident;
            (is_ours && trait_name == "Default").then(|| item.impl_token.span.start().line)
        }
        _ => None,
    })
}

pub(super) fn structs(items: &[Item]) -> Vec<&ItemStruct> {
    items.iter().flat_map(nested).collect()
}

fn nested(item: &Item) -> Vec<&ItemStruct> {
    match item {
        Item::Struct(item) => vec![item],
        Item::Mod(module) => module.content.as_ref().map(|(_, items)| structs(items)).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn candidate(item: &ItemStruct) -> Option<Candidate<'_>> {
    let Fields::Named(fields) = &item.fields else { return None };
    let names = fields.named.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string()));
    let known: Vec<String> = names
        .filter(|name| is_batch(name) || Setting::named(name).is_some() || OTHERS.split(' ').any(|other| other == name))
        .collect();
    // A struct without a planned field needs no annotation.
    if !known.iter().any(|name| is_batch(name) || name == "num_workers") {
        return None;
    }
    let name = item.ident.to_string();
    let by_name = match () {
        () if name.ends_with("TrainingConfig") || name.ends_with("TrainConfig") => 2,
        () if name.ends_with("Config") => 1,
        () => 0,
    };
    let score = known.len() as u32 + by_name + u32::from(derives(&item.attrs, "Config"));
    (score >= MIN_SCORE).then_some(Candidate { item, known, score })
}

pub(super) fn derives(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let is_it = |token| matches!(token, proc_macro2::TokenTree::Ident(ident) if ident == name);
        attribute.path().is_ident("derive") && list.tokens.clone().into_iter().any(is_it)
    })
}
