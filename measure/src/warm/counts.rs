//! Kernels and choices that a process adds to its caches.

use std::sync::{Mutex, PoisonError};

use cubecl::environment;
use gpu_tuned_observe::progress::{Details, set_details};

use super::caches::{Caches, TUNED};

/// First part of the namespaces of compiled kernels, by runtime.
const KERNELS: &str = "cuda";

/// Entries of the active environment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    kernels: u64,
    choices: u64,
}

/// Entries before the first step, and the use of new ones. `None` without caches of ours.
static BEFORE: Mutex<Option<(Counts, String)>> = Mutex::new(None);

/// Begins to count new entries, for the reports of long work.
pub(super) fn begin(caches: &Caches) {
    let outcome = match caches {
        Caches::On { path, .. } => Some(format!("kept in {}, so the next process is faster", path.display())),
        Caches::NotWritable { .. } => Some("not kept for the next process".to_owned()),
        _ => None,
    };
    let before = outcome.map(|outcome| (Counts::now(), outcome));
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = before;
    set_details(details);
}

fn details() -> Option<Details> {
    let (before, outcome) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    let now = Counts::now();
    let kernels = now.kernels.saturating_sub(before.kernels);
    let choices = now.choices.saturating_sub(before.choices);
    let counts = format!("kernels compiled: {kernels}, choices tuned: {choices}");
    (kernels + choices > 0).then_some(Details { counts, outcome })
}

impl Counts {
    fn now() -> Self {
        environment::namespaces().iter().fold(Self::default(), |counts, namespace| {
            match namespace.namespace.split('/').next() {
                Some(KERNELS) => Self { kernels: counts.kernels + namespace.entries, ..counts },
                Some(TUNED) => Self { choices: counts.choices + namespace.entries, ..counts },
                _ => counts,
            }
        })
    }
}
