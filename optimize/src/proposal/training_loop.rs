//! Burn's own training loop in a program, the input of its steps, and their edits.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Expr, ExprCall, ExprMethodCall, FnArg, ImplItem, Item, ItemStruct, Meta, Pat, ReturnType,
    Signature, Stmt,
};

use super::annotation::{above, range, start_of};
use super::candidate::{Candidate, derives, structs};
use super::code::{last, path};
use super::sources::{Patch, Source};

/// Constructor of Burn's loop.
const LOOP: [&str; 2] = ["SupervisedTraining", "new"];
const STRATEGY: &str = "with_training_strategy";

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
    sources.iter().flat_map(of).collect()
}

impl<'a> TrainingLoop<'a> {
    pub(super) fn name(&self) -> String {
        self.signature.ident.to_string()
    }

    pub(super) fn line(&self) -> usize {
        self.signature.ident.span().start().line
    }

    /// Returns true if the function has this config.
    pub(super) fn takes(&self, candidate: &Candidate<'_>) -> bool {
        self.config(candidate).is_some()
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
        left
    }

    fn add_strategy(&self, patch: &mut Patch<'a>) {
        let ours = format!("session.strategy(){}", self.or());
        let mut other = Strategy(None);
        other.visit_block(self.block);
        if let Some(call) = other.0 {
            let range = call.paren_token.span.open().byte_range().end..call.paren_token.span.close().byte_range().start;
            patch.note(self.source, range.start, "the loop uses the session's steps");
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
        let is_result =
            matches!(&self.signature.output, ReturnType::Type(_, ty) if last(ty).as_deref() == Some("Result"));
        if is_result { "?" } else { ".unwrap_or_else(|error| panic!(\"{error}\"))" }
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

/// First call that sets a loop's strategy.
struct Strategy<'a>(Option<&'a ExprMethodCall>);

impl<'a> Visit<'a> for Strategy<'a> {
    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        if self.0.is_none() && call.method == STRATEGY {
            self.0 = Some(call);
        }
        visit::visit_expr_method_call(self, call);
    }
}

const DERIVE: &str = "MicroBatch";

/// Derives `MicroBatch` for the input of the first training step, if that is a struct of the program.
pub(super) fn derive_micro_batch<'a>(sources: &'a [Source], krate: &str, patch: &mut Patch<'a>) {
    let Some(name) = sources.iter().find_map(|source| taken(&source.file.items)) else { return };
    let is_it = |item: &&ItemStruct| item.ident == name;
    let found = sources.iter().find_map(|source| Some((source, structs(&source.file.items).into_iter().find(is_it)?)));
    let Some((source, item)) = found.filter(|(_, item)| !derives(&item.attrs, DERIVE)) else { return };
    if sources.iter().any(|source| implements(&source.file.items, &name)) {
        return;
    }
    let ours = format!("{}::{DERIVE}", krate.replace('-', "_"));
    let what = format!("`{name}` is divided into micro-batches");
    let list = item
        .attrs
        .iter()
        .find_map(|attribute| if is_derive(attribute) { Some((attribute, list(attribute)?)) } else { None });
    if let Some((attribute, end)) = list.filter(|_| derives(&item.attrs, "Clone")) {
        patch.note(source, range(attribute).start, what);
        return patch.insert(source, end, format!(", {ours}"));
    }
    let first = item.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
    let start = first.map_or_else(|| start_of(&item.vis, item.struct_token.span), |attribute| range(attribute).start);
    patch.note(source, start, what);
    patch.insert(source, start, above(&source.text, start, &format!("#[derive(Clone, {ours})]")));
}

/// Input of the first training step among items.
fn taken(items: &[Item]) -> Option<String> {
    items.iter().find_map(|item| match item {
        Item::Mod(module) => taken(&module.content.as_ref()?.1),
        Item::Impl(item) if item.trait_.as_ref()?.0.segments.last()?.ident == "TrainStep" => {
            item.items.iter().find_map(|member| match member {
                ImplItem::Type(ty) if ty.ident == "Input" => last(&ty.ty),
                _ => None,
            })
        }
        _ => None,
    })
}

fn implements(items: &[Item], name: &str) -> bool {
    items.iter().any(|item| {
        let Item::Impl(item) = item else { return false };
        let of = item.trait_.as_ref().and_then(|it| it.0.segments.last()).is_some_and(|last| last.ident == DERIVE);
        of && last(&item.self_ty).as_deref() == Some(name)
    })
}

fn is_derive(attribute: &Attribute) -> bool {
    attribute.path().is_ident("derive")
}

/// End of the text in an attribute's parentheses.
fn list(attribute: &Attribute) -> Option<usize> {
    let Meta::List(list) = &attribute.meta else { return None };
    (!list.tokens.is_empty()).then(|| list.delimiter.span().close().byte_range().start)
}
