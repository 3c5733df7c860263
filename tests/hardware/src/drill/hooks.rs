//! Points in a step at which memory can be taken.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::{
    optim::{AdamW, AdamWConfig, ModuleOptimizer, Optimizer},
    tensor::{Device, Tensor},
};
use serde::Serialize;

use super::neighbour::{Left, Need, Neighbour, Taken};

/// A message that the library takes for Burn's out-of-memory error.
const OUT_OF_MEMORY: &str = "out of device memory: made to fail by a drill";

/// A moment of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum At {
    /// Samples are about to be brought to the device.
    Upload,
    /// The micro-batch is uploaded, and the forward pass begins.
    Forward,
    /// The forward pass was computed, and the backward pass begins.
    Backward,
    /// The gradients were computed, and the first parameter is about to be changed.
    Optimizer,
}

/// Memory to take at a point.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Disturbance {
    pub(super) at: At,
    pub(super) left: Left,
    /// Memory left from the next micro-batch on; `None` for no change.
    pub(super) then: Option<Left>,
}

/// Callbacks at the points of every step.
pub(super) struct Hooks(Mutex<State>);

struct State {
    neighbour: Neighbour,
    armed: Option<Disturbance>,
    then: Option<Left>,
    taken: Vec<Taken>,
    trouble: Option<String>,
    spent: Duration,
}

impl Hooks {
    pub(super) fn new(neighbour: Neighbour) -> Arc<Self> {
        let state =
            State { neighbour, armed: None, then: None, taken: Vec::new(), trouble: None, spent: Duration::ZERO };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Reports the memory needs of steps to the neighbour.
    pub(super) fn learn(&self, need: Need) {
        self.lock().neighbour.learn(need);
    }

    /// Takes memory the next time that the disturbance's moment is passed.
    pub(super) fn arm(&self, disturbance: Disturbance) {
        self.lock().armed = Some(disturbance);
    }

    /// Takes memory now.
    pub(super) fn take(&self, left: Left) {
        self.lock().take(left);
    }

    /// Frees all memory, and takes no more.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        (state.armed, state.then) = (None, None);
        if let Err(error) = state.neighbour.release() {
            state.trouble = Some(format!("{error:#}"));
        }
    }

    /// Memory taken since the last call, and the error if taking failed.
    pub(super) fn taken(&self) -> (Vec<Taken>, Option<String>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.taken), state.trouble.take())
    }

    /// Time spent on taking and releasing memory since the last call.
    pub(super) fn spent(&self) -> Duration {
        std::mem::take(&mut self.lock().spent)
    }

    /// Passes a point with a micro-batch of `samples` samples.
    ///
    /// # Panics
    ///
    /// Without a GPU, where memory was taken that the samples need.
    pub(super) fn pass(&self, at: At, samples: usize) {
        let mut state = self.lock();
        let begins = matches!(at, At::Upload | At::Forward);
        if let Some(disturbance) = state.armed.take_if(|disturbance| disturbance.at == at) {
            state.take(disturbance.left);
            state.then = disturbance.then;
        } else if let Some(left) = state.then.take_if(|_| begins) {
            state.take(left);
        }
        let strikes = state.neighbour.strikes(at, samples);
        drop(state);
        assert!(!strikes, "{OUT_OF_MEMORY}");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, left: Left) {
        let begin = Instant::now();
        match self.neighbour.take(left) {
            Ok(taken) => self.taken.push(taken),
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
        self.spent += begin.elapsed();
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// `AdamW`, and the moment before it.
#[derive(Clone)]
struct Watched {
    inner: AdamW,
    hooks: Arc<Hooks>,
}

/// An optimizer that passes its moment.
pub(super) fn optimizer(hooks: &Arc<Hooks>) -> ModuleOptimizer {
    Watched { inner: AdamWConfig::new().build(), hooks: Arc::clone(hooks) }.into()
}

impl Optimizer for Watched {
    type State<const D: usize> = <AdamW as Optimizer>::State<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: f64,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        self.hooks.pass(At::Optimizer, 0);
        self.inner.step(learning_rate, tensor, gradient, state)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        AdamW::to_device(state, device)
    }
}
