//! The annotated structs of the package: the same input of a plan that the build has.

use std::path::Path;
use std::sync::Arc;

use cargo_metadata::{Package, Target, TargetKind};
use gpu_tuned_attribute::sources::{self, Annotated, Sources};
use gpu_tuned_attribute::{PlanInput, Table};
use gpu_tuned_core::Goal;
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::source::FileError;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_project::resolved::{Resolved, Selected};

pub(crate) struct Struct {
    pub name: String,
    /// The struct's path, from its target on.
    pub path: String,
    /// True for a struct of a test or a bench.
    pub is_test: bool,
    /// The name of the attribute's workload, if the attribute names one.
    pub workload: Option<String>,
    pub spec: WorkloadSpec,
    pub goal: Goal,
    /// The target in the attribute of a package without a build script.
    pub target: Option<ProfileId>,
}

pub(crate) struct BrokenStruct {
    pub name: String,
    pub path: String,
    pub is_test: bool,
    /// Each mistake with the text of its file.
    pub mistakes: Vec<(FileError, Arc<str>)>,
}

#[derive(Default)]
pub(crate) struct Structs {
    pub read: Vec<Struct>,
    pub broken: Vec<BrokenStruct>,
    /// One sentence for each part of the sources that was not read.
    pub unread: Vec<String>,
}

/// Returns the package's build script. A package with one has a resolved table.
pub(crate) fn build_script(package: &Package) -> Option<&Path> {
    let script = package.targets.iter().find(|target| target.kind.contains(&TargetKind::CustomBuild))?;
    Some(script.src_path.as_std_path())
}

impl Structs {
    /// Reads the structs of all targets. `resolved` is the table of the package's build script.
    pub(super) fn read(package: &Package, workspace: &Path, resolved: &Resolved) -> Self {
        let mut targets: Vec<_> = package.targets.iter().filter_map(|it| Some((order(it)?, it))).collect();
        targets.sort_by_key(|(order, _)| *order);
        let targets = targets.into_iter().map(|(order, target)| sources::Target {
            name: &target.name,
            root: target.src_path.as_std_path(),
            is_test: order >= TESTS,
        });
        let Sources { structs, unread } = Sources::read(targets);
        let has_script = build_script(package).is_some();
        let mut all = Self::default();
        for unread in unread {
            let line = unread.line.map_or_else(String::new, |line| format!(":{line}"));
            all.unread.push(format!("{}{line}: not read: {}", name(&unread.file, workspace), unread.why));
        }
        for found in structs {
            let table = if has_script { Table::Resolved(Box::new(resolved.clone())) } else { Table::Absent };
            all.add(found, table, workspace);
        }
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.broken.is_empty()
    }

    pub(super) fn targets(&self) -> Vec<ProfileId> {
        let mut targets: Vec<_> = self.read.iter().filter_map(|it| it.target.clone()).collect();
        targets.sort();
        targets.dedup();
        targets
    }

    /// Returns one sentence for each struct and file that is not read.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let broken = self.first_mistakes().map(|(name, mistake)| format!("`{name}` is not planned: {mistake}"));
        broken.chain(self.unread.iter().cloned())
    }

    pub(super) fn unread(&self) -> impl Iterator<Item = &str> {
        self.unread.iter().map(String::as_str)
    }

    /// Returns the first mistake of each struct of the program, with the struct's name.
    pub(super) fn first_mistakes(&self) -> impl Iterator<Item = (&str, &FileError)> {
        let broken = self.broken.iter().filter(|it| !it.is_test);
        broken.filter_map(|it| Some((it.name.as_str(), &it.mistakes.first()?.0)))
    }

    fn add(&mut self, found: Annotated, table: Table, workspace: &Path) {
        match found.plan_input(table, &name(&found.file, workspace)) {
            Ok(input) => self.read.push(Struct::new(found, input)),
            Err(mistakes) => {
                let text: Arc<str> = Arc::from(&*found.text);
                let mistakes = mistakes.into_iter().map(|mistake| (mistake, Arc::clone(&text))).collect();
                let Annotated { name, path, is_test, .. } = found;
                self.broken.push(BrokenStruct { name, path, is_test, mistakes });
            }
        }
    }
}

impl Struct {
    fn new(found: Annotated, input: PlanInput) -> Self {
        let PlanInput { resolved, has_build_script, goal, name: workload, spec, .. } = input;
        let target = match resolved.selected {
            Selected::Targets(ids) if !has_build_script => {
                ids.into_iter().next().filter(|id| id.as_str() != ProfileId::GENERIC)
            }
            _ => None,
        };
        let Annotated { name, path, is_test, .. } = found;
        Self { name, path, is_test, workload, spec, goal, target }
    }
}

/// Returns true for the struct's name, its path, or the end of its path.
pub(super) fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

/// The first order of test targets.
const TESTS: u8 = 3;

/// Returns the order in which targets are read; `None` for the build script.
fn order(target: &Target) -> Option<u8> {
    let is = |kind: &TargetKind| target.kind.contains(kind);
    match () {
        () if is(&TargetKind::CustomBuild) => None,
        () if is(&TargetKind::Bin) => Some(1),
        () if is(&TargetKind::Example) => Some(2),
        () if is(&TargetKind::Test) => Some(TESTS),
        () if is(&TargetKind::Bench) => Some(TESTS + 1),
        () => Some(0),
    }
}

/// Returns the file's name from the workspace on, with slashes.
fn name(file: &Path, workspace: &Path) -> String {
    let file = file.strip_prefix(workspace).unwrap_or(file);
    file.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}
