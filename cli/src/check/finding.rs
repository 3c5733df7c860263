//! Findings of a check.

use anstyle::Style;
use gpu_tuned_core::source::FileError;
use serde::Serialize;

use crate::output::{BAD, Code, FAINT, GOOD, MARKED};

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(rename = "kind")]
    pub level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub message: String,
    /// Command or change that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// A file is wrong, or a goal in it.
    Mistake,
    /// A measurement is of another model or release.
    Stale,
    /// A workload does not fit a GPU.
    Misfit,
    /// A remark without consequences.
    Note,
    /// No problem.
    Ok,
}

impl Finding {
    pub(super) fn new(level: Level, message: impl Into<String>) -> Self {
        Self { level, workload: None, target: None, message: message.into(), fix: None }
    }

    pub(super) fn of(self, workload: &str) -> Self {
        Self { workload: Some(workload.to_owned()), ..self }
    }

    pub(super) fn on(self, target: &str) -> Self {
        Self { target: Some(target.to_owned()), ..self }
    }

    pub(super) fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// The finding without its level.
    pub(super) fn describe(&self) -> String {
        let of = match (&self.workload, &self.target) {
            (Some(workload), Some(target)) => format!("{workload} on {target}: "),
            (Some(name), None) | (None, Some(name)) => format!("{name}: "),
            (None, None) => String::new(),
        };
        let fix = self.fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        format!("{of}{}{fix}", self.message)
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
            Self::Misfit => "does not fit",
            Self::Note => "note",
            Self::Ok => "ok",
        }
    }

    pub(super) const fn style(self) -> Style {
        match self {
            Self::Mistake | Self::Misfit => BAD,
            Self::Stale => MARKED,
            Self::Note => FAINT,
            Self::Ok => GOOD,
        }
    }

    pub(super) const fn code(self) -> Code {
        match self {
            Self::Mistake => Code::Input,
            Self::Stale | Self::Misfit => Code::No,
            Self::Note | Self::Ok => Code::Ok,
        }
    }
}
