//! The files of a target, found by rustc's rules for `mod x;`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

use super::collect::{Collector, FileModule, has_cfg};
use super::{SourceError, SourceFile, Sources, Target, Unread};
use crate::parse::conditional::flatten;

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
    /// True if the module, or a module around it, is behind a `cfg`.
    is_conditional: bool,
}

impl Reader {
    pub(super) fn read_target(&mut self, target: &Target<'_>) {
        let folder = target.root.parent().unwrap_or(Path::new("")).to_owned();
        let path = vec![target.name.replace('-', "_")];
        self.read(&ModuleFile { file: target.root.to_owned(), folder, path, is_conditional: false }, target.is_test);
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
            Ok(file) => SourceFile { is_conditional: module.is_conditional || has_cfg(&file.syntax.attrs), ..file },
            Err(error) => return self.sources.unread.push(unread(error)),
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
                self.read(
                    &ModuleFile { file, folder: module.folder.clone(), path: module.path.clone(), ..*module },
                    is_test,
                );
            }
        }
        self.files.push(file);
    }
}

/// Returns the files of a child module. A module behind `cfg_attr(…, path = …)` may have several.
fn files(child: &FileModule, parent: &ModuleFile) -> Vec<ModuleFile> {
    let (plain, conditional) = paths(&child.attributes);
    // `cfg_attr(…, path = …)` chooses among files.
    let is_conditional = parent.is_conditional || child.is_conditional || !conditional.is_empty();
    let inline: PathBuf = child.inline.iter().collect();
    let beside = parent.file.parent().unwrap_or(Path::new(""));
    // `#[path]` counts from the file's folder, and in an inline module from that module's folder.
    let base = if child.inline.is_empty() { beside.to_owned() } else { parent.folder.join(&inline) };
    let named = |path: PathBuf| {
        let file = base.join(path);
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        ModuleFile { file, folder, path: child.path.clone(), is_conditional }
    };
    let name = child.path.last().map_or("", String::as_str);
    let folder = parent.folder.join(inline).join(name);
    let usual = [folder.with_extension("rs"), folder.join("mod.rs")];
    let usual = usual.map(|file| ModuleFile { file, folder: folder.clone(), path: child.path.clone(), is_conditional });
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
    match meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().into()),
            _ => None,
        },
        _ => None,
    }
}

fn unread(error: SourceError) -> Unread {
    match error {
        SourceError::Io { path, cause } => Unread { file: path, line: None, why: cause.to_string() },
        SourceError::Syntax { path, line, message } => Unread { file: path, line: Some(line), why: message },
    }
}
