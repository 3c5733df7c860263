//! The annotated structs, modules and macros of one file.

use std::path::PathBuf;
use std::rc::Rc;

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, DeriveInput, Item, ItemMod, LitStr, Macro, Meta, Token};

use super::recognize::{Aliases, Found, find_attribute};
use super::{Annotated, SourceFile, Unread};
use crate::parse::conditional::cfgs;

/// A module in a file of its own: `mod x;`.
pub(super) struct FileModule {
    /// The module's path in the target.
    pub path: Vec<String>,
    /// The module's attributes.
    pub attributes: Vec<Attribute>,
    /// The names of the inline modules around the module, within the file.
    pub inline: Vec<String>,
    /// True if the module, or an inline module around it, is behind a `cfg`.
    pub is_conditional: bool,
}

/// A visitor of one file.
pub(super) struct Collector<'a> {
    file: &'a SourceFile,
    text: Rc<str>,
    aliases: Aliases,
    is_test: bool,
    path: Vec<String>,
    inline: Vec<String>,
    /// The modules behind a `cfg` around the current place.
    conditions: usize,
    pub structs: Vec<Annotated>,
    pub modules: Vec<FileModule>,
    /// Files named in `include!`.
    pub included: Vec<PathBuf>,
    pub unread: Vec<Unread>,
}

impl<'a> Collector<'a> {
    /// Collects from a file whose module has this path in the target.
    pub(super) fn collect(file: &'a SourceFile, path: Vec<String>, is_test: bool) -> Self {
        let (text, aliases) = (file.text.as_str().into(), Aliases::in_file(&file.syntax));
        let (inline, structs, modules) = (Vec::new(), Vec::new(), Vec::new());
        let (included, unread) = (Vec::new(), Vec::new());
        let mut collector =
            Self { file, text, aliases, is_test, path, inline, conditions: 0, structs, modules, included, unread };
        collector.visit_file(&file.syntax);
        collector
    }

    fn add_annotated(&mut self, mut item: DeriveInput, found: Found) {
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

    fn add_unread(&mut self, span: Span) {
        let why = "a macro makes the annotated struct".to_owned();
        self.unread.push(Unread { file: self.file.path.clone(), line: Some(span.start().line), why });
    }

    /// Returns true for items of unit tests.
    fn is_left_out(&self, attributes: &[Attribute]) -> bool {
        !self.is_test && attributes.iter().any(needs_test)
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let item_of = |input: DeriveInput| (input.attrs.clone(), input);
        let (attributes, input) = match item {
            Item::Struct(item) => item_of(item.clone().into()),
            Item::Enum(item) => item_of(item.clone().into()),
            Item::Union(item) => item_of(item.clone().into()),
            other => return visit::visit_item(self, other),
        };
        if self.is_left_out(&attributes) {
            return;
        }
        if let Some(found) = find_attribute(&attributes, &self.aliases) {
            self.add_annotated(input, found);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if self.is_left_out(&module.attrs) {
            return;
        }
        let name = module.ident.unraw().to_string();
        self.path.push(name.clone());
        self.conditions += usize::from(has_cfg(&module.attrs));
        if module.content.is_some() {
            self.inline.push(name);
            visit::visit_item_mod(self, module);
            self.inline.pop();
        } else {
            self.modules.push(FileModule {
                path: self.path.clone(),
                attributes: module.attrs.clone(),
                inline: self.inline.clone(),
                is_conditional: self.conditions > 0,
            });
        }
        self.conditions -= usize::from(has_cfg(&module.attrs));
        self.path.pop();
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let is_include = call.path.segments.last().is_some_and(|last| last.ident == "include");
        if let (true, Ok(file)) = (is_include, call.parse_body::<LitStr>()) {
            self.included.push(file.value().into());
        } else if let Some(span) = self.aliases.find_in_macro(call.tokens.clone()) {
            self.add_unread(span);
        }
    }
}

/// Returns true for attributes with a `cfg`, in a `cfg_attr` too.
pub(super) fn has_cfg(attributes: &[Attribute]) -> bool {
    !cfgs(attributes).is_empty()
}

/// Returns true for `#[cfg(test)]`, and for `#[cfg(all(…))]` with `test`.
pub fn needs_test(attribute: &Attribute) -> bool {
    fn is_met_by_tests(predicate: &Meta) -> bool {
        match predicate {
            Meta::List(list) if list.path.is_ident("all") => list
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .is_ok_and(|all| all.iter().any(is_met_by_tests)),
            predicate => predicate.path().is_ident("test") && predicate.require_path_only().is_ok(),
        }
    }
    attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(|predicate| is_met_by_tests(&predicate))
}

#[cfg(test)]
mod tests {
    use super::needs_test;

    #[test]
    fn only_tests_have_items_that_need_test() {
        for (predicate, expected) in [
            ("test", true),
            ("all(test, feature = \"x\")", true),
            ("all(unix, all(test))", true),
            ("not(test)", false),
            ("any(test, unix)", false),
            ("feature = \"test\"", false),
            ("feature = \"test-data\"", false),
            ("all(unix, not(test))", false),
        ] {
            let item: syn::ItemStruct = syn::parse_str(&format!("#[cfg({predicate})] struct S;")).expect("Rust");
            assert_eq!(needs_test(&item.attrs[0]), expected, "{predicate}");
        }
    }
}
