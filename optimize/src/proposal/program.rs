//! The binary or example that trains.

use std::path::Path;

use cargo_metadata::{Package, Target, TargetKind};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprPath, Item, Local, Pat, Stmt};

use super::code::path;
use super::sources::{self, Patch, Source};
use super::training_loop::TrainingLoop;

pub(super) struct Program {
    pub source: Source,
    /// Cargo's option such as `--bin train`; `None` for the only binary.
    pub flag: Option<String>,
    /// Feature with Burn's CPU backend: `flex = ["burn/flex"]`.
    pub cpu: Option<String>,
}

/// The first program with the loop or a call of its function; binaries first.
pub(super) fn find(package: &Package, workspace: &Path, training: &TrainingLoop<'_>) -> Option<Program> {
    let targets = &package.targets;
    let of = |kind: TargetKind| targets.iter().filter(move |target| target.kind.contains(&kind));
    let calls = |target: &&Target| {
        let source = sources::one(Path::new(target.src_path.as_str()), workspace)?;
        let is_it = source.name == training.source.name || calls(&source, training);
        is_it.then_some((target.name.clone(), source))
    };
    let is_alone = of(TargetKind::Bin).count() == 1;
    let found = of(TargetKind::Bin).find_map(|target| calls(&target)).map(|(name, source)| {
        let is_default = is_alone || package.default_run.as_ref() == Some(&name);
        ((!is_default).then(|| format!("--bin {name}")), source)
    });
    let example = || of(TargetKind::Example).find_map(|target| calls(&target));
    let found = found.or_else(|| example().map(|(name, source)| (Some(format!("--example {name}")), source)));
    let (flag, source) = found?;
    Some(Program { cpu: cpu(package, &source), flag, source })
}

/// Returns true if a source calls the loop's function, by its name or through its module.
fn calls(source: &Source, training: &TrainingLoop<'_>) -> bool {
    let mut calls = Calls { function: training.name(), module: module(&training.source.name), found: false };
    calls.visit_file(&source.file);
    calls.found
}

/// Module name of a file; `None` for the root of a crate.
fn module(file: &str) -> Option<&str> {
    let mut parts = file.trim_end_matches(".rs").rsplit('/');
    match parts.next()? {
        "lib" | "main" => None,
        "mod" => parts.next(),
        name => Some(name),
    }
}

struct Calls<'m> {
    function: String,
    module: Option<&'m str>,
    found: bool,
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        let mut names = path.path.segments.iter().rev().map(|segment| &segment.ident);
        let is_called = names.next().is_some_and(|name| *name == self.function);
        self.found |= is_called && names.next().is_none_or(|of| self.module.is_none_or(|module| of == module));
        visit::visit_expr_path(self, path);
    }
}

/// A feature with Burn's CPU backend that the program checks for, and that is off by default.
fn cpu(package: &Package, source: &Source) -> Option<String> {
    let features = &package.features;
    let is_on = |name: &String| features.get("default").is_some_and(|on| on.contains(name));
    let asks = |name: &String| source.text.contains(&format!("feature = \"{name}\""));
    let has_cpu = |enabled: &Vec<String>| enabled.iter().any(|it| it == "burn/flex" || it == "burn/ndarray");
    let mut cpus = features.iter().filter(|(name, enabled)| has_cpu(enabled) && asks(name) && !is_on(name));
    cpus.next().map(|(name, _)| name.clone())
}

/// Replaces the device in `main` by the session's. The type stays, so that its import is used.
pub(super) fn edit<'a>(source: &'a Source, krate: &str, patch: &mut Patch<'a>) {
    let Some(DeviceVariable { local, value, ty }) = main(&source.file.items).into_iter().flatten().find_map(device)
    else {
        return;
    };
    let ours = format!("{}::device()", krate.replace('-', "_"));
    let end = value.span().byte_range().end;
    let (start, ours) = match &local.pat {
        Pat::Ident(name) => (name.span().byte_range().end, format!(": {ty} = {ours}")),
        _ => (value.span().byte_range().start, ours),
    };
    patch.note(source, start, "the session's device: a GPU where there is one, else the CPU");
    patch.replace(source, start..end, ours);
}

fn main(items: &[Item]) -> Option<&[Stmt]> {
    items.iter().find_map(|item| match item {
        Item::Fn(function) if function.sig.ident == "main" => Some(&function.block.stmts[..]),
        _ => None,
    })
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
