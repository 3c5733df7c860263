//! Burn's own training loop in a program, and its edits.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprCall, ExprMethodCall, FnArg, Pat, Signature, Stmt};

use crate::candidate::Candidate;
use crate::code::{last, path};
use crate::device;
use crate::failure;
use crate::sources::{Patch, Source};

/// Constructor of Burn's loop.
const LOOP: [&str; 2] = ["SupervisedTraining", "new"];
const STRATEGY: &str = "with_training_strategy";
const ACCUMULATION: &str = "grads_accumulation";

#[derive(Clone, Copy)]
pub(super) struct TrainingLoop<'a> {
    pub source: &'a Source,
    signature: &'a Signature,
    block: &'a Block,
    call: &'a ExprCall,
}

pub(super) fn all(sources: &[Source]) -> Vec<TrainingLoop<'_>> {
    let of = |source| {
        let mut functions = Functions { source, found: Vec::new() };
        functions.visit_file(&source.file);
        functions.found
    };
    sources.iter().filter(|source| source.is_own()).flat_map(of).collect()
}

/// Describes a loop by hand whose steps are the session's.
pub(super) fn by_hand(sources: &[Source]) -> Option<String> {
    sources.iter().filter(|source| source.is_own()).find_map(|source| {
        let (before, _) = source.text.split_once(".trainer(")?;
        Some(format!("a loop with `session.trainer` ({}:{})", source.name, before.matches('\n').count() + 1))
    })
}

impl<'a> TrainingLoop<'a> {
    pub(super) fn name(&self) -> String {
        self.signature.ident.to_string()
    }

    pub(super) fn line(&self) -> usize {
        self.signature.ident.span().start().line
    }

    /// Returns true if the function has the config of this source.
    pub(super) fn takes(&self, (of, candidate): (&Source, &Candidate<'_>), sources: &[Source]) -> bool {
        self.config(candidate).is_some() && self.source.can_mean(&candidate.item.ident.to_string(), of, sources)
    }

    /// Argument of `grads_accumulation`, as in `.grads_accumulation(4)`.
    pub(super) fn accumulation(&self) -> Option<&'a Expr> {
        self.method(ACCUMULATION)?.args.first()
    }

    fn method(&self, name: &'static str) -> Option<&'a ExprMethodCall> {
        let mut search = Method { name, found: None };
        search.visit_block(self.block);
        search.found
    }

    /// Adds a session to the function, and its strategy to the loop; returns edits left to the user.
    pub(super) fn edit(&self, candidate: &Candidate<'_>, krate: &str, patch: &mut Patch<'a>) -> Vec<String> {
        let krate = krate.replace('-', "_");
        let mut left = Vec::new();
        match self.config(candidate).filter(|_| candidate.is_clone()) {
            Some((name, at, indent)) => {
                let call = format!("let session = {krate}::start({name}.clone()){};", self.or());
                patch.note(self.source, at, "the session, before anything is created on the device");
                patch.insert(self.source, at, format!("\n{indent}{call}"));
            }
            None => left.push(format!(
                "{}:{}, in `{}`, before anything is created on the device: `let session = {krate}::start(…);` with the config",
                self.source.name,
                self.line(),
                self.signature.ident
            )),
        }
        self.add_strategy(patch);
        self.remove_accumulation(patch);
        if !device::edit(self.source, &self.block.stmts, &krate, patch) {
            left.push(format!(
                "{}:{}, in `{}`: create the model on `session.device()`, which has the planned activation checkpointing",
                self.source.name,
                self.line(),
                self.signature.ident
            ));
        }
        left
    }

    fn remove_accumulation(&self, patch: &mut Patch<'a>) {
        let Some(call) = self.method(ACCUMULATION) else { return };
        let start = call.receiver.span().byte_range().end;
        let end = call.paren_token.span.close().byte_range().end;
        patch.note(self.source, call.method.span().byte_range().start, "the session's steps accumulate as planned, and average where Burn adds up: SGD needs a learning rate times the accumulation");
        patch.replace(self.source, start..end, "");
    }

    fn add_strategy(&self, patch: &mut Patch<'a>) {
        let ours = format!("session.strategy(){}", self.or());
        if let Some(call) = self.method(STRATEGY) {
            let range = call.paren_token.span.open().byte_range().end..call.paren_token.span.close().byte_range().start;
            let old = self.source.text[range.clone()].split_whitespace().collect::<Vec<_>>().join(" ");
            patch.note(self.source, range.start, format!("the loop uses the session's steps in place of `{old}`"));
            return patch.replace(self.source, range, ours);
        }
        let end = self.call.paren_token.span.close().byte_range().end;
        let rest = &self.source.text[end..];
        let space: String = rest.chars().take_while(|c| c.is_whitespace()).collect();
        // In the style of the calls that follow.
        let space = if rest[space.len()..].starts_with('.') { space } else { String::new() };
        patch.note(self.source, end, "the loop uses the session's steps");
        patch.insert(self.source, end, format!("{space}.{STRATEGY}({ours})"));
    }

    /// Error handling: return, or a panic with the message.
    fn or(&self) -> &'static str {
        failure::handling(&self.signature.output, &self.source.file)
    }

    /// Variable of the config, the offset behind its definition, and the indentation there.
    fn config(&self, candidate: &Candidate<'_>) -> Option<(String, usize, String)> {
        let of = candidate.item.ident.to_string();
        let indent = |at: usize| {
            let line = self.source.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            self.source.text[line..at].chars().take_while(|c| c.is_whitespace()).collect::<String>()
        };
        for input in &self.signature.inputs {
            if let FnArg::Typed(input) = input
                && let Pat::Ident(name) = &*input.pat
                && last(&input.ty).as_ref() == Some(&of)
            {
                let open = self.block.brace_token.span.open().byte_range().end;
                let first = self.block.stmts.first()?.span().byte_range().start;
                return Some((name.ident.to_string(), open, indent(first)));
            }
        }
        self.block.stmts.iter().find_map(|statement| {
            let Stmt::Local(local) = statement else { return None };
            let (pattern, ty) = match &local.pat {
                Pat::Type(typed) => (&*typed.pat, last(&typed.ty)),
                pattern => (pattern, None),
            };
            let Pat::Ident(name) = pattern else { return None };
            let made = local.init.as_ref().is_some_and(|init| makes(&init.expr, &of));
            let range = statement.span().byte_range();
            (made || ty.as_ref() == Some(&of)).then(|| (name.ident.to_string(), range.end, indent(range.start)))
        })
    }
}

/// Returns true if an expression creates a value of a type: `Config::new(…)`, with or without methods, or a literal.
fn makes(value: &Expr, of: &str) -> bool {
    match value {
        Expr::MethodCall(call) => makes(&call.receiver, of),
        Expr::Try(value) => makes(&value.expr, of),
        Expr::Call(call) => path(&call.func).is_some_and(|[ty, _]| ty == of),
        Expr::Struct(literal) => literal.path.segments.last().is_some_and(|last| last.ident == of),
        _ => false,
    }
}

struct Functions<'a> {
    source: &'a Source,
    found: Vec<TrainingLoop<'a>>,
}

impl<'a> Functions<'a> {
    fn look(&mut self, signature: &'a Signature, block: &'a Block) {
        let mut calls = Calls(None);
        calls.visit_block(block);
        let source = self.source;
        self.found.extend(calls.0.map(|call| TrainingLoop { source, signature, block, call }));
    }
}

impl<'a> Visit<'a> for Functions<'a> {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.look(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.look(&function.sig, &function.block);
    }
}

/// First call that creates a loop.
struct Calls<'a>(Option<&'a ExprCall>);

impl<'a> Visit<'a> for Calls<'a> {
    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if self.0.is_none() && path(&call.func).is_some_and(|names| names == LOOP) {
            self.0 = Some(call);
        }
        visit::visit_expr_call(self, call);
    }
}

/// First call of a method.
struct Method<'a> {
    name: &'static str,
    found: Option<&'a ExprMethodCall>,
}

impl<'a> Visit<'a> for Method<'a> {
    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        if self.found.is_none() && call.method == self.name {
            self.found = Some(call);
        }
        visit::visit_expr_method_call(self, call);
    }
}
