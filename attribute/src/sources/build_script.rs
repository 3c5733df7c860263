//! The `config_file(…)` of a build script.

use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Expr, ExprLit, ExprMethodCall, Lit};
use thiserror::Error;

use super::{SourceError, SourceFile};

/// A build script whose `config_file(…)` cannot be read.
#[derive(Debug, Error)]
pub enum ConfigFileError {
    /// The build script cannot be parsed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The argument is no literal.
    #[error("{}:{line}: the argument of `config_file` is no literal, so the file is unknown", path.display())]
    NoLiteral {
        /// The build script.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// Finds the argument of `config_file(…)` in a build script; `None` without such a call.
///
/// # Errors
///
/// When the build script cannot be parsed, or the argument is no string literal.
pub fn config_file(script: &Path) -> Result<Option<PathBuf>, ConfigFileError> {
    let source = SourceFile::read(script)?;
    let mut calls = Calls::default();
    calls.visit_file(&source.syntax);
    match calls.found {
        None => Ok(None),
        Some((_, Some(file))) => Ok(Some(file)),
        Some((line, None)) => Err(ConfigFileError::NoLiteral { path: script.to_owned(), line }),
    }
}

/// The first call of `config_file`: its line, and its argument if that is a literal.
#[derive(Default)]
struct Calls {
    found: Option<(usize, Option<PathBuf>)>,
}

impl Visit<'_> for Calls {
    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        if call.method == "config_file" && self.found.is_none() {
            self.found = Some((call.method.span().start().line, call.args.first().and_then(literal)));
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// Returns a string literal, also in `Path::new("…")`, `"…".into()` and the like.
fn literal(argument: &Expr) -> Option<PathBuf> {
    match argument {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().into()),
        Expr::Reference(reference) => literal(&reference.expr),
        Expr::Paren(paren) => literal(&paren.expr),
        Expr::Call(call) if call.args.len() == 1 => literal(call.args.first()?),
        Expr::MethodCall(call) if call.args.is_empty() => literal(&call.receiver),
        _ => None,
    }
}
