//! Structs that look like training configs.

use gpu_tuned_core::Setting;
use quote::ToTokens as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, Field, Fields, Item, ItemImpl, ItemStruct, Meta, Token};

use crate::code::last;
use gpu_tuned_optimize::{Role, role};

/// Fields of training configs beside settings.
const OTHERS: &str = "num_epochs epochs n_epochs learning_rate lr seed optimizer weight_decay warmup_steps max_steps";
/// Names of accumulation in Burn programs beside those of configs.
const ACCUMULATION: [&str; 3] = ["batches_per_step", "grads_accumulation", "accumulation"];
/// Names of mixed precision.
const PRECISION: [&str; 4] = ["amp", "use_amp", "mixed_precision", "use_mixed_precision"];
/// Minimum score of a candidate.
const MIN_SCORE: u32 = 3;

/// A struct that looks like a training config.
pub(super) struct Candidate<'a> {
    pub item: &'a ItemStruct,
    pub known: Vec<String>,
    pub score: u32,
    /// True if the struct has no field that could be planned.
    pub lacks_batch: bool,
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

    /// The attribute that derives a trait.
    pub(super) fn derive_of(&self, name: &str) -> Option<&Attribute> {
        self.item.attrs.iter().find(|attribute| derives(std::slice::from_ref(*attribute), name))
    }

    /// Fields without Burn's default, which a Burn config's `new` takes in this order.
    pub(super) fn without_default(&self) -> impl Iterator<Item = String> {
        let has_none = |field: &&Field| !field.attrs.iter().any(|it| it.path().is_ident("config"));
        self.item.fields.iter().filter(has_none).filter_map(|field| Some(field.ident.as_ref()?.to_string()))
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&Field, String)> {
        self.item.fields.iter().filter_map(|field| Some((field, field.ident.as_ref()?.to_string())))
    }
}

/// Returns true for names of the samples of a batch. Short names such as `bs` are left out.
pub(super) fn is_batch(name: &str) -> bool {
    name.ends_with("batch_size") && role(name) == Some(Role::Batch) || name == "batch_size_train"
}

/// The setting with this name in programs.
pub(super) fn setting(name: &str) -> Option<Setting> {
    match role(name) {
        _ if is_batch(name) => Some(Setting::BatchSize),
        _ if ACCUMULATION.contains(&name) => Some(Setting::GradientAccumulation),
        _ if PRECISION.contains(&name) => Some(Setting::Precision),
        Some(Role::Accumulation) => Some(Setting::GradientAccumulation),
        Some(Role::Workers) => Some(Setting::NumWorkers),
        _ => Setting::named(name),
    }
}

/// Returns true for names of the samples of an optimizer step.
pub(super) fn is_global_batch(name: &str) -> bool {
    role(name) == Some(Role::GlobalBatch)
}

/// Structs that look like training configs, and those that would with a field for the batch size.
pub(super) fn candidates(items: &[Item]) -> impl Iterator<Item = Candidate<'_>> {
    structs(items).into_iter().filter_map(candidate)
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
        .filter(|name| setting(name).is_some() || is_global_batch(name) || OTHERS.split(' ').any(|other| other == name))
        .collect();
    // A struct without a planned field needs no annotation.
    let is_planned = |name: &String| matches!(setting(name), Some(Setting::BatchSize | Setting::NumWorkers));
    let lacks_batch = !known.iter().any(is_planned);
    let name = item.ident.to_string();
    let by_name = match () {
        () if name.ends_with("TrainingConfig") || name.ends_with("TrainConfig") => 2,
        () if name.ends_with("Config") => 1,
        () => 0,
    };
    let score = known.len() as u32 + by_name + u32::from(derives(&item.attrs, "Config"));
    (score >= MIN_SCORE).then_some(Candidate { item, known, score, lacks_batch })
}

/// The implementation of a trait for a struct.
pub(super) fn implementation<'s>(of: &str, name: &str, items: &'s [Item]) -> Option<&'s ItemImpl> {
    items.iter().find_map(|item| match item {
        Item::Mod(module) => implementation(of, name, &module.content.as_ref()?.1),
        Item::Impl(item) => {
            let is_it = item.trait_.as_ref()?.0.segments.last()?.ident == of;
            (is_it && last(&item.self_ty)? == name).then_some(item)
        }
        _ => None,
    })
}

pub(super) fn derives(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let is_it = |token| matches!(token, proc_macro2::TokenTree::Ident(ident) if ident == name);
        attribute.path().is_ident("derive") && list.tokens.clone().into_iter().any(is_it)
    })
}

/// Paths in a derive, as written.
pub(super) fn derived(derive: &Attribute) -> Vec<String> {
    let paths = derive.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated).unwrap_or_default();
    paths.iter().map(|path| path.to_token_stream().to_string().replace(' ', "")).collect()
}
