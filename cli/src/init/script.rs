//! The build script.

use std::path::PathBuf;

use cargo_metadata::TargetKind;
use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_propose::build_script::with_call;
use gpu_tuned_propose::diff::display_name;

use super::manifest::Manifest;
use crate::error::Error;
use crate::files::Change;
use crate::project::Project;

/// Change of the package's build script, if one is needed, or the edit by hand with its reason. `krate` is the crate's name in the package.
pub(super) fn of(project: &Project, manifest: &Manifest, krate: &str) -> Result<Result<Option<Change>, String>, Error> {
    if manifest.forbids_script() {
        return Err(manifest.has_no_script());
    }
    let call = format!("{}::configure().emit();", krate.replace('-', "_"));
    let Some(path) = existing(project) else {
        let path = project.root.join("build.rs");
        let name = display_name(&path, &project.workspace);
        let text = format!("//! Resolves the GPU that the enabled features name.\n\nfn main() {{\n    {call}\n}}\n");
        return Ok(Ok(Some(Change { path, name, before: None, after: manifest.style().apply(&text) })));
    };
    let name = display_name(&path, &project.workspace);
    let before = read_text(&path, LARGEST).map_err(|source| Error::Read { path: path.clone(), source })?;
    Ok(match with_call(&name, &before, &call) {
        Ok(after) => Ok(after.map(|after| Change { path, name, before: Some(before), after })),
        Err(why) => Err(format!("add `{call}` to `main` of {name}: {why}")),
    })
}

fn existing(project: &Project) -> Option<PathBuf> {
    let is_script = |target: &&cargo_metadata::Target| target.kind.contains(&TargetKind::CustomBuild);
    project.package().targets.iter().find(is_script).map(|script| script.src_path.as_std_path().to_owned())
}
