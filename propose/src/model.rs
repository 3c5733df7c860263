//! The model of a program by its code: kind, dimensions and optimizer, by the names of Burn's modules in `burn.toml`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use gpu_tuned_attribute::sources::{Node, Visitor};
use gpu_tuned_core::dims::Presence;
use gpu_tuned_core::workload::{ModelKind, Optimizer};
use gpu_tuned_optimize::{Words, aliases};
use proc_macro2::TokenTree;
use quote::ToTokens as _;
use serde::{Deserialize, Serialize};
use syn::{Expr, Field, Item, Type, Visibility};

use crate::annotation::{Given, dimension};
use crate::candidate::{self, derives, named_fields, structs};
use crate::code::{self, Code};
use crate::sources::{Source, all_tokens};

/// Data sets by name: side and channels of images, and classes.
const IMAGES: &[(&str, [u64; 3])] =
    &[("Mnist", [28, 1, 10]), ("FashionMnist", [28, 1, 10]), ("Cifar10", [32, 3, 10]), ("Cifar100", [32, 3, 100])];
/// Vocabulary of tokenizers by name.
const TOKENIZERS: &[(&str, u64)] = &[
    ("bert-base-cased", 28_996),
    ("bert-base-uncased", 30_522),
    ("distilbert-base-uncased", 30_522),
    ("gpt2", 50_257),
    ("roberta-base", 50_265),
];

/// Value of a dimension in an attribute.
pub(super) fn value(kind: &str, dim: &str, code: &Code, chosen: &Code, names: &[&str]) -> Option<String> {
    let count = match (kind, dim) {
        ("convnet", "stages") => {
            let stages = stages(code)?.into_iter().map(|stage| list(&stage)).collect::<Vec<_>>();
            return Some(format!("[{}]", stages.join(", ")));
        }
        ("mlp", "widths") => return widths(code),
        ("convnet", "image") => {
            images(code).map(|[side, ..]| side).or_else(|| field(code, chosen, &["image_size", "img_size"]))
        }
        (_, "vocab") => vocabulary(code).or_else(|| field(code, chosen, names)),
        ("transformer", "seq") => code.lengths.first().copied().or_else(|| field(code, chosen, names)),
        ("convnet", "channels") => images(code).map(|[_, channels, ..]| channels).or_else(|| set(code, chosen, names)),
        (_, "classes") => classes(code, chosen).or_else(|| field(code, chosen, names)),
        _ => field(code, chosen, names),
    };
    count.map(|count| count.to_string())
}

/// Returns true for an optional dimension whose default does not suit what the code has.
pub(super) fn is_needed(kind: &str, dim: &str, code: &Code) -> bool {
    match (kind, dim) {
        ("convnet", "channels") => code.channels().and_then(|all| image_channels(&all)).is_none(),
        ("recurrent", "vocab" | "every_step") => code.has("Embedding"),
        _ => false,
    }
}

/// Dimensions that differ from the defaults of the kind.
pub(super) fn extras(kind: &str, code: &Code, chosen: &Code) -> Vec<(&'static str, String)> {
    let mut extras = Vec::new();
    match kind {
        "convnet" => {
            let channels = code.channels().and_then(|all| image_channels(&all));
            extras
                .extend(channels.filter(|channels| *channels != 3).map(|channels| ("channels", channels.to_string())));
            if code.names.iter().any(|name| name.starts_with("BatchNorm")) {
                extras.push(("batch_statistics", true.to_string()));
            }
            if let Some((side, widths)) = dense_layers(code) {
                extras.extend((side > 1).then(|| ("pooled", side.to_string())));
                extras.extend((!widths.is_empty()).then(|| ("dense", list(&widths))));
            }
        }
        "recurrent"
            if has_default(code, "bidirectional")
                || code.names.iter().any(|name| name.starts_with("BiLstm") || name.starts_with("BiGru")) =>
        {
            extras.push(("bidirectional", true.to_string()));
        }
        "transformer" if code.names.iter().any(|name| name.starts_with("TransformerEncoder")) => {
            extras.extend(classes(code, chosen).map(|classes| ("classes", classes.to_string())));
            if !code.names.iter().any(|name| name.contains("autoregressive")) {
                extras.push(("causal", false.to_string()));
            }
            // Burn's encoder has no final norm.
            extras.push(("final_norm", false.to_string()));
        }
        _ => {}
    }
    if kind == "transformer" && has_own_head(code) && !extras.iter().any(|(dim, _)| *dim == "classes") {
        extras.push(("tied_head", false.to_string()));
    }
    extras
}

/// Returns true if a config has a field of this name that is true by default, and no code sets the field.
fn has_default(code: &Code, name: &str) -> bool {
    let is_true = |value: Expr| matches!(value, Expr::Lit(it) if matches!(&it.lit, syn::Lit::Bool(flag) if flag.value));
    let is_meant = |field: &Field| {
        field.ident.as_ref().is_some_and(|ident| ident == name)
            && field.attrs.iter().filter_map(code::default).any(is_true)
    };
    code.own.iter().any(|own| own.item.fields.iter().any(is_meant)) && !code.has(&format!("with_{name}"))
}

/// Returns true if a dense layer has the vocabulary as outputs, apart from the embedding.
fn has_own_head(code: &Code) -> bool {
    let is_vocabulary = |dense: &code::Dense| dense.text.to_lowercase().contains("vocab");
    code.dense.iter().any(is_vocabulary)
}

/// Number that the program sets for a field with one of these names.
fn set(code: &Code, chosen: &Code, names: &[&str]) -> Option<u64> {
    let of = |code: &Code| code.fields.iter().find(|((_, field), _)| names.contains(&field.as_str())).map(|it| *it.1);
    of(chosen).or_else(|| of(code))
}

/// Number of a config's field with one of these names: what the program sets, else the default, else a constant of that name.
pub(super) fn field(code: &Code, chosen: &Code, names: &[&str]) -> Option<u64> {
    let is_meant = |field: &str| names.contains(&field);
    // A value that only the running program has is not the default.
    let is_open = |code: &Code| {
        code.all.iter().any(|((of, field), all)| is_meant(field) && all.contains(&None) && code.can_count(of, field))
    };
    let is_known = || !is_open(code) && !is_open(chosen);
    let numbers = |name: &&str| {
        let configs = code.own.iter().filter(|own| derives(&own.item.attrs, "Config"));
        let fields = configs.flat_map(|own| named_fields(&own.item).map(move |(field, name)| (&own.item, field, name)));
        let of_name = fields.filter(|(.., field)| field == name);
        of_name.map(|(item, field, name)| candidate::number(item, field, &name, code)).collect::<BTreeSet<_>>()
    };
    let default = || match names.iter().map(numbers).find(|numbers| !numbers.is_empty()) {
        Some(all) if all.len() == 1 => all.into_iter().next()?,
        Some(_) => None,
        None => names.iter().find_map(|name| code.constant_of(name)),
    };
    set(code, chosen, names).or_else(|| is_known().then(default).flatten())
}

/// Channels of the image: those that no convolution has as output, or the first ones if all have.
fn image_channels(all: &[[u64; 2]]) -> Option<u64> {
    let inputs: BTreeSet<u64> =
        all.iter().map(|[from, _]| *from).filter(|from| all.iter().all(|[_, to]| to != from)).collect();
    let any = || all.first().map(|[from, _]| *from);
    if inputs.len() < 2 { inputs.first().copied().or_else(any) } else { None }
}

fn widths(code: &Code) -> Option<String> {
    dense_sizes(code).map(|sizes| list(&sizes))
}

fn list(numbers: &[u64]) -> String {
    format!("[{}]", numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
}

/// Side of the image before the dense layers, and the widths of those before the classes.
fn dense_layers(code: &Code) -> Option<(u64, Vec<u64>)> {
    let [features, widths @ .., _] = &dense_sizes(code)?[..] else { return None };
    let [channels, _] = *stages(code)?.last()?;
    let side = (features / channels).isqrt();
    // The planner's last stage has as many channels as the last convolution.
    let is_square = side * side * channels == *features && code.channels()?.last()?[1] == channels;
    is_square.then(|| (side, widths.to_vec()))
}

/// Sizes of the dense layers of one model, which follow each other; constructors such as `init_with` repeat them.
fn dense_sizes(code: &Code) -> Option<Vec<u64>> {
    let first = code.dense.first()?;
    if repeats(code, "Linear") || code.dense.iter().any(|dense| dense.of != first.of) {
        return None;
    }
    let pair = |dense: &code::Dense| Some([code.number_of(&dense.sizes[0])?, code.number_of(&dense.sizes[1])?]);
    let all: Vec<[u64; 2]> = code.dense.iter().map(pair).collect::<Option<_>>()?;
    let is_chain = |pairs: &[[u64; 2]]| pairs.windows(2).all(|pair| pair[0][1] == pair[1][0]);
    let mut lengths = (1..=all.len()).filter(|length| {
        all.len().is_multiple_of(*length)
            && is_chain(&all[..*length])
            && all.chunks(*length).all(|it| *it == all[..*length])
    });
    let (Some(length), None) = (lengths.next(), lengths.next()) else { return None };
    Some(std::iter::once(all[0][0]).chain(all[..length].iter().map(|[_, outputs]| *outputs)).collect())
}

/// Returns true if a struct has a list of modules, or of the program's own blocks with them, whose number the constructor gives.
fn repeats(code: &Code, module: &str) -> bool {
    let has = |field: &Field, is_meant: &dyn Fn(&str) -> bool| {
        let tokens = all_tokens(field.ty.to_token_stream());
        tokens.iter().any(|token| matches!(token, TokenTree::Ident(ident) if is_meant(&ident.to_string())))
    };
    let is_block = |own: &&code::Own| own.item.fields.iter().any(|field| has(field, &|name| name == module));
    let blocks: Vec<_> = code.own.iter().filter(is_block).map(|own| own.name.as_str()).chain([module]).collect();
    let is_list = |field: &Field| has(field, &|name| name == "Vec") && has(field, &|name| blocks.contains(&name));
    code.own.iter().any(|own| own.item.fields.iter().any(is_list))
}

/// Stages of convolutions: each is a block. Without downsampling, all are one stage with the most channels.
fn stages(code: &Code) -> Option<Vec<[u64; 2]>> {
    const SHRINKING: [&str; 3] = ["MaxPool2d", "AvgPool2d", "with_stride"];
    let shrinks = code.names.iter().any(|name| SHRINKING.iter().any(|prefix| name.starts_with(prefix)));
    if repeats(code, "Conv2d") {
        return None;
    }
    let mut stages: Vec<[u64; 2]> = Vec::new();
    for [_, channels] in code.channels()? {
        match stages.last_mut() {
            Some([widest, blocks]) if !shrinks || *widest == channels => {
                *widest = channels.max(*widest);
                *blocks += 1;
            }
            _ => stages.push([channels, 1]),
        }
    }
    (!stages.is_empty()).then_some(stages)
}

fn images(code: &Code) -> Option<[u64; 3]> {
    // Old releases have `MNISTDataset`.
    let is_of = |set: &str, name: &String| {
        ["Dataset", "Item", "Loader", "Batcher"].iter().any(|end| name.eq_ignore_ascii_case(&format!("{set}{end}")))
    };
    IMAGES.iter().find(|(set, _)| code.names.iter().any(|name| is_of(set, name))).map(|(_, known)| *known)
}

fn classes(code: &Code, chosen: &Code) -> Option<u64> {
    let is_count = |name: &str| ["num_classes", "n_classes"].contains(&name.to_lowercase().as_str());
    let counts = || code.constants.iter().filter(|(name, ..)| is_count(name));
    // The data set of the program that trains.
    let meant = counts().find(|(_, of, _)| of.as_ref().is_some_and(|of| chosen.has(of)));
    let value = meant.or_else(|| counts().next()).map(|(.., value)| *value);
    value.or_else(|| field(code, chosen, &["num_classes", "n_classes"])).or_else(|| Some(images(code)?[2]))
}

fn vocabulary(code: &Code) -> Option<u64> {
    TOKENIZERS.iter().find(|(name, _)| code.has("from_pretrained") && code.has(name)).map(|(_, tokens)| *tokens)
}

/// Kind of model that the code indicates.
pub(super) struct Family {
    pub kind: &'static ModelKind,
    /// Name of the indicating module, and its place.
    pub hint: Option<(String, String)>,
    /// The reason why the code indicates no kind, although it has known modules.
    pub doubt: Option<String>,
}

impl Family {
    pub(super) fn new<'s>(sources: impl Iterator<Item = &'s Source>) -> Self {
        let (sources, mut names): (Vec<_>, _) = (sources.collect(), Names::default());
        if let Some(doubt) = foreign_module(&sources) {
            return Self { kind: undescribed(), hint: None, doubt: Some(doubt) };
        }
        for source in sources {
            names.file.clone_from(&source.name);
            Node::File(&source.file).walk(&mut names);
        }
        let names = names.found;
        let hit = |prefixes: &Words| names.iter().find(|(name, _)| is_module(name, prefixes)).cloned();
        if let Some(doubt) = BurnNames::get().mixture.iter().find_map(|mixture| doubt(mixture, hit)) {
            return Self { kind: undescribed(), hint: None, doubt: Some(doubt) };
        }
        let found = BurnNames::get().kinds().find_map(|(kind, modules)| Some((kind, Some(hit(modules)?))));
        let (kind, hint) = found.unwrap_or_else(|| (undescribed(), None));
        Self { kind, hint, doubt: None }
    }

    /// Returns true if the code has no module that indicates a kind.
    pub(super) const fn is_unknown(&self) -> bool {
        self.hint.is_none() && self.doubt.is_none()
    }

    /// Names of a dimension in programs, its own first.
    pub(super) fn names_of(&self, dim: &'static str) -> Vec<&'static str> {
        std::iter::once(dim).chain(aliases(self.kind.name, dim)).collect()
    }

    pub(super) fn is_gru(&self) -> bool {
        self.hint.as_ref().is_some_and(|(name, _)| name.contains("Gru"))
    }
}

/// The reason against a kind for a program whose module has one of another crate.
fn foreign_module(sources: &[&Source]) -> Option<String> {
    const KNOWN: [&str; 7] = ["crate", "self", "super", "std", "core", "alloc", "nn"];
    let structs =
        || sources.iter().flat_map(|source| structs(&source.file.items).into_iter().map(move |it| (source, it)));
    let is_own = |name: &str| structs().any(|(_, item)| item.ident == name);
    structs().filter(|(_, item)| derives(&item.attrs, "Module")).find_map(|(source, item)| {
        let imports = source.file.items.iter().filter_map(|item| if let Item::Use(it) = item { Some(it) } else { None });
        item.fields.iter().filter_map(|field| code::last(&field.ty)).filter(|name| !is_own(name)).find_map(|name| {
            let tokens = imports.clone().map(|it| all_tokens(it.tree.to_token_stream()));
            let names = tokens.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            let from = names.filter(|all| all.contains(&name)).find_map(|all| all.into_iter().next())?;
            let is_foreign = !KNOWN.contains(&&*from) && !from.starts_with("burn");
            is_foreign.then(|| {
                let place = format!("{}:{}", source.name, item.ident.span().start().line);
                format!("`{name}` in {place} is of the crate `{from}`, which `init` does not read. Here, {MEASURE_OR_DECLARE}.")
            })
        })
    })
}

/// Names of types, of constructors and of methods in code, with their places.
#[derive(Default)]
struct Names {
    file: String,
    found: Vec<(String, String)>,
}

impl Names {
    fn add(&mut self, ident: &proc_macro2::Ident) {
        self.found.push((ident.to_string(), format!("{}:{}", self.file, ident.span().start().line)));
    }
}

impl Visitor<'_> for Names {
    fn visit(&mut self, node: Node<'_>) {
        match node {
            Node::Item(Item::Struct(item)) => self.add(&item.ident),
            Node::Type(Type::Path(ty)) => ty.path.segments.last().into_iter().for_each(|it| self.add(&it.ident)),
            // Not the last name, which may be a variant of an enum.
            Node::Path(path) => path.path.segments.iter().rev().nth(1).into_iter().for_each(|it| self.add(&it.ident)),
            Node::Expr(Expr::Struct(it)) => it.path.segments.last().into_iter().for_each(|it| self.add(&it.ident)),
            Node::Expr(Expr::MethodCall(call)) => self.add(&call.method),
            Node::Macro(call) => {
                let tokens = all_tokens(call.tokens.clone());
                for pair in tokens.windows(2) {
                    if let [TokenTree::Ident(name), TokenTree::Punct(colon)] = pair
                        && colon.as_char() == ':'
                    {
                        self.add(name);
                    }
                }
            }
            _ => {}
        }
        node.walk(self);
    }
}

/// Returns true for the name of a module, with a suffix such as `Config` or `2d`: `Interpolate2d`, and not `InterpolatedState`.
fn is_module(name: &str, prefixes: &Words) -> bool {
    let is_word = |rest: &str| !rest.starts_with(char::is_lowercase);
    prefixes.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(is_word)) && !name.contains("LrScheduler")
}

/// The ways for a model that no kind describes.
pub(super) const MEASURE_OR_DECLARE: &str =
    "run `cargo gpu-tuned measure`, which needs no GPU, or give the costs of a sample";

fn undescribed() -> &'static ModelKind {
    ModelKind::named("declared").expect("BUG: a kind of model")
}

/// The reason why modules of a mixture are no model of one kind, if the code has all of them.
fn doubt(mixture: &Mixture, hit: impl Fn(&Words) -> Option<(String, String)>) -> Option<String> {
    if hit(&mixture.unless).is_some() {
        return None;
    }
    let found: Vec<_> = mixture.parts.iter().map(hit).collect::<Option<_>>()?;
    let places: Vec<_> = found.iter().map(|(name, place)| format!("`{name}` in {place}")).collect();
    let advice = match mixture.like.as_deref().and_then(ModelKind::description_of) {
        Some(keyword) => format!(
            "For {}, write `{keyword}` in place of `declared(…)`. For others, {MEASURE_OR_DECLARE}.",
            mixture.such
        ),
        None => format!("Here, {MEASURE_OR_DECLARE}."),
    };
    Some(format!("{}: {}. `init` does not read such models. {advice}", places.join(" and "), mixture.model))
}

/// Optimizer in the annotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Annotated {
    /// None: the code has the default, or no optimizer.
    Default,
    /// An optimizer that differs from the default.
    Other(Optimizer),
    /// None: the code is ambiguous, or has an optimizer that the planner lacks. With a note.
    Open(String),
}

/// The optimizer of the program that trains, else of any code.
pub(super) fn optimizer_in(code: &Code, chosen: &Code) -> Annotated {
    let in_code = |code: &Code| {
        let mut found: Vec<(String, Option<Optimizer>)> = Vec::new();
        for name in &code.names {
            let optimizer = BurnNames::get().optimizer(name);
            found.extend(
                optimizer.filter(|_| found.iter().all(|(known, _)| known != name)).map(|it| (name.clone(), it)),
            );
        }
        // Muon takes matrices only: another optimizer takes the rest.
        found.sort_by_key(|(_, optimizer)| *optimizer == Some(Optimizer::Muon));
        found
    };
    let found = Some(in_code(chosen)).filter(|found| !found.is_empty()).unwrap_or_else(|| in_code(code));
    let assumed = format!("plans assume {} until it is measured", Optimizer::default());
    match &found[..] {
        [] => Annotated::Default,
        [(_, Some(Optimizer::Sgd))] if code.has("MomentumConfig") => Annotated::Other(Optimizer::Momentum),
        [(_, Some(optimizer))] if *optimizer == Optimizer::default() => Annotated::Default,
        [(_, Some(optimizer))] => Annotated::Other(*optimizer),
        [.., (_, Some(Optimizer::Muon))] => Annotated::Other(Optimizer::Muon),
        [(config, None)] => Annotated::Open(format!("the planner has no `{config}`: {assumed}")),
        several => {
            let configs: Vec<_> = several.iter().map(|(config, _)| format!("`{config}`")).collect();
            Annotated::Open(format!("add `optimizer = …` for the one of {} that trains: {assumed}", configs.join(", ")))
        }
    }
}

const MAX_DEPTH: usize = 3;

pub(super) struct NestedDim {
    pub dim: &'static str,
    path: Vec<String>,
    pub value: u64,
}

impl NestedDim {
    /// The entry of `#[tuned(dims(…))]`.
    pub(super) fn to_attribute(&self) -> String {
        match &self.path[..] {
            [field] if field == self.dim => format!("{field} = {}", self.value),
            path => format!("{}: {} = {}", self.dim, path.join("."), self.value),
        }
    }
}

/// Dimensions with a known value in a config of this type, for a struct in this file. Classes alone are ignored: they have
/// little effect on costs.
pub(super) fn nested_dims(ty: &Type, file: &str, given: &Given<'_>) -> Vec<NestedDim> {
    let mut found = Vec::new();
    Inside { file, given, found: &mut found, looked: BTreeMap::new() }.look(ty, &[]);
    if found.iter().all(|held| held.dim == "classes") { Vec::new() } else { found }
}

struct Inside<'i> {
    file: &'i str,
    given: &'i Given<'i>,
    found: &'i mut Vec<NestedDim>,
    /// Depths of the shortest paths to the types that were looked at.
    looked: BTreeMap<String, usize>,
}

impl Inside<'_> {
    fn look(&mut self, ty: &Type, path: &[String]) {
        let Some(name) = code::last(ty) else { return };
        // Another path to a type gives no other dimensions, unless the path is shorter.
        if self.looked.get(&name).is_some_and(|depth| *depth <= path.len()) {
            return;
        }
        self.looked.insert(name.clone(), path.len());
        if let Some(fields) = BurnNames::get().config(&name) {
            for (field, dim) in fields {
                let known = self.given.family.kind.dims.iter().find(|known| known.name == dim);
                self.take(known.map(|known| known.name), path, (&name, field), None);
            }
            return;
        }
        let given = self.given;
        let Some(own) = given.code.own.iter().find(|own| own.name == name).filter(|_| path.len() < MAX_DEPTH) else {
            return;
        };
        // The module of the annotated struct must be able to read the field.
        let is_near = own.file == self.file;
        let is_seen = |field: &&Field| is_near || !matches!(field.vis, Visibility::Inherited);
        for field in own.item.fields.iter().filter(is_seen) {
            let Some(ident) = field.ident.as_ref().map(ToString::to_string) else { continue };
            match dimension(&ident, &field.ty, &given.family) {
                Some(dim) => {
                    let default =
                        field.attrs.iter().filter_map(code::default).find_map(|value| given.code.number(&value));
                    self.take(Some(dim), path, (&name, &ident), default);
                }
                None => self.look(&field.ty, &[path, &[ident]].concat()),
            }
        }
    }

    /// Adds a dimension whose value is in the code; the program that trains has precedence.
    fn take(&mut self, dim: Option<&'static str>, path: &[String], (ty, field): (&str, &str), default: Option<u64>) {
        let Given { code, chosen, .. } = self.given;
        let values = if chosen.fields.keys().any(|(of, _)| of == ty) { chosen } else { code };
        let key = (ty.to_owned(), field.to_owned());
        let value = values.fields.get(&key).copied().or(default.filter(|_| !values.all.contains_key(&key)));
        let (Some(dim), Some(value)) = (dim, value) else { return };
        if self.found.iter().all(|held| held.dim != dim) {
            self.found.push(NestedDim { dim, path: [path, &[field.to_owned()]].concat(), value });
        }
    }
}

/// A model with the numbers of the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelWords {
    /// The model: `mlp(widths = [784, 512, 10])`.
    pub model: String,
    /// Dimensions with an example in place of a number that the code lacks.
    pub examples: Vec<&'static str>,
    /// Samples of an optimizer step.
    pub global_batch: Option<u64>,
}

/// Example of each required dimension, of any kind of model.
const EXAMPLES: &[(&str, &str)] = &[
    ("classes", "10"),
    ("d_model", "512"),
    ("hidden", "128"),
    ("image", "224"),
    ("inputs", "8"),
    ("layers", "6"),
    ("outputs", "1"),
    ("seq", "256"),
    ("stages", "[[64, 2], [128, 2]]"),
    ("vocab", "32_000"),
];

/// Returns an example of a required dimension.
fn example(kind: &ModelKind, dim: &str) -> &'static str {
    match (kind.name, dim) {
        ("unet", "widths") => "[64, 128, 256]",
        (_, "widths") => "[784, 512, 10]",
        _ => EXAMPLES.iter().find(|(name, _)| *name == dim).map_or("1", |(_, value)| value),
    }
}

impl ModelWords {
    /// Describes the model by the numbers of fields and of the code; `None` for a model that no kind describes.
    pub(super) fn new(
        family: &Family,
        (code, chosen): (&Code, &Code),
        fields: &BTreeMap<&'static str, u64>,
        global_batch: Option<u64>,
    ) -> Option<Self> {
        let kind = family.kind;
        if kind.name == undescribed().name {
            return None;
        }
        let (mut dims, mut examples) = (Vec::new(), Vec::new());
        for dim in kind.dims.iter().filter(|dim| dim.presence == Presence::Required) {
            let field = fields.get(dim.name).map(u64::to_string);
            let found = || value(kind.name, dim.name, code, chosen, &family.names_of(dim.name));
            let found = field.or_else(found);
            examples.extend(found.is_none().then_some(dim.name));
            dims.push((dim.name, found.unwrap_or_else(|| example(kind, dim.name).to_owned())));
        }
        let is_missing = |name: &str| !dims.iter().any(|(dim, _)| *dim == name);
        let others = fields.iter().filter(|(name, _)| is_missing(name));
        let mut all = dims.clone();
        all.extend(others.map(|(name, value)| (*name, value.to_string())));
        let extras = extras(kind.name, code, chosen).into_iter();
        all.extend(extras.filter(|(name, _)| is_missing(name) && !fields.contains_key(name)));
        all.extend(family.is_gru().then(|| ("cell", "\"gru\"".to_owned())));
        if let Annotated::Other(optimizer) = optimizer_in(code, chosen) {
            all.push(("optimizer", format!("\"{optimizer}\"")));
        }
        let all: Vec<_> = all.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        Some(Self { model: format!("{}({})", kind.name, all.join(", ")), examples, global_batch })
    }

    /// The command that plans the model for a GPU, or with `--here` for this machine.
    pub fn command(&self, gpu: &str) -> String {
        let batch = self.global_batch.map_or_else(String::new, |samples| format!(" --global-batch {samples}"));
        format!("cargo gpu-tuned plan {gpu} --model '{}'{batch}", self.model)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct BurnNames {
    modules: Vec<(String, Words)>,
    unplanned: Words,
    /// Ends of the names of config structs, of training and others.
    pub training_configs: Words,
    pub other_configs: Words,
    /// Parts of the names of losses that compare the samples of a batch.
    pub coupling: Words,
    pub mixture: Vec<Mixture>,
    pub weighted: Vec<Weighted>,
    config: Vec<Config>,
}

/// Modules that together are no model of one kind.
#[derive(Debug, Deserialize)]
pub(super) struct Mixture {
    /// Prefixes of modules, of which each part has at least one.
    pub parts: Vec<Words>,
    /// Prefixes of modules that identify the kind all the same.
    #[serde(default)]
    pub unless: Words,
    /// Description of such models.
    pub model: String,
    /// Name in the table of descriptions; `None` for models that no kind describes.
    pub like: Option<String>,
    /// Name of such models in a message.
    #[serde(default)]
    pub such: String,
}

/// Settings of a loss whose mean is over something else than samples.
#[derive(Debug, Deserialize)]
pub(super) struct Weighted {
    /// Types with the settings.
    pub builder: Words,
    pub settings: Words,
    /// Plural of what the mean is over.
    pub over: String,
    /// Sum of that, in the program's code.
    pub weight: String,
}

#[derive(Debug, Deserialize)]
struct Config {
    words: Words,
    fields: Vec<(String, String)>,
}

impl BurnNames {
    pub(super) fn get() -> &'static Self {
        static NAMES: LazyLock<BurnNames> =
            LazyLock::new(|| toml::from_str(include_str!("burn.toml")).expect("BUG: the table of names is valid"));
        &NAMES
    }

    /// Kinds of models with the prefixes of their modules, in the order in which programs are searched for them.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&'static ModelKind, &Words)> {
        self.modules.iter().filter_map(|(kind, modules)| Some((ModelKind::named(kind)?, modules)))
    }

    /// Arguments of the constructor of a module's config, each with the dimension that it is.
    pub(super) fn config(&self, name: &str) -> Option<&[(String, String)]> {
        let is_meant = |config: &&Config| config.words.iter().any(|word| word == name);
        self.config.iter().find(is_meant).map(|config| config.fields.as_slice())
    }

    /// The optimizer of a config such as `AdamWConfig`; `Some(None)` for one that the planner has no counterpart of.
    #[expect(clippy::option_option, reason = "known to Burn and known to the planner are two questions")]
    pub(super) fn optimizer(&self, config: &str) -> Option<Option<Optimizer>> {
        let name = config.strip_suffix("Config")?.to_ascii_lowercase();
        // Momentum is a field of `SgdConfig`.
        let mut planned = Optimizer::ALL.into_iter().filter(|it| *it != Optimizer::Momentum);
        let planned = planned.find(|optimizer| optimizer.name() == name);
        let is_unplanned = || self.unplanned.iter().any(|word| word == config);
        planned.map(Some).or_else(|| is_unplanned().then_some(None))
    }
}
