//! Annotated structs in the source files of a package.
//!
//! The reader follows the modules of every target: `mod x;`, `#[path]`, inline modules and `include!`. It sees the attribute
//! by any path that ends in `gpu_tuned`, by a renamed import in the same file, and in `cfg_attr`. It evaluates no `cfg` but
//! `cfg(test)`, and expands no macros.

mod modules;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Position};
use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};
use syn::parse::Parse;
use syn::spanned::Spanned;
use syn::{Attribute, Item, Meta, UseTree};

use crate::parse::flatten;
use crate::{Mistakes, PlanInput, Table, check_depth, parse, plan_input};
pub use modules::{needs_test, needs_wasm};
pub use walk::{Node, Visitor};

/// The root file of a target.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// The target's name.
    pub name: &'a str,
    /// The target's root file.
    pub root: &'a Path,
    /// True for tests and benches.
    pub is_test: bool,
}

/// The annotated structs of a package.
#[derive(Debug, Default)]
pub struct Sources {
    /// The structs, in the order of the targets and files.
    pub structs: Vec<Annotated>,
    /// The parts of the sources that were not read.
    pub unread: Vec<Unread>,
}

/// A part of the sources that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub file: PathBuf,
    /// The line; `None` if the file as a whole was not read.
    pub line: Option<usize>,
    /// The reason.
    pub why: String,
}

impl Sources {
    /// Reads the sources of the targets.
    pub fn read<'a>(targets: impl IntoIterator<Item = Target<'a>>) -> Self {
        let mut reader = modules::Reader::default();
        for target in targets {
            reader.read_target(&target);
        }
        reader.into_sources()
    }
}

/// Reads the files of one target, and lists those that were not read. Modules behind `cfg(test)` are left out.
pub fn files(target: &Target<'_>) -> (Vec<SourceFile>, Vec<Unread>) {
    let mut reader = modules::Reader::default();
    reader.read_target(target);
    reader.into_files()
}

/// A parsed source file.
pub struct SourceFile {
    /// The file.
    pub path: PathBuf,
    /// The text, with `\n` line ends. The places of `syntax` refer to this text.
    pub text: String,
    /// The parsed text.
    pub syntax: syn::File,
}

/// Largest depth of code that is parsed. A thread with [`STACK`] bytes has room for this many times 16 KiB.
pub(crate) const DEEPEST: usize = 16_384;

/// Stack of a thread that parses sources, in bytes.
pub const STACK: usize = 256 << 20;

/// Parses Rust, unless it is nested too deeply.
///
/// # Errors
///
/// The parser's errors, and one at the place that is too deep.
pub fn parse_within_limit<T: Parse>(text: &str) -> syn::Result<T> {
    let tokens: TokenStream = text.parse().map_err(syn::Error::from)?;
    check_depth(&tokens, DEEPEST)?;
    syn::parse2(tokens)
}

/// The placeholder of a value in proposed code. Rust has no such token.
pub const PLACEHOLDER: &str = "…";
/// An identifier with the length of the placeholder, in characters and in bytes.
const STAND_IN: &str = "〇";

/// Finds the placeholders among tokens.
fn placeholders(tokens: TokenStream, found: &mut Vec<Span>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => placeholders(group.stream(), found),
            TokenTree::Ident(ident) if ident == STAND_IN => found.push(ident.span()),
            _ => {}
        }
    }
}

/// Largest file that is read, in bytes.
const LARGEST: u64 = 16 << 20;

impl SourceFile {
    /// Reads and parses a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is too large or nested too deeply, or is not Rust.
    pub fn read(path: &Path) -> Result<Self, Unread> {
        let unread = |line, why| Unread { file: path.to_owned(), line, why };
        let text = regular_file::read_text(path, LARGEST).map_err(|cause| unread(None, cause.to_string()))?;
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        let code = without_shebang(&text);
        // A stand-in with the length of a placeholder keeps all places.
        let with_stand_in = || parse_within_limit(&code.replace(PLACEHOLDER, STAND_IN)).ok();
        match parse_within_limit(&code).or_else(|error| with_stand_in().ok_or(error)) {
            Ok(syntax) => Ok(Self { path: path.to_owned(), text, syntax }),
            Err(error) => Err(unread(Some(error.span().start().line), error.to_string())),
        }
    }
}

/// Source code with spaces in place of a shebang: syn would remove it and count places from its end.
fn without_shebang(text: &str) -> Cow<'_, str> {
    let is_shebang = text.strip_prefix("#!").is_some_and(|rest| !rest.trim_start().starts_with('['));
    let end = text.find('\n').filter(|_| is_shebang).unwrap_or(0);
    if end > 0 { Cow::Owned(" ".repeat(end) + &text[end..]) } else { Cow::Borrowed(text) }
}

/// An annotated struct of a source file.
#[derive(Clone, Debug)]
pub struct Annotated {
    /// The struct's name, without `r#`.
    pub name: String,
    /// The struct's path, from the target's name on: `digits::config::TrainingConfig`.
    pub path: String,
    /// The file.
    pub file: PathBuf,
    /// The line of the attribute, from 1.
    pub line: usize,
    /// The file's text.
    pub text: Rc<str>,
    /// True for a struct of a test or a bench.
    pub is_test: bool,
    arguments: TokenStream,
    item: TokenStream,
    place: LineColumn,
}

impl Annotated {
    /// Checks the attribute and returns the input of the struct's plan, by the code that the macro runs.
    ///
    /// # Errors
    ///
    /// The macro's mistakes, each with its place. `file` is the file's name in messages.
    pub fn plan_input(&self, table: Table, file: &str) -> Result<PlanInput, Vec<FileError>> {
        let mut open = Vec::new();
        placeholders(self.arguments.clone(), &mut open);
        placeholders(self.item.clone(), &mut open);
        if !open.is_empty() {
            let text =
                format!("`{PLACEHOLDER}` is a placeholder of `cargo gpu-tuned init`: write the value in its place");
            return Err(open.into_iter().map(|span| self.file_error(&text, Some(span), file)).collect());
        }
        let mut mistakes = Mistakes::default();
        let model = parse(self.arguments.clone(), self.item.clone(), &mut mistakes);
        let model = model.map_err(|error| vec![self.file_error(&error.to_string(), Some(error.span()), file)])?;
        let input = plan_input(&model, table, &mut mistakes).filter(|_| mistakes.is_empty());
        input.ok_or_else(|| {
            mistakes.iter().map(|mistake| self.file_error(mistake.text(), mistake.span(), file)).collect()
        })
    }

    fn file_error(&self, text: &str, span: Option<Span>, file: &str) -> FileError {
        let LineColumn { line, column } = span.map_or(self.place, |span| span.start());
        FileError {
            file: file.to_owned(),
            place: Position { line, column: column + 1 },
            message: text.replace("\n= help: ", "; "),
        }
    }
}

/// The attribute's name.
const NAME: &str = "gpu_tuned";

/// The names of the attribute in one file: `gpu_tuned` and renamed imports.
#[derive(Clone, Debug, Default)]
pub struct Aliases(BTreeSet<String>);

impl Aliases {
    /// Collects the renamed imports of a file: `use gpu_tuned::gpu_tuned as tuned`.
    pub fn in_file(file: &syn::File) -> Self {
        let mut aliases = Self::default();
        Node::File(file).walk(&mut aliases);
        aliases
    }

    fn add_renamed(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => self.add_renamed(&path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_renamed(tree)),
            UseTree::Rename(rename) if rename.ident == NAME => drop(self.0.insert(rename.rename.to_string())),
            UseTree::Rename(_) | UseTree::Name(_) | UseTree::Glob(_) => {}
        }
    }

    /// Returns true for a path that names the attribute.
    fn name(&self, path: &syn::Path) -> bool {
        let is_alias = || path.get_ident().is_some_and(|ident| self.0.contains(&ident.to_string()));
        path.segments.last().is_some_and(|last| last.ident == NAME) || is_alias()
    }

    /// Finds the attribute among the tokens of a macro, where it cannot be read.
    fn find_in_macro(&self, tokens: TokenStream) -> Option<Span> {
        let mut after_hash = false;
        for token in tokens {
            if let TokenTree::Group(group) = &token {
                if after_hash && group.delimiter() == Delimiter::Bracket {
                    let meta = syn::parse2::<Meta>(group.stream()).ok();
                    if meta.is_some_and(|meta| self.name(meta.path())) {
                        return Some(group.span_open());
                    }
                }
                if let Some(found) = self.find_in_macro(group.stream()) {
                    return Some(found);
                }
            }
            after_hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        }
        None
    }
}

impl Visitor<'_> for Aliases {
    fn visit(&mut self, node: Node<'_>) {
        // A crate renamed with `as` does not change the last segment of a path.
        if let Node::Item(Item::Use(item)) = node
            && let UseTree::Path(path) = &item.tree
        {
            self.add_renamed(&path.tree);
        }
        node.walk(self);
    }
}

/// The attribute among the attributes of an item.
pub struct Found {
    /// The arguments in `#[gpu_tuned(…)]`.
    pub arguments: TokenStream,
    /// The place of the attribute.
    pub span: Span,
    /// The item's other attributes, as the macro gets them: without the derives above.
    pub others: Vec<Attribute>,
}

/// Finds the attribute among the attributes of an item, in `cfg_attr` too.
pub fn find_attribute(attributes: &[Attribute], aliases: &Aliases) -> Option<Found> {
    let (index, metas, at) = attributes.iter().enumerate().find_map(|(index, attribute)| {
        let flat = flatten(core::slice::from_ref(attribute));
        let metas: Vec<Meta> = flat.into_iter().map(|inner| inner.meta).collect();
        let at = metas.iter().position(|meta| aliases.name(meta.path()))?;
        Some((index, metas, at))
    })?;
    let (above, below) = (&attributes[..index], &attributes[index + 1..]);
    // Derives above were expanded before, and are gone.
    let mut others: Vec<_> = above.iter().filter(|above| !above.path().is_ident("derive")).cloned().collect();
    let template = &attributes[index];
    others.extend(metas.iter().skip(at + 1).map(|meta| Attribute { meta: meta.clone(), ..template.clone() }));
    others.extend(below.iter().cloned());
    let meta = &metas[at];
    let arguments = if let Meta::List(list) = meta { list.tokens.clone() } else { TokenStream::new() };
    Some(Found { arguments, span: meta.span(), others })
}
