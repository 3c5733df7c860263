//! Burn's own training loop in a program: its edits, its device, and the type of its batches.

#[cfg(test)]
mod tests;

use gpu_tuned_attribute::sources::{Node, Visitor};
use proc_macro2::TokenTree;
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, Expr, ExprCall, ExprMethodCall, File, FnArg, GenericArgument, ImplItem, Item, ItemImpl,
    ItemStruct, Local, Meta, Pat, PathArguments, ReturnType, Signature, Stmt, Type, UseTree,
};

use crate::annotation::{range, start};
use crate::candidate::{Candidate, call_behind, derives, implementation, structs};
use crate::code::{last, path};
use crate::sources::{Calls, Patch, Source, all_items, indent, inside, line_start};

/// Types of Burn's loop: today's, and that of older releases, which becomes today's with an upgrade.
pub(super) const LOOPS: [&str; 2] = ["SupervisedTraining", "LearnerBuilder"];
const STRATEGY: &str = "with_training_strategy";
/// Method of the loop that adds up gradients.
pub(super) const ACCUMULATION: &str = "grads_accumulation";

#[derive(Clone, Copy)]
pub(super) struct TrainingLoop<'a> {
    pub source: &'a Source,
    signature: &'a Signature,
    block: &'a Block,
    call: &'a ExprCall,
}

pub(super) fn training_loops(sources: &[Source]) -> Vec<TrainingLoop<'_>> {
    let of = |source| {
        let mut functions = Functions { source, found: Vec::new() };
        Node::File(&source.file).walk(&mut functions);
        functions.found
    };
    sources.iter().filter(|source| source.is_own()).flat_map(of).collect()
}

/// Describes a loop by hand whose steps are the session's.
pub(super) fn loop_by_hand(sources: &[Source]) -> Option<String> {
    sources.iter().filter(|source| source.is_own()).find_map(|source| {
        let (before, _) = source.text.split_once(".trainer(")?;
        Some(format!("a loop with `session.trainer` ({}:{})", source.name, before.matches('\n').count() + 1))
    })
}

/// Change where a loop by hand takes its steps.
pub const TAKE_STEPS: &str = "where steps are taken: `session.trainer(model, optimizer)?`, whose `step` takes all samples of a step; docs/loop.md \
                              of gpu-tuned has a whole loop";

/// Places of a loop by hand that its session changes, such as `src/main.rs:12`.
#[derive(Debug, Default)]
pub struct LoopPlaces {
    /// The first call that creates the config.
    pub config: Option<String>,
    /// The first call that creates a device.
    pub device: Option<String>,
    /// The first loader.
    pub loader: Option<String>,
    /// The first step of an optimizer, else the first gradients.
    pub step: Option<String>,
}

impl LoopPlaces {
    /// Finds the places in sources of the package.
    pub(super) fn find(sources: &[&Source], config: &str) -> Self {
        let mut places = Self::default();
        let mut gradients = None;
        for source in sources.iter().filter(|source| source.is_own()) {
            let place = |span: proc_macro2::Span| format!("{}:{}", source.name, span.start().line);
            let calls = Calls::of_file(&source.file);
            for call in calls.functions {
                let Some([ty, function]) = path(&call.func) else { continue };
                let found = match () {
                    () if ty == config => &mut places.config,
                    () if ty.ends_with("Device") => &mut places.device,
                    () if ty == "DataLoaderBuilder" && function == "new" => &mut places.loader,
                    () => continue,
                };
                found.get_or_insert_with(|| place(call.func.span()));
            }
            for call in calls.methods {
                match call.method.to_string().as_str() {
                    "step" if call.args.len() == 3 => {
                        places.step.get_or_insert_with(|| place(call.method.span()));
                    }
                    "backward" => {
                        gradients.get_or_insert_with(|| place(call.method.span()));
                    }
                    _ => {}
                }
            }
        }
        places.step = places.step.or(gradients);
        places
    }
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

    /// Returns true for a byte of the function.
    pub(super) fn has(&self, file: &str, at: usize) -> bool {
        let braces = self.block.brace_token.span;
        file == self.source.name && (braces.open().byte_range().start..braces.close().byte_range().end).contains(&at)
    }

    fn method(&self, name: &'static str) -> Option<&'a ExprMethodCall> {
        Calls::of_block(self.block).methods.into_iter().find(|call| call.method == name)
    }

    /// Adds a session to the function, and its strategy to the loop; returns edits left to the user.
    pub(super) fn edit(&self, candidate: &Candidate<'_>, krate: &str, patch: &mut Patch<'a>) -> Vec<String> {
        let mut left = Vec::new();
        let session = self.config(candidate).filter(|_| candidate.is_clone());
        let begin = session.as_ref().map(|(_, at, _)| *at);
        match session {
            Some((name, at, indent)) => {
                let call = format!("let session = {krate}::start({name}.clone()){};", self.or());
                let reason = "the session, before anything is created on the device";
                patch.edit(self.source, at..at, format!("\n{indent}{call}"), reason);
            }
            None => left.push(format!(
                "{}:{}, in `{}`, before anything is created on the device: `let session = {krate}::start(…);` with the config",
                self.source.name,
                self.line(),
                self.signature.ident
            )),
        }
        if let Some(line) = self.custom_strategy() {
            left.push(format!(
                "{}:{line}: this strategy has its own steps, and stays: where it takes them, `session.trainer(model, optimizer)?`, \
                 whose `step` takes all samples of a step",
                self.source.name
            ));
        } else {
            self.add_strategy(patch);
            self.remove_accumulation(patch);
        }
        let is_there = edit_device(self.source, &self.block.stmts, krate, patch);
        if !begin.is_some_and(|begin| self.edit_autodiff(begin, patch)) && !is_there {
            left.push(format!(
                "{}:{}, in `{}`: create the model on `session.device()`, which has the planned activation checkpointing",
                self.source.name,
                self.line(),
                self.signature.ident
            ));
        }
        left
    }

    /// Replaces the only `device.autodiff()` of the function by the session's device; returns false without one behind `begin`.
    fn edit_autodiff(&self, begin: usize, patch: &mut Patch<'a>) -> bool {
        let mut calls = Calls::of_block(self.block).methods.into_iter();
        let mut call = || calls.find(|call| call.method == "autodiff" && call.args.is_empty());
        let (Some(only), None) = (call(), call()) else { return false };
        let range = only.span().byte_range();
        if !is_device(&only.receiver) || range.start < begin {
            return false;
        }
        let what = "the session's device, with the planned activation checkpointing";
        patch.edit(self.source, range, "session.device()", what);
        true
    }

    fn remove_accumulation(&self, patch: &mut Patch<'a>) {
        let Some(call) = self.method(ACCUMULATION) else { return };
        patch.note(self.source, call.method.span().byte_range().start, "the session's steps accumulate as planned, and average where Burn adds up: SGD needs a learning rate times the accumulation");
        patch.replace(self.source, call_behind(&self.source.text, call), "");
    }

    /// Line of a strategy that the program implements.
    fn custom_strategy(&self) -> Option<usize> {
        let call = self.method(STRATEGY)?;
        let Expr::Call(made) = call.args.first()? else { return None };
        path(&made.func).filter(|[_, variant]| variant == "Custom").map(|_| call.method.span().start().line)
    }

    fn add_strategy(&self, patch: &mut Patch<'a>) {
        let ours = format!("session.strategy(){}", self.or());
        if let Some(call) = self.method(STRATEGY) {
            let range = inside(&call.paren_token.span);
            let old = self.source.text[range.clone()].split_whitespace().collect::<Vec<_>>().join(" ");
            let reason = format!("the loop uses the session's steps in place of `{old}`");
            return patch.edit(self.source, range, ours, reason);
        }
        let end = self.call.paren_token.span.close().byte_range().end;
        let rest = &self.source.text[end..];
        // In the style of the calls that follow.
        let space = Some(indent(rest)).filter(|space| rest[space.len()..].starts_with('.')).unwrap_or_default();
        let added = format!("{space}.{STRATEGY}({ours})");
        patch.edit(self.source, end..end, added, "the loop uses the session's steps");
    }

    /// Error handling: return, or a panic with the message.
    fn or(&self) -> &'static str {
        error_handling(&self.signature.output, &self.source.file)
    }

    /// Variable of the config, the offset behind its definition, and the indentation there.
    fn config(&self, candidate: &Candidate<'_>) -> Option<(String, usize, String)> {
        let of = candidate.item.ident.to_string();
        let text = &self.source.text;
        let indent = |at: usize| indent(&text[line_start(text, at)..at]).to_owned();
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
        self.block.stmts.iter().enumerate().find_map(|(position, statement)| {
            let Stmt::Local(local) = statement else { return None };
            let (pattern, ty) = match &local.pat {
                Pat::Type(typed) => (&*typed.pat, last(&typed.ty)),
                pattern => (pattern, None),
            };
            let Pat::Ident(name) = pattern else { return None };
            let made = local.init.as_ref().is_some_and(|init| makes(&init.expr, &of));
            // Behind the statements that change the config.
            let changes =
                |it: &&Stmt| matches!(it, Stmt::Expr(Expr::Assign(set), _) if is_field_of(&set.left, &name.ident));
            let last = self.block.stmts[position + 1..].iter().take_while(changes).last().unwrap_or(statement);
            let (range, end) = (statement.span().byte_range(), last.span().byte_range().end);
            (made || ty.as_ref() == Some(&of)).then(|| (name.ident.to_string(), end, indent(range.start)))
        })
    }
}

fn is_field_of(value: &Expr, variable: &syn::Ident) -> bool {
    matches!(value, Expr::Field(field) if matches!(&*field.base, Expr::Path(path) if path.path.is_ident(variable)))
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
    /// Adds the first call that creates a loop.
    fn look(&mut self, signature: &'a Signature, block: &'a Block) {
        let is_loop = |call: &&ExprCall| {
            path(&call.func).is_some_and(|[of, function]| function == "new" && LOOPS.contains(&&*of))
        };
        let call = Calls::of_block(block).functions.into_iter().find(is_loop);
        self.found.extend(call.map(|call| TrainingLoop { source: self.source, signature, block, call }));
    }
}

impl<'a> Visitor<'a> for Functions<'a> {
    fn visit(&mut self, node: Node<'a>) {
        match node {
            Node::Item(Item::Fn(function)) => self.look(&function.sig, &function.block),
            Node::ImplItem(ImplItem::Fn(function)) => self.look(&function.sig, &function.block),
            other => other.walk(self),
        }
    }
}

/// Replaces the first device in a function by the session's; returns false without one. The type stays, so that its import
/// is used.
pub(super) fn edit_device<'a>(source: &'a Source, block: &'a [Stmt], krate: &str, patch: &mut Patch<'a>) -> bool {
    let Some(DeviceVariable { local, value, ty }) = block.iter().find_map(device) else { return false };
    let ours = format!("{krate}::device()");
    let end = value.span().byte_range().end;
    let (start, ours) = match &local.pat {
        Pat::Ident(name) => (name.span().byte_range().end, format!(": {ty} = {ours}")),
        _ => (value.span().byte_range().start, ours),
    };
    patch.edit(source, start..end, ours, "the session's device: a GPU where there is one, else the CPU");
    true
}

/// Returns true for a device by its name: `device`, `train_device.clone()`, `strategy.main_device()`, `Device::default()`.
fn is_device(value: &Expr) -> bool {
    let is_named = |name: &syn::Ident| name.to_string().ends_with("device");
    match value {
        Expr::Path(path) => path.path.get_ident().is_some_and(is_named),
        Expr::MethodCall(call) if call.method == "clone" => is_device(&call.receiver),
        Expr::MethodCall(call) => {
            ["device", "main_device"].iter().any(|name| call.method == name) && call.args.is_empty()
        }
        Expr::Call(call) => path(&call.func).is_some_and(|[ty, _]| ty == "Device"),
        _ => false,
    }
}

struct DeviceVariable<'a> {
    local: &'a Local,
    value: &'a Expr,
    /// Type as the program writes it.
    ty: String,
}

fn device(statement: &Stmt) -> Option<DeviceVariable<'_>> {
    let Stmt::Local(local) = statement else { return None };
    let value = &*local.init.as_ref().filter(|_| local.attrs.is_empty())?.expr;
    let Expr::Call(call) = value else { return None };
    let Expr::Path(function) = &*call.func else { return None };
    path(&call.func).filter(|[ty, _]| ty == "Device")?;
    let names: Vec<_> = function.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let (_, ty) = names.split_last()?;
    let root = if function.path.leading_colon.is_some() { "::" } else { "" };
    Some(DeviceVariable { local, value, ty: format!("{root}{}", ty.join("::")) })
}

/// Ends the program with the message of an error.
const PANIC: &str = ".unwrap_or_else(|error| panic!(\"{error}\"))";
/// Crates whose `Result` and errors are made from any error.
const ANY_ERROR: [&str; 3] = ["anyhow", "eyre", "color_eyre"];

/// Handling of an error of gpu-tuned in a function with this output: `?` where that compiles.
fn error_handling(output: &ReturnType, file: &File) -> &'static str {
    let ReturnType::Type(_, ty) = output else { return PANIC };
    let Type::Path(path) = &**ty else { return PANIC };
    let Some(segment) = path.path.segments.last().filter(|segment| segment.ident == "Result") else { return PANIC };
    let error = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter().nth(1),
        _ => None,
    };
    match error {
        None if comes_from(&path.path, file, "Result") => "?",
        Some(GenericArgument::Type(error)) => handling_of(error, file),
        _ => PANIC,
    }
}

fn handling_of(error: &Type, file: &File) -> &'static str {
    let Type::Path(path) = error else { return PANIC };
    let name = last(error).unwrap_or_default();
    match name.as_str() {
        "String" => ".map_err(|error| error.to_string())?",
        "Box" => match &path.path.segments[0].arguments {
            PathArguments::AngleBracketed(arguments) if is_dyn_error(arguments.args.first()) => "?",
            _ => PANIC,
        },
        _ if comes_from(&path.path, file, &name) => "?",
        _ => PANIC,
    }
}

fn is_dyn_error(argument: Option<&GenericArgument>) -> bool {
    let Some(GenericArgument::Type(Type::TraitObject(object))) = argument else { return false };
    object.bounds.iter().any(|bound| match bound {
        syn::TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Error"),
        _ => false,
    })
}

/// Returns true if a path is of a crate with errors made from any error, by itself or by an import of the name.
fn comes_from(path: &syn::Path, file: &File, name: &str) -> bool {
    let is_any = |ident: &syn::Ident| ANY_ERROR.iter().any(|krate| ident == krate);
    if path.segments.len() > 1 {
        return path.segments.first().is_some_and(|first| is_any(&first.ident));
    }
    file.items.iter().any(|item| match item {
        Item::Use(item) => match &item.tree {
            UseTree::Path(path) => is_any(&path.ident) && imports(&path.tree, name),
            _ => false,
        },
        _ => false,
    })
}

fn imports(tree: &UseTree, name: &str) -> bool {
    match tree {
        UseTree::Path(path) => imports(&path.tree, name),
        UseTree::Name(imported) => imported.ident == name,
        UseTree::Rename(renamed) => renamed.rename == name,
        UseTree::Glob(_) => true,
        UseTree::Group(group) => group.items.iter().any(|tree| imports(tree, name)),
    }
}

const DERIVE: &str = "MicroBatch";

/// Derives `MicroBatch` for the input of the first training step, else for the only output of batchers, if that is a struct of
/// the package. Returns the struct's name.
pub(super) fn derive_micro_batch<'a>(sources: &[&'a Source], krate: &str, patch: &mut Patch<'a>) -> Option<String> {
    let own = || sources.iter().copied().filter(|source| source.is_own());
    let step = own().flat_map(|source| types(&source.file.items, input_of_step)).next();
    let name = step.or_else(|| {
        let mut outputs: Vec<_> = own().flat_map(|source| types(&source.file.items, output_of_batcher)).collect();
        outputs.dedup();
        if let [only] = &outputs[..] { Some(only.clone()) } else { None }
    })?;
    let is_it = |item: &&ItemStruct| item.ident == name;
    let found = own().find_map(|source| Some((source, structs(&source.file.items).into_iter().find(is_it)?)));
    let (source, item) = found.filter(|(_, item)| !derives(&item.attrs, DERIVE) && is_divisible(item))?;
    let implements = |of| sources.iter().any(|source| implementation(of, &name, &source.file.items).is_some());
    if implements(DERIVE) {
        return None;
    }
    let ours = format!("{krate}::{DERIVE}");
    let what = format!("`{name}` is divided into micro-batches");
    let list = item.attrs.iter().find_map(|attribute| {
        if attribute.path().is_ident("derive") { Some((attribute, list(attribute)?)) } else { None }
    });
    if let Some((attribute, end)) = list.filter(|_| derives(&item.attrs, "Clone")) {
        patch.note(source, range(attribute).start, what);
        let comma = if source.text[..end].trim_end().ends_with(',') { " " } else { ", " };
        patch.replace(source, end..end, format!("{comma}{ours}"));
        return Some(name);
    }
    let derived = if derives(&item.attrs, "Clone") || implements("Clone") { ours } else { format!("Clone, {ours}") };
    let start = start(&item.attrs, &item.vis, item.struct_token.span);
    patch.note(source, start, what);
    patch.above(source, start, &format!("#[derive({derived})]"));
    Some(name)
}

/// Advice on the batch of a path dependency's batcher, which code of the package names.
pub(super) fn batch_of_dependency(sources: &[&Source], krate: &str) -> Option<String> {
    let batches = |source: &Source| {
        let output = |item: &ItemImpl| Some((last(&item.self_ty)?, output_of_batcher(item)?));
        let items = all_items(&source.file.items).into_iter();
        items.filter_map(|item| if let Item::Impl(item) = item { output(item) } else { None }).collect::<Vec<_>>()
    };
    let mentions = |source: &Source, wanted: &str| {
        source.tokens.iter().any(|token| matches!(token, TokenTree::Ident(name) if *name == wanted))
    };
    let (own, others): (Vec<_>, Vec<_>) = sources.iter().copied().partition(|source| source.is_own());
    if own.iter().any(|source| !batches(source).is_empty()) {
        return None;
    }
    let all = others.iter().flat_map(|source| batches(source));
    let name = all.into_iter().find(|(batcher, _)| own.iter().any(|source| mentions(source, batcher)))?.1;
    let is_it = |item: &&ItemStruct| item.ident == name;
    let (source, item) =
        others.iter().find_map(|source| Some((source, structs(&source.file.items).into_iter().find(is_it)?)))?;
    let implements = sources.iter().any(|source| implementation(DERIVE, &name, &source.file.items).is_some());
    let line = item.ident.span().start().line;
    (!implements && !derives(&item.attrs, DERIVE)).then(|| {
        format!(
            "{}:{line}: `{name}` is of a path dependency: give the step its tensors as a tuple, or derive \
             `{krate}::{DERIVE}` there",
            source.name
        )
    })
}

/// Returns true if all fields implement `MicroBatch`.
fn is_divisible(item: &ItemStruct) -> bool {
    let is_known = |ty: &syn::Type| last(ty).is_some_and(|name| ["Tensor", "Vec"].contains(&name.as_str()));
    item.generics.params.is_empty() && item.fields.iter().all(|field| is_known(&field.ty))
}

/// Types that implementations among items have.
fn types(items: &[Item], of: impl Fn(&ItemImpl) -> Option<String>) -> Vec<String> {
    let of_item = |item: &Item| if let Item::Impl(item) = item { of(item) } else { None };
    all_items(items).into_iter().filter_map(of_item).collect()
}

fn input_of_step(item: &ItemImpl) -> Option<String> {
    let of = item.trait_.as_ref()?.0.segments.last()?;
    item.items.iter().filter(|_| of.ident == "TrainStep").find_map(|member| match member {
        ImplItem::Type(ty) if ty.ident == "Input" => last(&ty.ty),
        _ => None,
    })
}

fn output_of_batcher(item: &ItemImpl) -> Option<String> {
    let of = item.trait_.as_ref()?.0.segments.last().filter(|last| last.ident == "Batcher")?;
    let PathArguments::AngleBracketed(arguments) = &of.arguments else { return None };
    match arguments.args.last()? {
        GenericArgument::Type(ty) => last(ty),
        _ => None,
    }
}

/// End of the text in an attribute's parentheses.
fn list(attribute: &Attribute) -> Option<usize> {
    let Meta::List(list) = &attribute.meta else { return None };
    (!list.tokens.is_empty()).then(|| list.delimiter.span().close().byte_range().start)
}
