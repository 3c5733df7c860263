//! What is told of a config and its plans.

mod expectation;
mod json;
mod several;
mod single;
mod words;

use super::advice::TooSmall;
use super::args::OptimizeArgs;
use super::changes::Changes;
use super::config::Config;
use super::host::Host;
use super::planned::Planned;
use super::source::{Read, Training};
use super::step::Step;
use crate::init::change::Change as FileChange;

/// One target.
pub(super) struct OnTarget {
    pub target: String,
    pub host: Host,
    pub planned: Planned,
    /// What changes in the config; nothing where it does not fit.
    pub changes: Option<Changes>,
    /// The copy.
    pub file: Option<FileChange>,
    pub too_small: Option<TooSmall>,
}

/// What becomes of the file of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It has this text already.
    Unchanged,
    /// It is new, and has the text of the config.
    Copied,
    /// It gets another text.
    Changed,
}

/// All that is told.
pub(super) struct Report<'a> {
    pub args: &'a OptimizeArgs,
    pub file: &'a Read,
    pub config: &'a Config<'a>,
    pub step: Step,
    pub training: &'a Training,
    pub targets: &'a [OnTarget],
}

impl Report<'_> {
    fn fate(&self, file: &FileChange) -> Fate {
        if !file.changes() {
            Fate::Unchanged
        } else if file.after == self.file.marked(&self.file.text) {
            Fate::Copied
        } else {
            Fate::Changed
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let tables = match self.targets {
            [one] => single::table(self, one),
            several => several::table(self, several),
        };
        format!("{}{}\n{}{}", words::heading(self), words::dimensions(self), tables, words::remarks(self))
    }
}
