//! Sources of a package and of its path dependencies, their edits, and the program that trains.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use cargo_metadata::{Package, Target, TargetKind};
use gpu_tuned_attribute::sources::{self, Node, SourceFile, Unread, Visitor};
use gpu_tuned_project::workspace::manifest;
use proc_macro2::extra::DelimSpan;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use serde::Serialize;
use syn::{Attribute, Block, Expr, ExprCall, ExprMethodCall, ExprPath, Item};

use crate::candidate;
use crate::diff::{added_lines, display_name, unified};
use crate::release::CRATES;
use crate::training_loop::{TrainingLoop, edit_device};

/// Libraries below training programs, beside the crates of Burn.
const LIBRARIES: [&str; 4] = ["cubecl", "cubek", "gpu-tuned", "gpu-tuned-build"];

pub(super) struct Source {
    pub name: String,
    /// Text with `\n` as line ending, to which spans refer.
    pub text: String,
    /// The file without items of tests and of WebAssembly.
    pub file: syn::File,
    /// Tokens of the items that are not imports, with those in groups.
    pub tokens: Vec<TokenTree>,
    pub owner: Owner,
    /// True for a source of a library.
    pub in_library: bool,
    pub path: PathBuf,
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
        remove_others(&mut file.items);
        let tokens = tokens(&file.items);
        Self { name: display_name(&path, workspace), text, file, tokens, owner, in_library, path }
    }

    /// The source with some of its items.
    pub(super) fn with_items(&self, items: Vec<Item>) -> Self {
        let Self { name, text, owner, path, .. } = self;
        let tokens = tokens(&items);
        let file = syn::File { shebang: None, attrs: Vec::new(), frontmatter: None, items };
        let (name, text, owner, path) = (name.clone(), text.clone(), owner.clone(), path.clone());
        Self { name, text, file, tokens, owner, in_library: self.in_library, path }
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

/// Tokens of the items that are not imports.
fn tokens(items: &[Item]) -> Vec<TokenTree> {
    let is_import = |item: &&Item| matches!(item, Item::Use(_) | Item::ExternCrate(_));
    let others = all_items(items).into_iter().filter(|item| !is_import(item));
    others.flat_map(|item| all_tokens(item.to_token_stream())).collect()
}

/// Returns true for targets that may train, and for the library.
fn can_train(target: &Target) -> bool {
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
fn at<'s>(all: &'s [Source], path: &Path) -> Option<&'s Source> {
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

fn remove_others(items: &mut Vec<Item>) {
    items.retain(|item| !attributes(item).iter().any(|it| is_test(it) || sources::needs_wasm(it)));
    for item in items {
        if let Item::Mod(module) = item {
            module.content.iter_mut().for_each(|(_, items)| remove_others(items));
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

/// Items, with those of inline modules.
pub(super) fn all_items(items: &[Item]) -> Vec<&Item> {
    let mut all = Vec::new();
    for item in items {
        match item {
            Item::Mod(module) => all.extend(module.content.iter().flat_map(|(_, items)| all_items(items))),
            item => all.push(item),
        }
    }
    all
}

/// Identifiers, literals and punctuation, with those in groups.
pub(super) fn all_tokens(tokens: TokenStream) -> Vec<TokenTree> {
    let (mut all, mut open) = (Vec::new(), vec![tokens.into_iter()]);
    while let Some(tokens) = open.last_mut() {
        match tokens.next() {
            Some(TokenTree::Group(group)) => open.push(group.stream().into_iter()),
            Some(token) => all.push(token),
            None => drop(open.pop()),
        }
    }
    all
}

/// Start of the line with a byte.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// White space at the start of a text.
pub(super) fn indent(text: &str) -> &str {
    &text[..text.len() - text.trim_start().len()]
}

/// The range within parentheses.
pub(super) fn inside(parentheses: &DelimSpan) -> Range<usize> {
    parentheses.open().byte_range().end..parentheses.close().byte_range().start
}

/// Returns true if a name is among tokens.
pub(super) fn has_ident(tokens: &[TokenTree], name: &str) -> bool {
    tokens.iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == name))
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

    /// Replaces a range, without a reason of its own.
    pub(super) fn replace(&mut self, source: &'a Source, range: Range<usize>, new: impl Into<String>) {
        self.files.entry(&source.name).or_insert_with(|| (source, Vec::new())).1.push((range, new.into()));
    }

    /// Replaces a range, and adds the reason.
    pub(super) fn edit(
        &mut self,
        source: &'a Source,
        range: Range<usize>,
        new: impl Into<String>,
        what: impl Into<String>,
    ) {
        self.note(source, range.start, what);
        self.replace(source, range, new);
    }

    /// Inserts an attribute, on a line of its own where its item begins a line.
    pub(super) fn above(&mut self, source: &'a Source, start: usize, attribute: &str) {
        let line = line_start(&source.text, start);
        let indent = &source.text[line..start];
        let attribute =
            if indent.trim().is_empty() { format!("{attribute}\n{indent}") } else { format!("{attribute} ") };
        self.replace(source, start..start, attribute);
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

/// The programs of a package, and the one that trains.
#[derive(Debug, Default)]
pub(super) struct Programs<'p> {
    /// Cargo's options of all programs, such as `--bin train`.
    pub flags: Vec<String>,
    pub training: Option<Program<'p>>,
    /// Cargo's options of the programs with a training loop, if there are several.
    pub rivals: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'p> {
    package: &'p Package,
    /// Position of the target.
    pub target: usize,
}

impl<'p> Programs<'p> {
    /// Finds the program with the loop, or with a call of its function. Without a loop, the program with the config; the
    /// package's only or default program where the config is in the library.
    pub(super) fn find(
        package: &'p Package,
        sources: &[Source],
        training: Option<&TrainingLoop<'_>>,
        config: Option<&Source>,
    ) -> Self {
        let of = |kind: TargetKind| {
            let targets = package.targets.iter().enumerate();
            let of_kind = targets.filter(move |(_, target)| target.kind.contains(&kind));
            of_kind.map(|(target, _)| Program { package, target })
        };
        let all: Vec<Program<'p>> = of(TargetKind::Bin).chain(of(TargetKind::Example)).collect();
        let having = |source: &Source| all.iter().copied().filter(|program| source.is_of(program.target)).collect();
        let mut found: Vec<Program<'p>> = match training {
            Some(training) => {
                let own: Vec<_> = having(training.source);
                let calling = || all.iter().copied().filter(|program| program.calls(sources, training)).collect();
                if own.is_empty() { calling() } else { own }
            }
            None => config.map(having).unwrap_or_default(),
        };
        if found.is_empty() && training.is_none() {
            found = all.iter().copied().filter(|program| all.len() == 1 || program.is_default()).collect();
        }
        let default = found.iter().copied().find(Program::is_default);
        let training = default.or_else(|| found.first().copied());
        let rivals =
            if found.len() > 1 && default.is_none() { found.iter().map(Program::flag).collect() } else { Vec::new() };
        Self { flags: all.iter().map(Program::flag).collect(), training, rivals }
    }
}

impl Program<'_> {
    fn name(&self) -> &str {
        &self.package.targets[self.target].name
    }

    fn is_example(&self) -> bool {
        self.package.targets[self.target].kind.contains(&TargetKind::Example)
    }

    /// Returns true for the binary that `cargo run` takes.
    fn is_default(&self) -> bool {
        let is_bin = |target: &&cargo_metadata::Target| target.kind.contains(&TargetKind::Bin);
        let is_alone = self.package.targets.iter().filter(is_bin).count() == 1;
        !self.is_example() && (is_alone || self.package.default_run.as_deref() == Some(self.name()))
    }

    pub(super) fn flag(&self) -> String {
        format!("--{} {}", if self.is_example() { "example" } else { "bin" }, self.name())
    }

    /// Cargo's option for the program; `None` if `cargo run` takes it.
    pub(super) fn needed_flag(&self) -> Option<String> {
        (!self.is_default()).then(|| self.flag())
    }

    /// Returns true for a source of the program that is not also in the library.
    pub(super) fn owns(&self, source: &Source) -> bool {
        source.is_of(self.target) && !source.in_library
    }

    /// Returns true for the program's sources, the library's, and those of other packages.
    pub(super) fn reaches(&self, source: &Source) -> bool {
        source.is_of(self.target) || source.in_library
    }

    fn root<'s>(&self, sources: &'s [Source]) -> Option<&'s Source> {
        at(sources, self.package.targets[self.target].src_path.as_std_path())
    }

    /// Returns true for the root file of the program.
    pub(super) fn is_root(&self, source: &Source) -> bool {
        source.path == canonical(self.package.targets[self.target].src_path.as_std_path())
    }

    /// Returns true if the program calls the loop's function, by its name or through its module.
    fn calls(&self, sources: &[Source], training: &TrainingLoop<'_>) -> bool {
        let (function, module) = (training.name(), module(&training.source.name));
        let is_it = |path: &&ExprPath| {
            let mut names = path.path.segments.iter().rev().map(|segment| &segment.ident);
            let is_called = names.next().is_some_and(|name| *name == function);
            is_called && names.next().is_none_or(|of| module.is_none_or(|module| of == module))
        };
        let mut own = sources.iter().filter(|source| self.owns(source));
        own.any(|source| Calls::of_file(&source.file).paths.iter().any(is_it))
    }

    /// Feature with Burn's CPU backend that the program checks for, and that is off by default: `flex = ["burn/flex"]`.
    pub(super) fn cpu(&self, sources: &[Source]) -> Option<String> {
        let features = &self.package.features;
        let is_on = |name: &String| features.get("default").is_some_and(|on| on.contains(name));
        let text = |name: &String| format!("feature = \"{name}\"");
        let asks = |name: &String| sources.iter().any(|source| self.owns(source) && source.text.contains(&text(name)));
        let has_cpu = |enabled: &Vec<String>| enabled.iter().any(|it| it == "burn/flex" || it == "burn/ndarray");
        let mut cpus = features.iter().filter(|(name, enabled)| has_cpu(enabled) && !is_on(name) && asks(name));
        cpus.next().map(|(name, _)| name.clone())
    }

    /// Replaces the device in `main` by the session's.
    pub(super) fn edit<'a>(&self, sources: &'a [Source], krate: &str, patch: &mut Patch<'a>) {
        let Some(source) = self.root(sources) else { return };
        let main = source.file.items.iter().find_map(|item| match item {
            Item::Fn(function) if function.sig.ident == "main" => Some(&function.block.stmts[..]),
            _ => None,
        });
        edit_device(source, main.unwrap_or_default(), krate, patch);
    }
}

/// Sources that a program reaches; all without a known program.
pub(super) fn reached<'s>(sources: &'s [Source], program: Option<Program<'_>>) -> Vec<&'s Source> {
    sources.iter().filter(|source| program.is_none_or(|program| program.reaches(source))).collect()
}

/// Calls in code, the outer ones first.
#[derive(Default)]
pub(super) struct Calls<'a> {
    pub functions: Vec<&'a ExprCall>,
    pub methods: Vec<&'a ExprMethodCall>,
    paths: Vec<&'a ExprPath>,
}

impl<'a> Calls<'a> {
    pub(super) fn of_file(file: &'a syn::File) -> Self {
        let mut calls = Self::default();
        Node::File(file).walk(&mut calls);
        calls
    }

    pub(super) fn of_block(block: &'a Block) -> Self {
        let mut calls = Self::default();
        Node::Block(block).walk(&mut calls);
        calls
    }
}

impl<'a> Visitor<'a> for Calls<'a> {
    fn visit(&mut self, node: Node<'a>) {
        match node {
            Node::Expr(Expr::Call(call)) => self.functions.push(call),
            Node::Expr(Expr::MethodCall(call)) => self.methods.push(call),
            Node::Path(path) => self.paths.push(path),
            _ => {}
        }
        node.walk(self);
    }
}

/// Module name of a file; `None` for the root of a crate.
pub(super) fn module(file: &str) -> Option<&str> {
    let mut parts = file.trim_end_matches(".rs").rsplit('/');
    match parts.next()? {
        "lib" | "main" => None,
        "mod" => parts.next(),
        name => Some(name),
    }
}
