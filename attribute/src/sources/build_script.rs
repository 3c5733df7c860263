//! The `config_file(…)` of a build script.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprCall, ExprLit, ExprMethodCall, ImplItem, Item, ItemConst, ItemStatic, Lit, Local, Macro, Pat,
    PatIdent, StaticMutability, Stmt, Token, TraitItem,
};
use thiserror::Error;

use super::collect::has_cfg;
use super::{SourceError, SourceFile, Target, files};

/// A build script whose `config_file(…)` cannot be read.
#[derive(Debug, Error)]
pub enum ConfigFileError {
    /// The build script cannot be parsed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file depends on more than the text of the build script.
    #[error(
        "{}:{line}: {why}, so the file is unknown\n  help: write one call without a condition: `.config_file(\"gpu-tuned.toml\")`",
        path.display()
    )]
    Unknown {
        /// The build script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        why: &'static str,
    },
}

/// Finds the argument of `config_file(…)` in a build script and in its modules; `None` without such a call.
///
/// # Errors
///
/// When the build script cannot be parsed, or its text does not name one file: the argument is computed, the call has a
/// condition, or calls name several files.
pub fn config_file(script: &Path) -> Result<Option<PathBuf>, ConfigFileError> {
    let mut named: Option<PathBuf> = None;
    let (files, unread) = files(&Target { name: "build", root: script, is_test: false });
    for unread in unread {
        // Fails again for a file that cannot be parsed; other parts have no call.
        SourceFile::read(&unread.file)?;
    }
    for SourceFile { path, syntax, is_conditional, .. } in files {
        let mut calls = Calls::default();
        calls.under_condition(is_conditional, |calls| calls.visit_file(&syntax));
        for Call { place, argument, is_conditional } in calls.found {
            let unknown = |why| ConfigFileError::Unknown { path: path.clone(), line: place.start().line, why };
            let file = argument.and_then(|argument| calls.texts.evaluate(&argument));
            let file = file.ok_or_else(|| unknown("the argument of `config_file` is computed"))?;
            if is_conditional {
                return Err(unknown("`config_file` is called under a condition"));
            }
            if named.as_ref().is_some_and(|earlier| *earlier != file) {
                return Err(unknown("`config_file` is called with several files"));
            }
            named = Some(file);
        }
    }
    Ok(named)
}

/// A call of `config_file`.
struct Call {
    place: Span,
    argument: Option<Expr>,
    is_conditional: bool,
}

/// The calls of one file.
#[derive(Default)]
struct Calls {
    found: Vec<Call>,
    texts: Texts,
    conditions: usize,
}

impl Calls {
    fn add(&mut self, place: Span, argument: Option<&Expr>) {
        self.found.push(Call { place, argument: argument.cloned(), is_conditional: self.conditions > 0 });
    }

    fn under_condition(&mut self, has_condition: bool, visit: impl FnOnce(&mut Self)) {
        self.conditions += usize::from(has_condition);
        visit(self);
        self.conditions -= usize::from(has_condition);
    }
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "config_file" {
            self.add(call.method.span(), call.args.first());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if name(&call.func).is_some_and(|name| name == "config_file") {
            self.add(call.func.span(), call.args.get(1));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Some(place) = find_in_tokens(call.tokens.clone()) {
            self.add(place, None);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let is_branch = matches!(
            expression,
            Expr::If(_) | Expr::Match(_) | Expr::While(_) | Expr::ForLoop(_) | Expr::Closure(_) | Expr::Binary(_)
        );
        self.under_condition(is_branch, |calls| visit::visit_expr(calls, expression));
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        self.under_condition(begins_with_cfg(statement), |calls| visit::visit_stmt(calls, statement));
    }

    fn visit_item(&mut self, item: &'ast Item) {
        self.under_condition(begins_with_cfg(item), |calls| visit::visit_item(calls, item));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        self.under_condition(begins_with_cfg(item), |calls| visit::visit_impl_item(calls, item));
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        self.under_condition(begins_with_cfg(item), |calls| visit::visit_trait_item(calls, item));
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let pattern = if let Pat::Type(typed) = &local.pat { &*typed.pat } else { &local.pat };
        match (pattern, &local.init) {
            (Pat::Ident(PatIdent { by_ref: None, mutability: None, subpat: None, ident, .. }), Some(init)) => {
                self.texts.add(ident, Some(&init.expr));
                self.visit_local_init(init);
            }
            _ => visit::visit_local(self, local),
        }
    }

    /// Visits a parameter, a variable that changes, or a name in a pattern.
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        self.texts.add(&pattern.ident, None);
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.texts.add(&item.ident, Some(&item.expr));
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        let is_fixed = matches!(item.mutability, StaticMutability::None);
        self.texts.add(&item.ident, is_fixed.then_some(&*item.expr));
    }
}

/// Returns true for a statement or an item behind a `cfg`. In a statement, syn gives the attributes to an inner expression.
fn begins_with_cfg(part: &impl ToTokens) -> bool {
    let parser = |input: ParseStream<'_>| {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<TokenStream>()?;
        Ok(attributes)
    };
    parser.parse2(part.to_token_stream()).is_ok_and(|attributes| has_cfg(&attributes))
}

/// Returns the last name of a path.
fn name(path: &Expr) -> Option<String> {
    let Expr::Path(path) = path else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

fn find_in_tokens(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(name) if name == "config_file" => Some(name.span()),
        TokenTree::Group(group) => find_in_tokens(group.stream()),
        _ => None,
    })
}

/// The constants and variables of a file; `None` for a name with several values, or an unknown one.
#[derive(Default)]
struct Texts(BTreeMap<String, Option<Expr>>);

impl Texts {
    fn add(&mut self, name: &Ident, value: Option<&Expr>) {
        let known = self.0.entry(name.to_string());
        known.and_modify(|known| *known = None).or_insert_with(|| value.cloned());
    }

    /// Returns the path that an expression has whatever the machine. `CARGO_MANIFEST_DIR` is the package's folder, from which
    /// the build script resolves paths.
    fn evaluate(&self, expression: &Expr) -> Option<PathBuf> {
        match expression {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().into()),
            Expr::Reference(reference) => self.evaluate(&reference.expr),
            Expr::Paren(paren) => self.evaluate(&paren.expr),
            Expr::Path(path) => {
                let value = self.0.get(&path.path.get_ident()?.to_string())?.clone()?;
                // A variable may have its own name on the right.
                Self::default().evaluate(&value)
            }
            Expr::Call(call) => {
                let argument = self.evaluate(call.args.first()?)?;
                match name(&call.func)?.as_str() {
                    "new" | "from" => Some(argument),
                    "var" | "var_os" => folder(&argument),
                    _ => None,
                }
            }
            Expr::MethodCall(call) => {
                let receiver = self.evaluate(&call.receiver)?;
                match call.method.to_string().as_str() {
                    "join" => Some(receiver.join(self.evaluate(call.args.first()?)?)),
                    "into" | "to_owned" | "to_string" | "to_path_buf" | "as_path" | "as_ref" | "clone" | "unwrap"
                    | "expect" => Some(receiver),
                    _ => None,
                }
            }
            Expr::Macro(call) if call.mac.path.is_ident("env") => {
                folder(&self.evaluate(&call.mac.parse_body::<Expr>().ok()?)?)
            }
            Expr::Macro(call) if call.mac.path.is_ident("concat") => {
                let parts = call.mac.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated).ok()?;
                let texts: Option<Vec<_>> = parts.iter().map(|part| self.evaluate(part)).collect();
                let text: String = texts?.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                let is_in_folder = matches!(parts.first(), Some(Expr::Macro(_)));
                Some(if is_in_folder { text.trim_start_matches('/').into() } else { text.into() })
            }
            _ => None,
        }
    }
}

/// Returns the package's folder for the variable that names it; `None` for another variable.
fn folder(variable: &Path) -> Option<PathBuf> {
    (variable == Path::new("CARGO_MANIFEST_DIR")).then(PathBuf::new)
}
