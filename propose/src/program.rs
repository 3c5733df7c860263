//! The binary or example that trains.

use cargo_metadata::{Package, TargetKind};
use syn::visit::{self, Visit};
use syn::{ExprPath, Item};

use crate::device;
use crate::sources::{self, Patch, Source};
use crate::training_loop::TrainingLoop;

/// The programs of a package, and the one that trains.
#[derive(Debug, Default)]
pub(super) struct Programs<'p> {
    /// Cargo's options of all programs, such as `--bin train`.
    pub flags: Vec<String>,
    pub training: Option<Program<'p>>,
    /// Cargo's options of the programs with a training loop, if there are several.
    pub rivals: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'p> {
    package: &'p Package,
    /// Position of the target.
    pub target: usize,
}

impl<'p> Programs<'p> {
    /// Finds the program with the loop, or with a call of its function. Without a loop, the program with the config; the
    /// package's only or default program where the config is in the library.
    pub(super) fn find(
        package: &'p Package,
        sources: &[Source],
        training: Option<&TrainingLoop<'_>>,
        config: Option<&Source>,
    ) -> Self {
        let of = |kind: TargetKind| {
            let targets = package.targets.iter().enumerate();
            let of_kind = targets.filter(move |(_, target)| target.kind.contains(&kind));
            of_kind.map(|(target, _)| Program { package, target })
        };
        let all: Vec<Program<'p>> = of(TargetKind::Bin).chain(of(TargetKind::Example)).collect();
        let having = |source: &Source| all.iter().copied().filter(|program| source.is_of(program.target)).collect();
        let mut found: Vec<Program<'p>> = match training {
            Some(training) => {
                let own: Vec<_> = having(training.source);
                let calling = || all.iter().copied().filter(|program| program.calls(sources, training)).collect();
                if own.is_empty() { calling() } else { own }
            }
            None => config.map(having).unwrap_or_default(),
        };
        if found.is_empty() && training.is_none() {
            found = all.iter().copied().filter(|program| all.len() == 1 || program.is_default()).collect();
        }
        let default = found.iter().copied().find(Program::is_default);
        let training = default.or_else(|| found.first().copied());
        let rivals =
            if found.len() > 1 && default.is_none() { found.iter().map(Program::flag).collect() } else { Vec::new() };
        Self { flags: all.iter().map(Program::flag).collect(), training, rivals }
    }
}

impl Program<'_> {
    fn name(&self) -> &str {
        &self.package.targets[self.target].name
    }

    fn is_example(&self) -> bool {
        self.package.targets[self.target].kind.contains(&TargetKind::Example)
    }

    /// Returns true for the binary that `cargo run` takes.
    fn is_default(&self) -> bool {
        let is_bin = |target: &&cargo_metadata::Target| target.kind.contains(&TargetKind::Bin);
        let is_alone = self.package.targets.iter().filter(is_bin).count() == 1;
        !self.is_example() && (is_alone || self.package.default_run.as_deref() == Some(self.name()))
    }

    pub(super) fn flag(&self) -> String {
        format!("--{} {}", if self.is_example() { "example" } else { "bin" }, self.name())
    }

    /// Cargo's option for the program; `None` if `cargo run` takes it.
    pub(super) fn needed_flag(&self) -> Option<String> {
        (!self.is_default()).then(|| self.flag())
    }

    /// Returns true for a source of the program that is not also in the library.
    pub(super) fn owns(&self, source: &Source) -> bool {
        source.is_of(self.target) && !source.in_library
    }

    /// Returns true for the program's sources, the library's, and those of other packages.
    pub(super) fn reaches(&self, source: &Source) -> bool {
        source.is_of(self.target) || source.in_library
    }

    fn root<'s>(&self, sources: &'s [Source]) -> Option<&'s Source> {
        sources::at(sources, self.package.targets[self.target].src_path.as_std_path())
    }

    /// Returns true if the program calls the loop's function, by its name or through its module.
    fn calls(&self, sources: &[Source], training: &TrainingLoop<'_>) -> bool {
        let mut calls = Calls { function: training.name(), module: module(&training.source.name), found: false };
        sources.iter().filter(|source| self.owns(source)).for_each(|source| calls.visit_file(&source.file));
        calls.found
    }

    /// Feature with Burn's CPU backend that the program checks for, and that is off by default: `flex = ["burn/flex"]`.
    pub(super) fn cpu(&self, sources: &[Source]) -> Option<String> {
        let features = &self.package.features;
        let is_on = |name: &String| features.get("default").is_some_and(|on| on.contains(name));
        let text = |name: &String| format!("feature = \"{name}\"");
        let asks = |name: &String| sources.iter().any(|source| self.owns(source) && source.text.contains(&text(name)));
        let has_cpu = |enabled: &Vec<String>| enabled.iter().any(|it| it == "burn/flex" || it == "burn/ndarray");
        let mut cpus = features.iter().filter(|(name, enabled)| has_cpu(enabled) && !is_on(name) && asks(name));
        cpus.next().map(|(name, _)| name.clone())
    }

    /// Replaces the device in `main` by the session's.
    pub(super) fn edit<'a>(&self, sources: &'a [Source], krate: &str, patch: &mut Patch<'a>) {
        let Some(source) = self.root(sources) else { return };
        let main = source.file.items.iter().find_map(|item| match item {
            Item::Fn(function) if function.sig.ident == "main" => Some(&function.block.stmts[..]),
            _ => None,
        });
        device::edit(source, main.unwrap_or_default(), &krate.replace('-', "_"), patch);
    }
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
