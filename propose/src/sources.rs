//! Sources of a package and of its path dependencies, and edits by hand in several of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use cargo_metadata::{Package, Target, TargetKind};
use gpu_tuned_attribute::sources::{self, SourceFile, Unread};
use gpu_tuned_project::workspace::manifest;
use proc_macro2::TokenStream;
use quote::ToTokens;
use serde::Serialize;
use syn::{Attribute, Item};

use crate::candidate;
use crate::diff::{added_lines, display_name, unified};
use crate::release::CRATES;

/// Libraries below training programs, beside the crates of Burn.
const LIBRARIES: [&str; 4] = ["cubecl", "cubek", "gpu-tuned", "gpu-tuned-build"];

pub(super) struct Source {
    pub name: String,
    /// Text with `\n` as line ending, to which spans refer.
    pub text: String,
    /// The file without items of tests.
    pub file: syn::File,
    /// Tokens of the items that are not imports.
    pub tokens: TokenStream,
    pub owner: Owner,
    /// True for a source of a library.
    pub in_library: bool,
    path: PathBuf,
}

/// Owner of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Targets of the package, by their position.
    Targets(BTreeSet<usize>),
    /// Another package, by its name.
    Package(String),
}

impl Source {
    /// A file at its canonical path, below a workspace at its canonical path.
    fn new(
        SourceFile { text, syntax: mut file, .. }: SourceFile,
        path: PathBuf,
        workspace: &Path,
        owner: Owner,
        in_library: bool,
    ) -> Self {
        remove_tests(&mut file.items);
        let mut tokens = TokenStream::new();
        collect(&file.items, &mut tokens);
        Self { name: display_name(&path, workspace), text, file, tokens, owner, in_library, path }
    }

    /// A source of a package's only target.
    #[cfg(test)]
    pub(super) fn of_text(name: &str, text: &str) -> Self {
        let file = SourceFile {
            path: name.into(),
            text: text.to_owned(),
            syntax: sources::parse_within_limit(text).expect("Rust"),
        };
        Self::new(file, name.into(), Path::new(""), Owner::Targets(BTreeSet::from([0])), false)
    }

    /// Returns true for a source of the package itself.
    pub(super) const fn is_own(&self) -> bool {
        matches!(self.owner, Owner::Targets(_))
    }

    /// Returns true for two sources of one crate.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        match (&self.owner, &other.owner) {
            (Owner::Targets(own), Owner::Targets(others)) => !own.is_disjoint(others),
            (own, other) => own == other,
        }
    }

    /// Returns true if this name means a struct of that source here: one of the same crate, or of the package's library, where
    /// the program has no struct of this name.
    pub(super) fn can_mean(&self, name: &str, of: &Self, all: &[Self]) -> bool {
        let has_struct =
            |source: &Self| candidate::structs(&source.file.items).into_iter().any(|item| item.ident == name);
        let has_own = || all.iter().any(|source| source.is_beside(self) && has_struct(source));
        self.is_beside(of) || (of.in_library && of.is_own() && self.is_own() && !has_own())
    }

    pub(super) fn is_of(&self, target: usize) -> bool {
        matches!(&self.owner, Owner::Targets(targets) if targets.contains(&target))
    }
}

/// Returns true for targets that may train, and for the library.
pub(super) fn can_train(target: &Target) -> bool {
    let is = |kinds: &[TargetKind]| target.kind.iter().any(|kind| kinds.contains(kind));
    !is(&[TargetKind::CustomBuild, TargetKind::Test, TargetKind::Bench, TargetKind::ProcMacro])
}

/// Sources of the package's targets and of its path dependencies by name, and notes on unreadable ones.
pub(super) fn read(package: &Package, workspace: &Path) -> (Vec<Source>, Vec<String>) {
    let (mut all, mut unread) = (Vec::<Source>::new(), Vec::new());
    let root = canonical(workspace);
    // Positions of sources by their canonical paths.
    let mut known = HashMap::new();
    for (position, target) in package.targets.iter().enumerate().filter(|(_, target)| can_train(target)) {
        let (files, missing) = files(&target.name, target.src_path.as_std_path());
        unread.extend(missing);
        let is_program = target.kind.iter().any(|kind| matches!(kind, TargetKind::Bin | TargetKind::Example));
        for file in files {
            let path = canonical(&file.path);
            let at = *known.entry(path.clone()).or_insert(all.len());
            match all.get_mut(at) {
                Some(Source { owner: Owner::Targets(targets), in_library, .. }) => {
                    targets.insert(position);
                    *in_library |= !is_program;
                }
                Some(_) => {}
                None => {
                    let owner = Owner::Targets(BTreeSet::from([position]));
                    all.push(Source::new(file, path, &root, owner, !is_program));
                }
            }
        }
    }
    for (name, library) in dependencies(package) {
        let (files, missing) = files(&name, &library);
        unread.extend(missing);
        let owner = || Owner::Package(name.clone());
        all.extend(files.into_iter().map(|file| {
            let path = canonical(&file.path);
            Source::new(file, path, &root, owner(), true)
        }));
    }
    all.sort_by(|a, b| (!a.is_own(), &a.name).cmp(&(!b.is_own(), &b.name)));
    let mut notes: Vec<_> = unread.iter().map(|unread| note(unread, workspace)).collect();
    notes.sort();
    notes.dedup();
    (all, notes)
}

/// The source of the file at this path.
pub(super) fn at<'s>(all: &'s [Source], path: &Path) -> Option<&'s Source> {
    let path = canonical(path);
    all.iter().find(|source| source.path == path)
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn files(name: &str, root: &Path) -> (Vec<SourceFile>, Vec<Unread>) {
    sources::files(&sources::Target { name, root, is_test: false })
}

fn note(Unread { file, line, why }: &Unread, workspace: &Path) -> String {
    let name = display_name(file, workspace);
    match line {
        Some(line) => format!("{name}:{line}: {why}; this file was skipped"),
        None => format!("`{name}` cannot be read ({why}), and was skipped"),
    }
}

/// Names and libraries of path dependencies, and of theirs.
fn dependencies(package: &Package) -> Vec<(String, PathBuf)> {
    let own =
        package.dependencies.iter().filter_map(|dependency| Some(dependency.path.as_ref()?.as_std_path().to_owned()));
    let (mut open, mut found) = (own.collect::<Vec<PathBuf>>(), Vec::new());
    let mut seen: BTreeSet<PathBuf> =
        package.manifest_path.parent().map(|own| own.as_std_path().to_owned()).into_iter().collect();
    while let Some(folder) = open.pop() {
        let folder = folder.canonicalize().unwrap_or(folder);
        if !seen.insert(folder.clone()) {
            continue;
        }
        let Some(manifest) = manifest(&folder) else { continue };
        let Some(name) = manifest.get("package").and_then(|package| package.get("name")?.as_str()) else { continue };
        // The libraries themselves train nothing.
        if CRATES.contains(&name) || LIBRARIES.contains(&name) {
            continue;
        }
        let root = manifest.get("lib").and_then(|lib| lib.get("path")?.as_str()).unwrap_or("src/lib.rs");
        found.push((name.to_owned(), folder.join(root)));
        let table = manifest.get("dependencies").and_then(toml::Value::as_table);
        let paths = table.into_iter().flatten().filter_map(|(_, dependency)| dependency.get("path")?.as_str());
        open.extend(paths.map(|path| folder.join(path)));
    }
    found.retain(|(_, root)| root.is_file());
    found.sort();
    found
}

fn remove_tests(items: &mut Vec<Item>) {
    items.retain(|item| !attributes(item).iter().any(is_test));
    for item in items {
        if let Item::Mod(module) = item {
            module.content.iter_mut().for_each(|(_, items)| remove_tests(items));
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns true for `#[test]` and for `#[cfg(…)]` that needs `test`.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("test") || sources::needs_test(attribute)
}

fn collect(items: &[Item], tokens: &mut TokenStream) {
    for item in items {
        match item {
            Item::Use(_) | Item::ExternCrate(_) => {}
            Item::Mod(module) => module.content.iter().for_each(|(_, items)| collect(items, tokens)),
            other => other.to_tokens(tokens),
        }
    }
}

/// A line to edit, and the reason.
#[derive(Debug, Serialize)]
pub struct Edit {
    /// File of the edit.
    pub file: String,
    /// First line of the edit.
    pub line: usize,
    /// Reason for the edit.
    pub what: String,
}

type Changes = Vec<(Range<usize>, String)>;

#[derive(Default)]
pub(super) struct Patch<'a> {
    edits: Vec<Edit>,
    files: BTreeMap<&'a str, (&'a Source, Changes)>,
}

impl<'a> Patch<'a> {
    /// Adds the reason of an edit at a byte of a source.
    pub(super) fn note(&mut self, source: &Source, at: usize, what: impl Into<String>) {
        let line = source.text[..at].matches('\n').count() + 1;
        self.edits.push(Edit { file: source.name.clone(), line, what: what.into() });
    }

    pub(super) fn replace(&mut self, source: &'a Source, range: Range<usize>, new: impl Into<String>) {
        self.files.entry(&source.name).or_insert_with(|| (source, Vec::new())).1.push((range, new.into()));
    }

    pub(super) fn insert(&mut self, source: &'a Source, at: usize, new: impl Into<String>) {
        self.replace(source, at..at, new);
    }

    /// The edits, the diff of all files, and the number of new lines.
    pub(super) fn finish(self) -> (Vec<Edit>, String, usize) {
        let (mut diffs, mut lines) = (String::new(), 0);
        for (name, (source, mut changes)) in self.files {
            // A replaced text comes before what is inserted in front of it.
            changes.sort_by_key(|(range, _)| std::cmp::Reverse((range.start, range.end)));
            let mut text = source.text.clone();
            for (range, new) in changes {
                text.replace_range(range, &new);
            }
            lines += added_lines(&source.text, &text);
            diffs.push_str(&unified(&source.text, &text, &format!("a/{name}"), &format!("b/{name}")));
        }
        let mut edits = self.edits;
        edits.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        (edits, diffs, lines)
    }
}

#[cfg(test)]
mod tests;
