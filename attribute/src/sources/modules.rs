//! The files of a target, found by rustc's rules for `mod x;`, and the annotated structs, modules and macros of each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Attribute, DeriveInput, Expr, ExprLit, Item, ItemMod, Lit, LitStr, Macro, Meta, MetaNameValue, Token};

use super::{Aliases, Annotated, Node, SourceFile, Sources, Target, Unread, Visitor, find_attribute};
use crate::parse::flatten;

/// A reader of targets that reads each file once.
#[derive(Default)]
pub(super) struct Reader {
    sources: Sources,
    visited: BTreeSet<PathBuf>,
    files: Vec<SourceFile>,
}

/// A file with its module's place.
struct ModuleFile {
    file: PathBuf,
    /// The folder of the module's children.
    folder: PathBuf,
    path: Vec<String>,
}

impl Reader {
    pub(super) fn read_target(&mut self, target: &Target<'_>) {
        let folder = target.root.parent().unwrap_or(Path::new("")).to_owned();
        let path = vec![target.name.replace('-', "_")];
        self.read(&ModuleFile { file: target.root.to_owned(), folder, path }, target.is_test);
    }

    pub(super) fn into_sources(self) -> Sources {
        self.sources
    }

    pub(super) fn into_files(self) -> (Vec<SourceFile>, Vec<Unread>) {
        (self.files, self.sources.unread)
    }

    fn read(&mut self, module: &ModuleFile, is_test: bool) {
        // Two spellings of a path are one file.
        let key = module.file.canonicalize().unwrap_or_else(|_| module.file.clone());
        if !self.visited.insert(key) {
            return;
        }
        let file = match SourceFile::read(&module.file) {
            Ok(file) => file,
            Err(unread) => return self.sources.unread.push(unread),
        };
        let collected = Collector::collect(&file, module.path.clone(), is_test);
        self.sources.structs.extend(collected.structs);
        self.sources.unread.extend(collected.unread);
        for child in &collected.modules {
            for found in files(child, module) {
                self.read(&found, is_test);
            }
        }
        let beside = module.file.parent().unwrap_or(Path::new(""));
        for included in collected.included {
            let file = beside.join(included);
            if file.is_file() {
                self.read(&ModuleFile { file, folder: module.folder.clone(), path: module.path.clone() }, is_test);
            }
        }
        self.files.push(file);
    }
}

/// Returns the files of a child module. A module behind `cfg_attr(…, path = …)` may have several.
fn files(child: &FileModule, parent: &ModuleFile) -> Vec<ModuleFile> {
    let (plain, conditional) = paths(&child.attributes);
    let inline: PathBuf = child.inline.iter().collect();
    let beside = parent.file.parent().unwrap_or(Path::new(""));
    let above = if child.is_beside { beside } else { &parent.folder };
    // `#[path]` counts from the file's folder, and in an inline module from that module's folder.
    let base = if child.inline.is_empty() { beside.to_owned() } else { above.join(&inline) };
    let named = |path: PathBuf| {
        let file = base.join(path);
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        ModuleFile { file, folder, path: child.path.clone() }
    };
    let name = child.path.last().map_or("", String::as_str);
    let folder = above.join(inline).join(name);
    let usual = [folder.with_extension("rs"), folder.join("mod.rs")];
    let usual = usual.map(|file| ModuleFile { file, folder: folder.clone(), path: child.path.clone() });
    let all: Vec<_> = match plain {
        Some(path) => vec![named(path)],
        None => conditional.into_iter().map(named).chain(usual).collect(),
    };
    all.into_iter().filter(|module| module.file.is_file()).collect()
}

/// Returns the path of `#[path = "…"]`, and the paths in `cfg_attr`.
fn paths(attributes: &[Attribute]) -> (Option<PathBuf>, Vec<PathBuf>) {
    let all = flatten(attributes);
    let named = |is_conditional: bool| {
        let some = all.iter().filter(move |inner| inner.condition.is_some() == is_conditional);
        some.filter_map(|inner| path(&inner.meta))
    };
    (named(false).next(), named(true).collect())
}

fn path(meta: &Meta) -> Option<PathBuf> {
    let pair = meta.require_name_value().ok().filter(|pair| pair.path.is_ident("path"))?;
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { return None };
    Some(text.value().into())
}

/// A module in a file of its own: `mod x;`.
struct FileModule {
    /// The module's path in the target.
    path: Vec<String>,
    /// The module's attributes.
    attributes: Vec<Attribute>,
    /// The folders of the inline modules around the module, within the file: the names, or those of `#[path]`.
    inline: Vec<PathBuf>,
    /// True if the outermost of them has a `#[path]`, which counts from the file's folder.
    is_beside: bool,
}

/// A visitor of one file.
struct Collector<'a> {
    file: &'a SourceFile,
    text: Rc<str>,
    aliases: Aliases,
    is_test: bool,
    path: Vec<String>,
    inline: Vec<PathBuf>,
    is_beside: bool,
    structs: Vec<Annotated>,
    modules: Vec<FileModule>,
    /// Files named in `include!`.
    included: Vec<PathBuf>,
    unread: Vec<Unread>,
}

impl<'a> Collector<'a> {
    /// Collects from a file whose module has this path in the target.
    fn collect(file: &'a SourceFile, path: Vec<String>, is_test: bool) -> Self {
        let (text, aliases) = (file.text.as_str().into(), Aliases::in_file(&file.syntax));
        let (inline, structs, modules) = (Vec::new(), Vec::new(), Vec::new());
        let (included, unread) = (Vec::new(), Vec::new());
        let is_beside = false;
        let mut collector =
            Self { file, text, aliases, is_test, path, inline, is_beside, structs, modules, included, unread };
        Node::File(&file.syntax).walk(&mut collector);
        collector
    }

    fn add_if_annotated(&mut self, mut item: DeriveInput) {
        if self.is_left_out(&item.attrs) {
            return;
        }
        let Some(found) = find_attribute(&item.attrs, &self.aliases) else { return };
        item.attrs = found.others;
        let name = item.ident.unraw().to_string();
        let place = found.span.start();
        self.structs.push(Annotated {
            path: [self.path.as_slice(), core::slice::from_ref(&name)].concat().join("::"),
            name,
            file: self.file.path.clone(),
            line: place.line,
            text: Rc::clone(&self.text),
            is_test: self.is_test,
            arguments: found.arguments,
            item: item.into_token_stream(),
            place,
        });
    }

    /// Returns true for items of unit tests.
    fn is_left_out(&self, attributes: &[Attribute]) -> bool {
        attributes.iter().any(|attribute| needs_wasm(attribute) || !self.is_test && needs_test(attribute))
    }
}

impl Visitor<'_> for Collector<'_> {
    fn visit(&mut self, node: Node<'_>) {
        match node {
            Node::Item(Item::Struct(item)) => self.add_if_annotated(item.clone().into()),
            Node::Item(Item::Enum(item)) => self.add_if_annotated(item.clone().into()),
            Node::Item(Item::Union(item)) => self.add_if_annotated(item.clone().into()),
            Node::Item(Item::Mod(module)) => self.read_module(module),
            Node::Macro(call) => self.read_macro(call),
            other => other.walk(self),
        }
    }
}

impl Collector<'_> {
    fn read_module(&mut self, module: &ItemMod) {
        if self.is_left_out(&module.attrs) {
            return;
        }
        let name = module.ident.unraw().to_string();
        let Some((_, items)) = &module.content else {
            return self.add_file_module(name, module.attrs.clone());
        };
        let folder = paths(&module.attrs).0;
        if self.inline.is_empty() {
            self.is_beside = folder.is_some();
        }
        self.inline.push(folder.unwrap_or_else(|| name.clone().into()));
        self.path.push(name);
        for item in items {
            self.visit(Node::Item(item));
        }
        self.path.pop();
        self.inline.pop();
        self.is_beside &= !self.inline.is_empty();
    }

    fn add_file_module(&mut self, name: String, attributes: Vec<Attribute>) {
        let path = [self.path.as_slice(), &[name]].concat();
        self.modules.push(FileModule { path, attributes, inline: self.inline.clone(), is_beside: self.is_beside });
    }

    /// Adds each `mod x;` among the tokens of a macro, such as those in `cfg_if!`.
    fn add_modules_in_macro(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for index in 0..tokens.len() {
            match &tokens[index..] {
                [TokenTree::Group(group), ..] => self.add_modules_in_macro(group.stream()),
                [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(end), ..]
                    if word == "mod" && end.as_char() == ';' =>
                {
                    self.add_file_module(name.unraw().to_string(), Vec::new());
                }
                _ => {}
            }
        }
    }

    fn read_macro(&mut self, call: &Macro) {
        let is_include = call.path.segments.last().is_some_and(|last| last.ident == "include");
        if let (true, Ok(file)) = (is_include, call.parse_body::<LitStr>()) {
            self.included.push(file.value().into());
        } else if let Some(span) = self.aliases.find_in_macro(call.tokens.clone()) {
            let why = "a macro makes the annotated struct".to_owned();
            self.unread.push(Unread { file: self.file.path.clone(), line: Some(span.start().line), why });
        }
        self.add_modules_in_macro(call.tokens.clone());
    }
}

/// Returns true for `#[cfg(test)]`, and for `#[cfg(all(…))]` with `test`.
pub fn needs_test(attribute: &Attribute) -> bool {
    needs(attribute, |predicate| predicate.path().is_ident("test") && predicate.require_path_only().is_ok())
}

/// Returns true for an item of WebAssembly only, where nothing trains on a GPU.
pub fn needs_wasm(attribute: &Attribute) -> bool {
    fn is_wasm(pair: &MetaNameValue) -> bool {
        let key = ["target_arch", "target_family"].iter().any(|key| pair.path.is_ident(key));
        let Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) = &pair.value else { return false };
        key && value.value().starts_with("wasm")
    }
    needs(attribute, |predicate| predicate.require_name_value().is_ok_and(is_wasm))
}

/// Returns true for a `cfg` with a predicate that has to be met.
fn needs(attribute: &Attribute, is_it: fn(&Meta) -> bool) -> bool {
    fn needs_it(predicate: &Meta, is_it: fn(&Meta) -> bool) -> bool {
        match predicate {
            Meta::List(list) if list.path.is_ident("all") => list
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .is_ok_and(|all| all.iter().any(|predicate| needs_it(predicate, is_it))),
            predicate => is_it(predicate),
        }
    }
    attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(|predicate| needs_it(&predicate, is_it))
}

#[cfg(test)]
mod tests {
    use super::{needs_test, needs_wasm};

    #[test]
    fn items_of_tests_and_of_wasm_need_them() {
        for (predicate, of_test, of_wasm) in [
            ("test", true, false),
            ("all(test, feature = \"x\")", true, false),
            ("all(unix, all(test))", true, false),
            ("not(test)", false, false),
            ("any(test, unix)", false, false),
            ("feature = \"test\"", false, false),
            ("feature = \"test-data\"", false, false),
            ("all(unix, not(test))", false, false),
            ("target_arch = \"wasm32\"", false, true),
            ("target_family = \"wasm\"", false, true),
            ("all(feature = \"web\", target_arch = \"wasm32\")", false, true),
            ("not(target_arch = \"wasm32\")", false, false),
            ("any(target_arch = \"wasm32\", unix)", false, false),
            ("target_arch = \"x86_64\"", false, false),
            ("feature = \"wasm\"", false, false),
        ] {
            let item: syn::ItemStruct = syn::parse_str(&format!("#[cfg({predicate})] struct S;")).expect("Rust");
            assert_eq!([needs_test(&item.attrs[0]), needs_wasm(&item.attrs[0])], [of_test, of_wasm], "{predicate}");
        }
    }
}
