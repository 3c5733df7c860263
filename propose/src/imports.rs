//! Imports of Burn's modules that have a faster version in `gpu_tuned::nn`.

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

/// Names in `burn::nn` with a faster version, by the module below it.
const FASTER: [(&str, &[&str]); 4] = [
    ("", &["Linear", "LinearConfig", "LayerNorm", "LayerNormConfig", "Embedding", "EmbeddingConfig"]),
    ("attention", &["MultiHeadAttention", "MultiHeadAttentionConfig", "MhaInput"]),
    (
        "transformer",
        &[
            "PositionWiseFeedForward",
            "PositionWiseFeedForwardConfig",
            "TransformerEncoder",
            "TransformerEncoderConfig",
            "TransformerEncoderInput",
        ],
    ),
    ("loss", &["CrossEntropyLoss", "CrossEntropyLossConfig"]),
];

/// Kinds of models that are transformers.
const TRANSFORMERS: [&str; 3] = ["transformer", "encoder_decoder", "vit"];

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
        let family = if TRANSFORMERS.contains(&kind) { Family::Transformer } else { Family::Other };
        let gain = LibraryGain::of_family(family)?.to_string();
        let mut imports: Vec<_> =
            sources.filter(|source| source.is_own()).flat_map(|source| of_source(source, krate)).collect();
        imports.sort();
        (!imports.is_empty()).then_some(Self { imports, gain })
    }
}

/// Changes by line: paths below `burn::nn`.
type Changes = BTreeMap<usize, BTreeSet<String>>;

fn of_source(source: &Source, krate: &str) -> Vec<Import> {
    let mut scope = Scope::default();
    let mut changes = Changes::new();
    for item in all_items(&source.file.items) {
        if let Item::Use(item) = item {
            let line = item.span().start().line;
            scope.add(&mut Vec::new(), &item.tree, line, &mut changes);
        }
    }
    for (line, path) in paths(&source.tokens) {
        if let Some((line, change)) = scope.change(&path, line) {
            changes.entry(line).or_default().insert(change);
        }
    }
    let import = |line: usize, names: &[String]| {
        let below = match names {
            [] => String::new(),
            [only] => format!("::{only}"),
            several => format!("::{{{}}}", several.join(", ")),
        };
        let [from, to] = ["burn", krate].map(|root| format!("{root}::nn{below}"));
        Import { file: source.name.clone(), line, from, to }
    };
    let imports = |(line, names): (usize, BTreeSet<String>)| {
        // The module `nn` itself has an empty name.
        let (module, names): (Vec<_>, Vec<_>) = names.into_iter().partition(String::is_empty);
        let module = (!module.is_empty()).then(|| import(line, &[]));
        module.into_iter().chain((!names.is_empty()).then(|| import(line, &names))).collect::<Vec<_>>()
    };
    changes.into_iter().flat_map(imports).collect()
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

/// The part of a path below `burn::nn` that has a faster version.
fn faster(path: &[String]) -> Option<&[String]> {
    let [root, nn, rest @ ..] = path else { return None };
    let has = |module: &str, name: &String| {
        FASTER.iter().any(|(of, names)| *of == module && names.iter().any(|faster| faster == name))
    };
    let length = match rest {
        [name, ..] if has("", name) => 1,
        [module, name, ..] if !module.is_empty() && has(module, name) => 2,
        _ => return None,
    };
    (root == "burn" && nn == "nn").then_some(&rest[..length])
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
            changes.entry(line).or_default().insert(below.join("::") + &renamed);
        }
        let Some(short) = alias.or_else(|| whole.last().cloned()) else { return };
        self.names.insert(short, (whole, line));
    }

    /// The change for a path in code: its line, and the path below `burn::nn`.
    fn change(&self, path: &[String], line: usize) -> Option<(usize, String)> {
        let [first, rest @ ..] = path else { return None };
        let joined = |of: &[String], rest: &[String]| [of, rest].concat();
        if let Some((whole, imported)) = self.names.get(first) {
            // What is imported by its own name is a change already.
            let is_module = faster(whole).is_none();
            let all = joined(whole, rest);
            let below = faster(&all).filter(|_| is_module)?;
            return Some(match whole.get(2..) {
                Some(module) => (*imported, module.join("::")),
                None => (line, below.join("::")),
            });
        }
        if first == "burn" {
            return Some((line, faster(path)?.join("::")));
        }
        self.globs.iter().find_map(|(glob, imported)| {
            let is_prelude = matches!(&glob[..], [root, prelude] if root == "burn" && prelude == "prelude");
            let glob = if is_prelude { vec!["burn".to_owned()] } else { glob.clone() };
            faster(&joined(&glob, path))?;
            let below = glob.get(2..).unwrap_or_default();
            let all = if is_prelude { Vec::new() } else { vec!["*".to_owned()] };
            Some((*imported, joined(below, &all).join("::")))
        })
    }
}
