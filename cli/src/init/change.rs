//! The files that are changed: as they were and as they shall be.

use std::path::{Path, PathBuf};

use similar::TextDiff;

use crate::table::{BAD, BOLD, FAINT, GOOD, PLAIN, styled};

/// One file. Without a text before, it is new.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub path: PathBuf,
    /// The file as people name it: from the folder of the workspace on, with slashes.
    pub name: String,
    pub before: Option<String>,
    pub after: String,
}

impl Change {
    /// Whether there is anything to write.
    pub(crate) fn changes(&self) -> bool {
        self.before.as_deref() != Some(&self.after)
    }

    /// The change as `diff -u` has it.
    pub(crate) fn diff(&self) -> String {
        let (old, new) = (self.before.as_deref().unwrap_or_default(), &self.after);
        let from = if self.before.is_some() { format!("a/{}", self.name) } else { "/dev/null".to_owned() };
        unified(old, new, &from, &format!("b/{}", self.name))
    }
}

/// Two texts as `diff -u` has them; of line endings only the feed is shown.
pub(super) fn unified(old: &str, new: &str, from: &str, to: &str) -> String {
    let (old, new) = (old.replace('\r', ""), new.replace('\r', ""));
    TextDiff::from_lines(&old, &new).unified_diff().context_radius(3).header(from, to).to_string()
}

/// Lines of the new text that are not in the old one.
pub(super) fn lines(old: &str, new: &str) -> usize {
    let changes = TextDiff::from_lines(old, new);
    changes.iter_all_changes().filter(|change| change.tag() == similar::ChangeTag::Insert).count()
}

/// A diff with the colours that it has elsewhere.
pub(crate) fn coloured(diff: &str) -> String {
    let style = |line: &str| match line.as_bytes() {
        [b'-', b'-', b'-', b' ', ..] | [b'+', b'+', b'+', b' ', ..] => BOLD,
        [b'+', ..] => GOOD,
        [b'-', ..] => BAD,
        [b'@', ..] => FAINT,
        _ => PLAIN,
    };
    diff.lines().flat_map(|line| [styled(style(line), line), "\n".to_owned()]).collect()
}

/// A file's name for people.
pub(super) fn name(path: &Path, workspace: &Path) -> String {
    let path = path.strip_prefix(workspace).unwrap_or(path);
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}
