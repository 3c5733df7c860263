//! What a check finds.

use anstyle::Style;
use gpu_tuned_core::source::FileError;
use serde::Serialize;

use crate::Code;
use crate::table::{BAD, FAINT, GOOD, MARKED};

/// One thing that a check finds.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub message: String,
    /// The command or the change that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// A file, or what it asks for, is wrong.
    Mistake,
    /// What was measured is no longer what would be built.
    Stale,
    /// A target cannot hold a workload.
    Misfit,
    /// Something to know, which changes nothing.
    Note,
    /// As it should be.
    Fine,
}

impl Finding {
    pub(super) fn new(level: Level, message: impl Into<String>) -> Self {
        Self { level, workload: None, target: None, message: message.into(), mend: None }
    }

    pub(super) fn of(self, workload: &str) -> Self {
        Self { workload: Some(workload.to_owned()), ..self }
    }

    pub(super) fn on(self, target: &str) -> Self {
        Self { target: Some(target.to_owned()), ..self }
    }

    pub(super) fn mended_by(self, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..self }
    }

    /// What follows the level on the finding's line.
    pub(super) fn in_words(&self) -> String {
        let of = match (&self.workload, &self.target) {
            (Some(workload), Some(target)) => format!("{workload} on {target}: "),
            (Some(name), None) | (None, Some(name)) => format!("{name}: "),
            (None, None) => String::new(),
        };
        let mend = self.mend.as_ref().map_or_else(String::new, |mend| format!("; {mend}"));
        format!("{of}{}{mend}", self.message)
    }
}

impl From<&FileError> for Finding {
    fn from(mistake: &FileError) -> Self {
        Self::new(Level::Mistake, mistake.to_string())
    }
}

impl Level {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mistake => "mistake",
            Self::Stale => "stale",
            Self::Misfit => "misfit",
            Self::Note => "note",
            Self::Fine => "fine",
        }
    }

    pub(super) const fn style(self) -> Style {
        match self {
            Self::Mistake | Self::Misfit => BAD,
            Self::Stale => MARKED,
            Self::Note => FAINT,
            Self::Fine => GOOD,
        }
    }

    pub(super) const fn code(self) -> Code {
        match self {
            Self::Mistake => Code::Input,
            Self::Stale | Self::Misfit => Code::No,
            Self::Note | Self::Fine => Code::Fine,
        }
    }
}
