//! Skipped steps: when they are reported, and when training ends.

use std::time::{Duration, Instant};

use gpu_tuned_observe::log::warn_user;

use super::health::LayerHealth;
use super::outcome::{Step, StepError};

/// Skipped steps in a row that end training.
const MAX_IN_A_ROW: u32 = 100;
/// Skipped steps before a report.
const FIRST_REPORT: u32 = 3;
/// Skipped steps before a report while a loss scale adapts: it may halve sixteen times from 65536.
const FIRST_REPORT_WITH_SCALE: u32 = 20;
/// Applied steps in a row after which skipped ones are forgotten. A loss scale grows and fails once in 2000 steps.
const FORGOTTEN_AFTER: u32 = 1000;
/// Shortest interval between two reports.
const INTERVAL: Duration = Duration::from_secs(60);

/// Counts of skipped steps.
#[derive(Debug, Default)]
pub(super) struct Skips {
    /// True while losses are multiplied by a loss scale, which skipped steps adapt.
    pub scales_loss: bool,
    in_a_row: u32,
    /// Since the last report.
    unreported: u32,
    /// Applied steps in a row.
    applied: u32,
    reported: Option<Instant>,
}

impl Skips {
    /// Returns true if the last step was skipped and a report is due.
    pub(super) fn is_due(&self) -> bool {
        let first = if self.scales_loss { FIRST_REPORT_WITH_SCALE } else { FIRST_REPORT };
        let is_quiet = self.reported.is_none_or(|reported| reported.elapsed() >= INTERVAL);
        self.in_a_row > 0 && self.unreported >= first && is_quiet
    }

    /// Warns of the steps skipped since the last report. The first gradient that is not finite is that of `cause`.
    pub(super) fn warn(&mut self, number: u64, step: &Step, cause: Option<&LayerHealth>) {
        self.reported = Some(Instant::now());
        let skipped = std::mem::take(&mut self.unreported);
        let why = match cause {
            _ if step.weight == 0.0 => "all losses have weight 0, so nothing is learned from them".to_owned(),
            Some(LayerHealth { path, nan, infinite, values, .. }) => format!(
                "gradients are not finite, first that of `{path}` ({nan} NaN and {infinite} infinite of {values} values); lower the \
                 learning rate, or look for a division by zero in the loss"
            ),
            None => "the norm of the gradients is not finite; lower the learning rate".to_owned(),
        };
        warn_user(&format!(
            "{skipped} steps were skipped since the last report, and now step {number}, with a loss of {}: {why}; training ends \
             after {MAX_IN_A_ROW} skipped steps in a row",
            step.loss
        ));
    }

    /// Counts a step that has ended.
    ///
    /// # Errors
    ///
    /// [`StepError::NotFinite`] after too many skipped steps in a row.
    pub(super) fn count(&mut self, step: &Step) -> Result<(), StepError> {
        if step.applied {
            self.applied += 1;
            self.in_a_row = 0;
            if self.applied >= FORGOTTEN_AFTER {
                self.unreported = 0;
            }
            return Ok(());
        }
        self.applied = 0;
        self.in_a_row += 1;
        self.unreported += 1;
        if self.in_a_row < MAX_IN_A_ROW { Ok(()) } else { Err(StepError::NotFinite { steps: MAX_IN_A_ROW }) }
    }
}
