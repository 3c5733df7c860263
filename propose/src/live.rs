//! Code that the program uses: items whose names are reached from `main`, the training loop and its config.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenTree;
use quote::ToTokens as _;
use syn::{Item, ItemMod};

use crate::code::last;
use crate::sources::{Program, Source, all_items, all_tokens, module};
use crate::training_loop::TrainingLoop;

/// An item with what it mentions.
struct Entry<'s> {
    source: usize,
    item: &'s Item,
    mentions: BTreeSet<String>,
}

/// The package's own sources with the items that the program uses; with all items if its functions do not show what trains.
pub(super) fn live(
    reached: &[&Source],
    program: Option<Program<'_>>,
    training: Option<&TrainingLoop<'_>>,
    config: Option<(&Source, &str)>,
) -> Vec<Source> {
    let own: Vec<&Source> = reached.iter().copied().filter(|source| source.is_own()).collect();
    used(&own, program, training, config)
        .unwrap_or_else(|| own.into_iter().map(|source| source.with_items(source.file.items.clone())).collect())
}

/// Sources with the items that the program uses; `None` if its functions do not show what trains.
pub(super) fn used(
    own: &[&Source],
    program: Option<Program<'_>>,
    training: Option<&TrainingLoop<'_>>,
    config: Option<(&Source, &str)>,
) -> Option<Vec<Source>> {
    let entries: Vec<Entry<'_>> = own.iter().enumerate().flat_map(|(at, source)| entries(at, source)).collect();
    let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Some(name) = name(entry.item) {
            named.entry(name).or_default().push(at);
        }
    }
    let modules: Vec<BTreeSet<String>> = own.iter().map(|source| imports(source)).collect();
    let of = |source: &Source, wanted: &str| {
        let found = named.get(wanted).into_iter().flatten().copied();
        found.filter(|at| own[entries[*at].source].name == source.name).collect::<Vec<_>>()
    };
    let main = program.and_then(|program| own.iter().find(|source| program.is_root(source)));
    let mut open: Vec<usize> = main.map(|source| of(source, "main")).unwrap_or_default();
    open.extend(training.iter().flat_map(|training| of(training.source, &training.name())));
    // Functions that use nothing of the package but its config do not show what trains.
    let is_config = |name: &str| config.is_some_and(|(_, config)| config == name);
    let others = |name: &String| {
        !is_config(name) && named.get(name).is_some_and(|all| all.iter().any(|found| !open.contains(found)))
    };
    if !open.iter().any(|at| entries[*at].mentions.iter().any(others)) {
        return None;
    }
    open.extend(config.into_iter().flat_map(|(source, name)| of(source, name)));
    let mut live: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(at) = open.pop() {
        let Entry { source, mentions, .. } = &entries[at];
        for all in mentions.iter().filter_map(|name| named.get(name)) {
            // A name of several modules is that of the file, else of a module that the file names. An implementation in the file
            // may be of a type from elsewhere.
            let is_near = |at: &&usize| entries[**at].source == *source;
            let is_definition = |at: &usize| !matches!(entries[*at].item, Item::Impl(_));
            let is_named = |at: &&usize| {
                let of = module(&own[entries[**at].source].name);
                of.is_none_or(|of| modules[*source].contains(of) || mentions.contains(of))
            };
            let near: Vec<usize> = all.iter().filter(is_near).copied().collect();
            let has_definition = near.iter().any(is_definition);
            let meant: Vec<usize> = all.iter().filter(|at| is_near(at) || is_named(at)).copied().collect();
            let meant = if has_definition { near } else { meant };
            let meant = if meant.iter().any(is_definition) { meant } else { all.clone() };
            open.extend(meant.into_iter().filter(|at| live.insert(*at)));
        }
    }
    let is_live: BTreeSet<*const Item> = live.iter().map(|at| std::ptr::from_ref(entries[*at].item)).collect();
    Some(own.iter().map(|source| source.with_items(kept(&source.file.items, &is_live))).collect())
}

fn entries(at: usize, source: &Source) -> Vec<Entry<'_>> {
    let items = all_items(&source.file.items).into_iter().filter(|item| name(item).is_some());
    let mentions = |item: &Item| {
        let tokens = all_tokens(item.to_token_stream()).into_iter();
        tokens
            .filter_map(|token| if let TokenTree::Ident(name) = token { Some(name.to_string()) } else { None })
            .collect()
    };
    items.map(|item| Entry { source: at, item, mentions: mentions(item) }).collect()
}

/// Name by which code reaches an item; `None` for an item that always counts.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Impl(item) => return last(&item.self_ty),
        _ => return None,
    };
    Some(ident.to_string())
}

/// Identifiers in the imports of a file.
fn imports(source: &Source) -> BTreeSet<String> {
    let imports = source.file.items.iter().filter(|item| matches!(item, Item::Use(_)));
    let tokens = imports.flat_map(|item| all_tokens(item.to_token_stream()));
    tokens.filter_map(|token| if let TokenTree::Ident(name) = token { Some(name.to_string()) } else { None }).collect()
}

fn kept(items: &[Item], live: &BTreeSet<*const Item>) -> Vec<Item> {
    let keep = |item: &Item| match item {
        Item::Mod(module) => {
            let content = module.content.as_ref().map(|(brace, items)| (*brace, kept(items, live)));
            Some(Item::Mod(ItemMod { content, ..module.clone() }))
        }
        item if name(item).is_none() || live.contains(&std::ptr::from_ref(item)) => Some(item.clone()),
        _ => None,
    };
    items.iter().filter_map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training_loop::training_loops;

    #[test]
    fn a_model_is_found_behind_an_implementation_in_the_file_of_the_loop() {
        let loop_ = "use crate::model::Cnn; impl TrainStep for Cnn {} struct Other;
            fn train() { let model = Cnn::new(); SupervisedTraining::new(); }";
        let sources = [
            Source::of_text("src/model.rs", "pub struct Cnn { conv: Conv2d } struct Unused;"),
            Source::of_text("src/other.rs", "pub struct Other { layer: Linear }"),
            Source::of_text("src/training.rs", loop_),
        ];
        let loops = training_loops(&sources);
        let used = used(&sources.iter().collect::<Vec<_>>(), None, loops.first(), None).expect("a program");
        let counts: Vec<_> = used.iter().map(|source| source.file.items.len()).collect();
        assert_eq!(counts, [1, 0, 3]);
    }
}
