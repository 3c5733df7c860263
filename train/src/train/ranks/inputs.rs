//! Inputs of a rank that have to be equal on all ranks.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Inputs of a rank that have to be equal on all ranks: the epochs that it reads, and loaded state. Clones share them.
///
/// An epoch counts from [`PrefetchLoader::iter`](crate::load::PrefetchLoader::iter) until its iterator is dropped, in the
/// thread that called `iter`. Another thread is not in step with optimizer steps, so its epochs are not compared.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Epochs in the order of their begin.
    epochs: Vec<(u64, ThreadId, String)>,
    values: BTreeMap<&'static str, String>,
}

impl Inputs {
    /// Records a value in place of an earlier one with this name.
    pub(super) fn record(&self, name: &'static str, value: String) {
        self.state().values.insert(name, value);
    }

    /// Records an epoch of this thread until the result is dropped.
    pub(crate) fn begin_epoch(&self, text: String) -> OpenEpoch {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.epochs.push((number, thread::current().id(), text));
        OpenEpoch { inputs: self.clone(), number }
    }

    /// Text of the recorded values, and of the epochs that this thread reads.
    pub(super) fn describe(&self) -> String {
        let own = thread::current().id();
        let state = self.state();
        let epochs = state.epochs.iter().filter(|(_, thread, _)| *thread == own).map(|(.., text)| text.clone());
        let values = state.values.iter().map(|(name, value)| format!("{name} {value}"));
        let all: Vec<_> = epochs.chain(values).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
    }

    /// Hash of [`describe`](Self::describe): equal in all processes of one program.
    pub(super) fn digest(&self) -> u64 {
        digest(&self.describe())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hash that is equal in all processes of one program.
pub(in crate::train) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Epoch that a rank reads; ends with the drop.
#[derive(Debug)]
pub(crate) struct OpenEpoch {
    inputs: Inputs,
    number: u64,
}

impl Drop for OpenEpoch {
    fn drop(&mut self) {
        self.inputs.state().epochs.retain(|(number, ..)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_count_in_their_thread_until_they_are_dropped() {
        let inputs = Inputs::default();
        let none = inputs.digest();
        let first = inputs.begin_epoch("first".to_owned());
        let second = thread::scope(|scope| {
            let elsewhere = scope.spawn(|| inputs.begin_epoch("elsewhere".to_owned()));
            elsewhere.join().expect("it returns")
        });
        assert_eq!(inputs.describe(), "first");
        assert_ne!(inputs.digest(), none);
        inputs.record("state", "of step 1".to_owned());
        inputs.record("state", "of step 2".to_owned());
        assert_eq!(inputs.clone().describe(), "first; state of step 2");
        drop((first, second));
        assert_eq!(inputs.describe(), "state of step 2");
        assert_eq!(Inputs::default().digest(), none);
    }
}
