//! Imports of Burn's modules and optimizers that have a faster version in `gpu_tuned::nn` and `gpu_tuned::optim`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gpu_tuned_core::LibraryGain;
use gpu_tuned_core::workload::Family;
use proc_macro2::TokenTree;
use serde::Serialize;
use syn::spanned::Spanned as _;
use syn::{Item, UseTree};

use crate::sources::{Source, all_items};

/// Names in Burn with a faster version, by their module.
const FASTER: [(&str, &[&str]); 7] = [
    (
        "nn",
        &[
            "BatchNorm",
            "BatchNormConfig",
            "BiGru",
            "BiGruConfig",
            "BiLstm",
            "BiLstmConfig",
            "Embedding",
            "EmbeddingConfig",
            "GroupNorm",
            "GroupNormConfig",
            "Gru",
            "GruConfig",
            "InstanceNorm",
            "InstanceNormConfig",
            "LayerNorm",
            "LayerNormConfig",
            "Linear",
            "LinearConfig",
            "Lstm",
            "LstmConfig",
        ],
    ),
    ("nn::attention", &["MultiHeadAttention", "MultiHeadAttentionConfig", "MhaInput"]),
    (
        "nn::conv",
        &[
            "Conv1d",
            "Conv1dConfig",
            "Conv2d",
            "Conv2dConfig",
            "Conv3d",
            "Conv3dConfig",
            "ConvTranspose1d",
            "ConvTranspose1dConfig",
            "ConvTranspose2d",
            "ConvTranspose2dConfig",
            "ConvTranspose3d",
            "ConvTranspose3dConfig",
        ],
    ),
    ("nn::gru", &["BiGru", "BiGruConfig", "Gru", "GruConfig"]),
    (
        "nn::transformer",
        &[
            "PositionWiseFeedForward",
            "PositionWiseFeedForwardConfig",
            "TransformerEncoder",
            "TransformerEncoderConfig",
            "TransformerEncoderInput",
        ],
    ),
    ("nn::loss", &["CrossEntropyLoss", "CrossEntropyLossConfig"]),
    ("optim", &["Adam", "AdamConfig", "AdamW", "AdamWConfig"]),
];

/// Families of kinds of models.
const FAMILIES: [(&str, Family); 6] = [
    ("transformer", Family::Transformer),
    ("encoder_decoder", Family::Transformer),
    ("vit", Family::Transformer),
    ("convnet", Family::Convnet),
    ("unet", Family::Convnet),
    ("recurrent", Family::Recurrent),
];

/// Imports to change by hand, for kernels of NVIDIA's library.
#[derive(Debug, Serialize)]
pub struct ImportProposal {
    /// The imports, and paths in code.
    pub imports: Vec<Import>,
    /// Measured gain for the kind of network.
    pub gain: String,
}

/// Modules to take from another place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Import {
    /// File of the import.
    pub file: String,
    /// Line of the import.
    pub line: usize,
    /// Path of the modules in Burn.
    pub from: String,
    /// Path to write.
    pub to: String,
}

impl ImportProposal {
    /// Proposes the imports of a program, if the kind of its network has a measured gain. `krate` is the name of the runtime.
    pub(super) fn new<'s>(sources: impl Iterator<Item = &'s Source>, kind: &str, krate: &str) -> Option<Self> {
        let (_, family) = FAMILIES.into_iter().find(|(name, _)| *name == kind)?;
        let gain = LibraryGain::of_family(family)?.to_string();
        let mut imports: Vec<_> =
            sources.filter(|source| source.is_own()).flat_map(|source| of_source(source, krate)).collect();
        imports.sort();
        (!imports.is_empty()).then_some(Self { imports, gain })
    }
}

/// Changes by line and by the module of Burn: paths below the module. The module itself has an empty path.
#[derive(Default)]
struct Changes(BTreeMap<(usize, String), BTreeSet<String>>);

impl Changes {
    /// Adds a path below `burn`.
    fn add(&mut self, line: usize, path: &[String], suffix: &str) {
        let Some((module, below)) = path.split_first() else { return };
        self.0.entry((line, module.clone())).or_default().insert(below.join("::") + suffix);
    }
}

fn of_source(source: &Source, krate: &str) -> Vec<Import> {
    let mut scope = Scope::default();
    let mut changes = Changes::default();
    for item in all_items(&source.file.items) {
        if let Item::Use(item) = item {
            let line = item.span().start().line;
            scope.add(&mut Vec::new(), &item.tree, line, &mut changes);
        }
    }
    for (line, path) in paths(&source.tokens) {
        if let Some((line, path)) = scope.change(&path, line) {
            changes.add(line, &path, "");
        }
    }
    let import = |line: usize, module: &str, names: &[String]| {
        let below = match names {
            [] => String::new(),
            [only] => format!("::{only}"),
            several => format!("::{{{}}}", several.join(", ")),
        };
        let [from, to] = ["burn", krate].map(|root| format!("{root}::{module}{below}"));
        Import { file: source.name.clone(), line, from, to }
    };
    let imports = |((line, module), names): ((usize, String), BTreeSet<String>)| {
        let (all, names): (Vec<_>, Vec<_>) = names.into_iter().partition(String::is_empty);
        let all = (!all.is_empty()).then(|| import(line, &module, &[]));
        all.into_iter().chain((!names.is_empty()).then(|| import(line, &module, &names))).collect::<Vec<_>>()
    };
    changes.0.into_iter().flat_map(imports).collect()
}

/// Paths in code with their lines, such as `nn::LinearConfig::new`.
fn paths(tokens: &[TokenTree]) -> Vec<(usize, Vec<String>)> {
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    let ident = |token: Option<&TokenTree>| match token {
        Some(TokenTree::Ident(ident)) => Some((ident.span().start().line, ident.to_string())),
        _ => None,
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let Some((line, first)) = ident(tokens.get(at)) else {
            at += 1;
            continue;
        };
        let mut path = vec![first];
        at += 1;
        while is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1)) {
            let Some((_, next)) = ident(tokens.get(at + 2)) else { break };
            path.push(next);
            at += 3;
        }
        found.push((line, path));
    }
    found
}

/// The part of a path below `burn` that has a faster version.
fn faster(path: &[String]) -> Option<&[String]> {
    let [root, below @ ..] = path else { return None };
    let is_one = |(module, names): &(&str, &[&str])| {
        let modules = module.split("::").count();
        let is_module = below.len() > modules && module.split("::").eq(&below[..modules]);
        (is_module && names.contains(&below[modules].as_str())).then_some(modules + 1)
    };
    let length = FASTER.iter().find_map(is_one)?;
    (root == "burn").then_some(&below[..length])
}

/// Imported names of a file.
#[derive(Default)]
struct Scope {
    /// Whole paths by name, with the lines of their imports.
    names: BTreeMap<String, (Vec<String>, usize)>,
    /// Modules whose names are all imported.
    globs: Vec<(Vec<String>, usize)>,
}

impl Scope {
    /// Adds an import below `path`. Names with a faster version are changes.
    fn add(&mut self, path: &mut Vec<String>, tree: &UseTree, line: usize, changes: &mut Changes) {
        match tree {
            UseTree::Path(below) => {
                path.push(below.ident.to_string());
                self.add(path, &below.tree, line, changes);
                path.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add(path, tree, line, changes)),
            UseTree::Glob(_) => self.globs.push((path.clone(), line)),
            UseTree::Name(name) => self.name(path, &name.ident.to_string(), None, line, changes),
            UseTree::Rename(name) => {
                self.name(path, &name.ident.to_string(), Some(name.rename.to_string()), line, changes);
            }
        }
    }

    fn name(&mut self, path: &[String], name: &str, alias: Option<String>, line: usize, changes: &mut Changes) {
        let mut whole = path.to_vec();
        if name != "self" {
            whole.push(name.to_owned());
        }
        if let Some(below) = faster(&whole) {
            let renamed = alias.as_ref().map_or_else(String::new, |alias| format!(" as {alias}"));
            changes.add(line, below, &renamed);
        }
        let Some(short) = alias.or_else(|| whole.last().cloned()) else { return };
        self.names.insert(short, (whole, line));
    }

    /// The change for a path in code: its line, and the path below `burn`.
    fn change(&self, path: &[String], line: usize) -> Option<(usize, Vec<String>)> {
        let [first, rest @ ..] = path else { return None };
        if let Some((whole, imported)) = self.names.get(first) {
            // What is imported by its own name is a change already.
            let is_module = faster(whole).is_none();
            let all = [whole, rest].concat();
            let below = faster(&all).filter(|_| is_module)?;
            return Some(match &whole[1..] {
                [] => (line, below.to_vec()),
                module => (*imported, module.to_vec()),
            });
        }
        if first == "burn" {
            return Some((line, faster(path)?.to_vec()));
        }
        self.globs.iter().find_map(|(glob, imported)| {
            let is_of_modules = match &glob[..] {
                [root] => root == "burn",
                [root, prelude] => root == "burn" && prelude == "prelude",
                _ => false,
            };
            let of_names = if is_of_modules { &glob[..1] } else { &glob[..] };
            faster(&[of_names, path].concat())?;
            let changed = if is_of_modules { vec![first.clone()] } else { [&glob[1..], &["*".to_owned()]].concat() };
            Some((*imported, changed))
        })
    }
}
