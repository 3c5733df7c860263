//! Losses that depend on the micro-batch, and edits of the program: for any micro-batch, and for 16 bits.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gpu_tuned_attribute::sources::{Node, Visitor};
use proc_macro2::Span;
use quote::ToTokens as _;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{
    BinOp, Block, Expr, ExprCall, ExprClosure, ExprMethodCall, ExprPath, Field, ImplItem, Item, Local, Pat, ReturnType,
    Signature, Stmt, Token, Type,
};

use crate::candidate::{derives, structs};
use crate::code::{last, path, root};
use crate::model::{BurnNames, Weighted};
use crate::sources::{Calls, Source, has_ident};

/// Attribute's key of losses over a whole batch.
const KEY: &str = "whole_batch_loss = true";

/// Losses of a program.
#[derive(Default)]
pub(super) struct Losses {
    /// Edits of the program's code, with their places.
    pub edits: Vec<String>,
    /// The first loss over the samples of a whole batch, and its place.
    pub whole_batch: Option<(String, String)>,
    /// True if the program's attribute has `whole_batch_loss`.
    pub has_key: bool,
}

impl Losses {
    /// The key of losses over a whole batch, with its reason, if the program's attribute lacks the key.
    pub(super) fn missing_key(&self) -> Option<(&'static str, String)> {
        let (loss, place) = self.whole_batch.as_ref().filter(|_| !self.has_key)?;
        let reason = format!(
            "`{KEY}` because of {loss} in {place}: a loss that compares the samples of a batch changes with the micro-batch. \
             Leave the key out if that loss is not trained"
        );
        Some((KEY, reason))
    }

    /// Edits for a program whose attribute is not proposed.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let key = self.missing_key().map(|(_, reason)| format!("add to `#[gpu_tuned(…)]`: {reason}"));
        self.edits.iter().cloned().chain(key)
    }

    /// Reads the losses of the package's own sources.
    pub(super) fn new(sources: &[&Source]) -> Self {
        let own = || sources.iter().copied().filter(|source| source.is_own());
        let mut functions = Functions::default();
        own().for_each(|source| Node::File(&source.file).walk(&mut functions));
        let mut losses =
            Self { has_key: own().any(|source| has_ident(&source.tokens, "whole_batch_loss")), ..Self::default() };
        let mut weighted = Vec::new();
        let mut has_weight = own().any(|source| has_ident(&source.tokens, "Weighted"));
        for source in own() {
            let mut finder =
                Finder { functions: &functions, found: Found::default(), chains: BTreeSet::new(), is_divided: false };
            Node::File(&source.file).walk(&mut finder);
            let Found { sums, coupling, settings, has_weight: returns_weight, .. } = finder.found;
            has_weight |= returns_weight;
            weighted.extend(settings.iter().map(|loss| loss.describe(&source.name, functions.has_train_step)));
            losses.edits.extend(sums.iter().map(|(line, sum)| {
                format!(
                    "{}:{line}: {sum}: a step is the mean over its samples, and a sum grows with the micro-batch. Return \
                     the mean, or `(sum / count, count)` for a mean over something else than samples",
                    source.name
                )
            }));
            let place = |(line, name)| (name, format!("{}:{line}", source.name));
            losses.whole_batch = losses.whole_batch.or_else(|| coupling.into_iter().next().map(place));
        }
        if !has_weight {
            weighted.append(&mut losses.edits);
            losses.edits = weighted;
        }
        losses
    }
}

/// Functions of a program by their names.
#[derive(Default)]
struct Functions<'a> {
    bodies: BTreeMap<String, Vec<&'a Block>>,
    /// Functions that return a loss with its weight.
    weighing: BTreeSet<String>,
    /// True for a program with steps of Burn's loop.
    has_train_step: bool,
}

impl<'a> Functions<'a> {
    fn add(&mut self, signature: &'a Signature, block: &'a Block) {
        let name = signature.ident.to_string();
        if let ReturnType::Type(_, ty) = &signature.output
            && is_weighing(ty)
        {
            self.weighing.insert(name.clone());
        }
        self.bodies.entry(name).or_default().push(block);
    }

    /// The value of a call of a function whose name the program has once.
    fn called(&self, value: &'a Expr) -> Option<&'a Block> {
        match &self.bodies.get(&callee(value)?)?[..] {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Name of a called function or method.
fn callee(value: &Expr) -> Option<String> {
    match value {
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
            _ => None,
        },
        Expr::MethodCall(call) => Some(call.method.to_string()),
        _ => None,
    }
}

/// Returns true for a tuple, and for the runtime's `Loss`.
fn is_weighing(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.len() == 2) || last(ty).is_some_and(|name| name == "Loss")
}

impl<'a> Visitor<'a> for Functions<'a> {
    fn visit(&mut self, node: Node<'a>) {
        match node {
            Node::Item(Item::Fn(function)) => self.add(&function.sig, &function.block),
            Node::ImplItem(ImplItem::Fn(function)) => self.add(&function.sig, &function.block),
            Node::Item(Item::Impl(item)) => {
                let of = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
                self.has_train_step |= of.is_some_and(|of| of.ident == "TrainStep");
            }
            _ => {}
        }
        node.walk(self);
    }
}

/// A loss with settings that change its mean.
struct Weighing {
    line: usize,
    builder: String,
    settings: Vec<String>,
    pad: Option<String>,
    targets: Option<String>,
}

impl Weighing {
    fn describe(&self, file: &str, is_burns_loop: bool) -> String {
        let names = &BurnNames::get().weighted;
        let has_settings = |row: &&Weighted| {
            let has = |setting: &str| self.settings.iter().any(|own| own == setting);
            row.builder.iter().any(|builder| builder == self.builder) && row.settings.iter().all(has)
        };
        let row = names.iter().find(has_settings).expect("BUG: a loss is found by its row");
        let weight = row.weight.replace("PAD", self.pad.as_deref().unwrap_or("pad"));
        let weight = weight.replace("TARGETS", self.targets.as_deref().unwrap_or("targets"));
        let edit = if is_burns_loop {
            format!(
                "In `TrainStep::step`, return `Weighted::new(output, {weight})` as the output, with `gpu_tuned::train::Weighted`"
            )
        } else {
            format!("Return `(loss, {weight})` from the closure of `trainer.step`")
        };
        format!(
            "{file}:{}: the mean of `{}` is over {}, and each micro-batch has another number of them. {edit}",
            self.line,
            self.builder.trim_end_matches("Config"),
            row.over
        )
    }
}

#[derive(Default)]
struct Found {
    /// Losses that are sums, by their lines.
    sums: Vec<(usize, String)>,
    /// Losses that compare samples, by their lines.
    coupling: Vec<(usize, String)>,
    settings: Vec<Weighing>,
    /// Losses in variables: positions in `settings`.
    variables: BTreeMap<String, usize>,
    /// Variables of numbered targets, as those of contrastive losses.
    numbered: BTreeSet<String>,
    /// True if the function multiplies by a transpose.
    multiplies_transpose: bool,
    /// True if a step's closure returns a loss with its weight.
    has_weight: bool,
}

struct Finder<'f, 'a> {
    functions: &'f Functions<'a>,
    found: Found,
    /// Starts of the chains of calls that were read.
    chains: BTreeSet<(usize, usize)>,
    /// True within the dividend of a division.
    is_divided: bool,
}

fn line(span: Span) -> usize {
    span.start().line
}

fn is_none(value: &Expr) -> bool {
    matches!(value, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "None"))
}

/// Returns true for a name of a loss that compares samples.
fn is_coupling(name: &str) -> bool {
    let plain = name.replace('_', "").to_lowercase();
    BurnNames::get().coupling.iter().any(|part| plain.contains(part))
}

/// Returns true for `a.transpose()`, `a.t()` and `a.swap_dims(…)`.
fn is_transpose(value: &Expr) -> bool {
    match value {
        Expr::MethodCall(call) if call.method == "clone" => is_transpose(&call.receiver),
        Expr::MethodCall(call) => ["transpose", "t", "swap_dims"].iter().any(|name| call.method == name),
        _ => false,
    }
}

/// The value behind clones.
fn cloned(value: &Expr) -> &Expr {
    match value {
        Expr::MethodCall(call) if call.method == "clone" => cloned(&call.receiver),
        other => other,
    }
}

fn name_of(value: &Expr) -> Option<String> {
    match cloned(value) {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}

/// Variable or field as written.
fn place(value: &Expr) -> Option<String> {
    match cloned(value) {
        value @ (Expr::Path(_) | Expr::Field(_)) => Some(value.to_token_stream().to_string().replace(' ', "")),
        _ => None,
    }
}

/// The only padding token of `Some(vec![token])`, `vec![token]` or `Some(token)`, as code.
fn token(value: &Expr) -> Option<String> {
    match value {
        Expr::Call(call) => token(call.args.first()?),
        Expr::Macro(list) => {
            let elements = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(list.mac.tokens.clone()).ok()?;
            number(elements.first().filter(|_| elements.len() == 1)?)
        }
        _ => None,
    }
}

/// A number as code of an `i64`.
fn number(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(literal) => Some(literal.to_token_stream().to_string()),
        Expr::Unary(minus) => Some(format!("-{}", number(&minus.expr)?)),
        other => Some(format!("{} as i64", place(other)?)),
    }
}

/// The value of a block or closure, behind variables of its own.
fn value(expression: &Expr) -> Option<&Expr> {
    match expression {
        Expr::Block(block) => value_of_block(&block.block),
        Expr::Paren(inner) => value(&inner.expr),
        Expr::Group(inner) => value(&inner.expr),
        other => Some(other),
    }
}

fn value_of_block(block: &Block) -> Option<&Expr> {
    let Stmt::Expr(last, None) = block.stmts.last()? else { return None };
    let last = value(last)?;
    let variable = name_of(last);
    let defined = block.stmts.iter().rev().find_map(|statement| match statement {
        Stmt::Local(Local { pat: Pat::Ident(name), init: Some(init), .. })
            if variable.as_ref()? == &name.ident.to_string() =>
        {
            Some(&*init.expr)
        }
        _ => None,
    });
    Some(defined.unwrap_or(last))
}

impl<'a> Finder<'_, 'a> {
    /// Reads what the closure of a step returns.
    fn step(&mut self, closure: &'a ExprClosure) {
        let Some(mut returned) = value(&closure.body) else { return };
        if let Some(body) = self.functions.called(returned) {
            self.found.has_weight |= callee(returned).is_some_and(|name| self.functions.weighing.contains(&name));
            let Some(inner) = value_of_block(body) else { return };
            returned = inner;
        }
        if let Expr::Tuple(pair) = returned
            && let Some(loss) = pair.elems.first()
        {
            self.found.has_weight = true;
            returned = loss;
        }
        if let Expr::MethodCall(call) = returned
            && call.method == "sum"
            && call.args.is_empty()
        {
            self.found.sums.push((line(call.method.span()), "the loss ends with `.sum()`".to_owned()));
        }
    }

    /// Reads a chain of calls behind a loss's constructor, from its last call.
    fn chain(&mut self, call: &ExprMethodCall) {
        let Some([builder, _]) = root(&call.receiver) else { return };
        let start = call.span().start();
        if !self.chains.insert((start.line, start.column)) {
            return;
        }
        let rows = || BurnNames::get().weighted.iter().filter(|row| row.builder.iter().any(|it| it == builder));
        let (mut settings, mut pad, mut targets, mut at) = (Vec::new(), None, None, 0);
        let mut link = call;
        loop {
            let method = link.method.to_string();
            let setting = method
                .strip_prefix("with_")
                .filter(|setting| rows().any(|row| row.settings.iter().any(|it| it == *setting)));
            match (setting, link.args.first()) {
                (Some(setting), Some(argument)) if !is_none(argument) => {
                    if setting == "pad_tokens" {
                        pad = token(argument);
                    }
                    settings.push(setting.to_owned());
                    at = line(link.method.span());
                }
                _ if method == "forward" => targets = link.args.last().and_then(place),
                _ => {}
            }
            let Expr::MethodCall(next) = &*link.receiver else { break };
            link = next;
        }
        if !settings.is_empty() {
            self.found.settings.push(Weighing { line: at, builder, settings, pad, targets });
        }
    }

    fn function(&mut self, name: &proc_macro2::Ident, function: Node<'a>) {
        self.coupling(name);
        let numbered = std::mem::take(&mut self.found.numbered);
        let variables = std::mem::take(&mut self.found.variables);
        let multiplies = std::mem::take(&mut self.found.multiplies_transpose);
        function.walk(self);
        (self.found.numbered, self.found.variables) = (numbered, variables);
        self.found.multiplies_transpose = multiplies;
    }

    fn coupling(&mut self, name: &proc_macro2::Ident) {
        let text = name.to_string();
        if is_coupling(&text) {
            self.found.coupling.push((line(name.span()), format!("`{text}`")));
        }
    }

    /// Returns true for numbers in order, which contrastive losses have as targets.
    fn is_numbered(&self, value: &Expr) -> bool {
        let value = cloned(value);
        let is_arange = |[of, function]: [String; 2]| of == "Tensor" && function == "arange";
        root(value).is_some_and(is_arange) || name_of(value).is_some_and(|name| self.found.numbered.contains(&name))
    }

    fn divided(&mut self, division: Node<'a>) {
        let outer = std::mem::replace(&mut self.is_divided, true);
        division.walk(self);
        self.is_divided = outer;
    }

    fn forward(&mut self, call: &ExprMethodCall) {
        let Some(targets) = call.args.last().filter(|_| call.method == "forward" && call.args.len() > 1) else {
            return;
        };
        if self.found.multiplies_transpose && self.is_numbered(targets) {
            let what = "a product with a transpose, and targets in order".to_owned();
            self.found.coupling.push((line(call.method.span()), what));
        }
        if let Some(loss) = name_of(&call.receiver).and_then(|name| self.found.variables.get(&name).copied()) {
            self.found.settings[loss].targets = place(targets);
        }
    }
}

impl<'a> Visitor<'a> for Finder<'_, 'a> {
    fn visit(&mut self, node: Node<'a>) {
        match node {
            Node::Item(Item::Fn(function)) => return self.function(&function.sig.ident, node),
            Node::ImplItem(ImplItem::Fn(function)) => return self.function(&function.sig.ident, node),
            Node::Item(Item::Struct(item)) => self.coupling(&item.ident),
            Node::Local(local) => return self.local(local),
            Node::Expr(Expr::Binary(binary)) if matches!(binary.op, BinOp::Div(_)) => return self.divided(node),
            Node::Expr(Expr::MethodCall(call)) => {
                self.method_call(call);
                if ["div", "div_scalar"].iter().any(|name| call.method == name) {
                    return self.divided(node);
                }
            }
            Node::Expr(Expr::Call(call)) => self.call(call),
            Node::Type(Type::Path(ty)) => {
                ty.path.segments.iter().next_back().into_iter().for_each(|segment| self.coupling(&segment.ident));
            }
            Node::Path(path) => return self.path(path),
            _ => {}
        }
        node.walk(self);
    }
}

impl<'a> Finder<'_, 'a> {
    fn local(&mut self, local: &'a Local) {
        let before = self.found.settings.len();
        Node::Local(local).walk(self);
        let Pat::Ident(name) = &local.pat else { return };
        let name = name.ident.to_string();
        if self.found.settings.len() > before {
            self.found.variables.insert(name.clone(), self.found.settings.len() - 1);
        }
        if local.init.as_ref().is_some_and(|init| self.is_numbered(&init.expr)) {
            self.found.numbered.insert(name);
        }
    }

    fn method_call(&mut self, call: &'a ExprMethodCall) {
        self.coupling(&call.method);
        self.chain(call);
        self.forward(call);
        match (call.method.to_string().as_str(), call.args.last()) {
            ("matmul", Some(other)) => self.found.multiplies_transpose |= is_transpose(other),
            ("step", Some(Expr::Closure(closure))) if call.args.len() == 3 => self.step(closure),
            _ => {}
        }
    }

    fn call(&mut self, call: &ExprCall) {
        if let (Some([of, function]), Some(index)) = (path(&call.func), call.args.first())
            && of == "CrossEntropyLoss"
            && function == "new"
            && !is_none(index)
        {
            let pad = match index {
                Expr::Call(some) => some.args.first().and_then(number),
                _ => None,
            };
            let settings = vec!["pad_tokens".to_owned()];
            self.found.settings.push(Weighing { line: line(call.span()), builder: of, settings, pad, targets: None });
        }
        if let Expr::Path(function) = &*call.func {
            function.path.segments.iter().rev().take(2).for_each(|segment| self.coupling(&segment.ident));
        }
    }

    fn path(&mut self, path: &ExprPath) {
        let mut names = path.path.segments.iter().rev().map(|segment| &segment.ident);
        let [last, of] = [names.next(), names.next()];
        if of.is_some_and(|of| of == "Reduction") && last.is_some_and(|last| last == "Sum") && !self.is_divided {
            self.found.sums.push((line(path.span()), "`Reduction::Sum`".to_owned()));
        }
    }
}

/// Returns the edits for mixed precision, with their places.
pub(super) fn edits_for_16_bits(sources: &[&Source]) -> Vec<String> {
    sources.iter().flat_map(|source| statistics(source).chain(loss(source))).collect()
}

/// Modules whose running statistics would be rounded in 16 bits.
fn statistics(source: &Source) -> impl Iterator<Item = String> {
    let modules = structs(&source.file.items).into_iter().filter(|item| derives(&item.attrs, "Module"));
    let fields = modules.flat_map(|item| &item.fields).filter(|field| has_statistics(field));
    fields.map(|field| {
        let span = field.ident.as_ref().map_or_else(|| field.ty.span(), proc_macro2::Ident::span);
        let name = field.ident.as_ref().map(|name| format!("`{name}`: ")).unwrap_or_default();
        let line = span.start().line;
        format!(
            "{}:{line}: {name}hold the `BatchNorm` in an `InF32`, which keeps its running statistics in f32: \
             `InF32<BatchNorm>`, made with `.into()`",
            source.name
        )
    })
}

fn has_statistics(field: &Field) -> bool {
    struct Search(bool);
    impl Visitor<'_> for Search {
        fn visit(&mut self, node: Node<'_>) {
            let Node::Type(Type::Path(ty)) = node else { return node.walk(self) };
            match ty.path.segments.last() {
                Some(last) if last.ident == "InF32" => {}
                Some(last) if last.ident == "BatchNorm" => self.0 = true,
                _ => node.walk(self),
            }
        }
    }
    let mut search = Search(false);
    search.visit(Node::Type(&field.ty));
    search.0
}

/// The first loss of a file that converts nothing to f32.
fn loss(source: &Source) -> Option<String> {
    if source.text.contains("in_f32") {
        return None;
    }
    let calls = Calls::of_file(&source.file).functions;
    let (call, of) = calls.into_iter().find_map(|call| {
        let [of, function] = path(&call.func)?;
        let is_loss = of.ends_with("Loss") || of.ends_with("LossConfig");
        (function == "new" && is_loss).then_some((call, of))
    })?;
    Some(format!(
        "{}:{}: pass the model's output, and real-valued targets, through `in_f32` before `{}`: losses mix float types in \
         16 bits",
        source.name,
        line(call.span()),
        of.trim_end_matches("Config")
    ))
}
