//! Changes of files, and their diffs.

use std::path::PathBuf;

use gpu_tuned_optimize::diff::unified;

use crate::output::{BAD, BOLD, FAINT, GOOD, PLAIN, styled};

/// A changed file. Without a text before, the file is new.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub path: PathBuf,
    /// Path from the folder of the workspace on, with slashes.
    pub name: String,
    pub before: Option<String>,
    pub after: String,
}

impl Change {
    pub(crate) fn is_needed(&self) -> bool {
        self.before.as_deref() != Some(&self.after)
    }

    pub(crate) fn diff(&self) -> String {
        let (old, new) = (self.before.as_deref().unwrap_or_default(), &self.after);
        let from = if self.before.is_some() { format!("a/{}", self.name) } else { "/dev/null".to_owned() };
        unified(old, new, &from, &format!("b/{}", self.name))
    }
}

pub(crate) fn colored(diff: &str) -> String {
    let style = |line: &str| match line.as_bytes() {
        [b'-', b'-', b'-', b' ', ..] | [b'+', b'+', b'+', b' ', ..] => BOLD,
        [b'+', ..] => GOOD,
        [b'-', ..] => BAD,
        [b'@', ..] => FAINT,
        _ => PLAIN,
    };
    diff.lines().flat_map(|line| [styled(style(line), line), "\n".to_owned()]).collect()
}
