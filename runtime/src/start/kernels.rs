//! Kernels of the process, selected once the device of the session is open.

use gpu_tuned_core::Kernels;
use gpu_tuned_kernels::selection::{SelectError, cudnn_faults, select_burn, select_library, set_deterministic};
use gpu_tuned_measure::measure::is_requested;
use gpu_tuned_measure::requests::archive_folder;
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_observe::progress::Progress;

use super::{Request, StartError};
use crate::decide::Decision;
use crate::selection::Fallback;
use crate::session::Opened;

impl Request {
    /// Selects the planned kernels for all operations of this process from now on. Returns why the library cannot be used, on
    /// this rank or on another one, and what to do.
    #[cfg_attr(not(feature = "distributed"), expect(clippy::unnecessary_wraps, reason = "ranks may have ended"))]
    pub(super) fn select_kernels(&self, decision: &Decision, opened: &Opened) -> Result<Option<String>, StartError> {
        let settings = &decision.plan.settings;
        set_deterministic(decision.inputs.goal.deterministic);
        let why_not = match settings.kernels {
            Kernels::Burn => None,
            Kernels::Library => {
                let _progress = Progress::begin("comparing the library's kernels with Burn's");
                select_library(&opened.device, settings.allow_tf32).err().map(|error| with_remedy(&error))
            }
        };
        // All ranks or none: one rank with other rounding would still train, at another speed.
        #[cfg(feature = "distributed")]
        let why_not = match (&self.connection, &decision.selection.gpu) {
            (Some(connection), Some(_)) => connection.why_no_library(why_not)?,
            _ => why_not,
        };
        if why_not.is_some() || !settings.kernels.is_library() {
            select_burn();
        } else {
            for fault in cudnn_faults() {
                warn_user(&format!("Burn's kernels compute some operations: {fault}"));
            }
        }
        Ok(why_not)
    }
}

/// Refuses to measure Burn's kernels on a GPU where this start pins the library's.
pub(super) fn refuse_other_measurement(pinned: Option<Kernels>, decision: &Decision) -> Result<(), StartError> {
    let selection = &decision.selection;
    let is_measured = is_requested() && archive_folder().is_none() && selection.gpu.is_some();
    match other_measurement(pinned, &selection.fallbacks).filter(|_| is_measured) {
        Some(because) => Err(StartError::NotMeasured { because: because.to_owned() }),
        None => Ok(()),
    }
}

/// Reason why Burn's kernels are in place of pinned ones of the library.
fn other_measurement(pinned: Option<Kernels>, fallbacks: &[Fallback]) -> Option<&str> {
    let because = fallbacks.iter().find_map(|fallback| match fallback {
        Fallback::Kernels { because } => Some(&**because),
        _ => None,
    });
    because.filter(|_| pinned == Some(Kernels::Library))
}

/// Formats the reason with what to do. The error of a library that is not found has its own remedy.
fn with_remedy(error: &SelectError) -> String {
    match error {
        SelectError::NotFound(_) => error.to_string(),
        _ => format!("{error}; install another release of cuBLASLt, or set burn"),
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Kernels;

    use super::other_measurement;
    use crate::Fallback;

    #[test]
    fn the_library_is_not_measured_by_burns_kernels_in_its_place() {
        let missing = [Fallback::Kernels { because: "cuBLASLt was not found".to_owned() }];
        assert_eq!(other_measurement(Some(Kernels::Library), &missing), Some("cuBLASLt was not found"));
        // A program that falls back by itself is measured as it trains.
        assert_eq!([None, Some(Kernels::Burn)].map(|pinned| other_measurement(pinned, &missing)), [None; 2]);
        assert_eq!(other_measurement(Some(Kernels::Library), &[]), None);
    }
}
