//! Diffs of texts, and names of files in them.

use std::path::Path;

use gpu_tuned_project::workspace::relative;
use similar::TextDiff;

/// Diff of two texts in the format of `diff -u`, without carriage returns.
pub fn unified(old: &str, new: &str, from: &str, to: &str) -> String {
    let (old, new) = (old.replace('\r', ""), new.replace('\r', ""));
    TextDiff::from_lines(&old, &new).unified_diff().context_radius(3).header(from, to).to_string()
}

/// Number of lines in the new text that the old one lacks.
pub fn added_lines(old: &str, new: &str) -> usize {
    let changes = TextDiff::from_lines(old, new);
    changes.iter_all_changes().filter(|change| change.tag() == similar::ChangeTag::Insert).count()
}

/// Path of a file from the workspace on, with slashes.
pub fn display_name(path: &Path, workspace: &Path) -> String {
    // A path dependency may be beside the workspace.
    let path = if path.is_absolute() { relative(path, workspace) } else { path.to_owned() };
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}
