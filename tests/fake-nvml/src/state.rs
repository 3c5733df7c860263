//! The current scenario: per thread if a test sets one, else per process from the environment.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::scenario::{Call, Scenario, Unit};
use crate::{Code, SCENARIO_VARIABLE};

/// A scenario between `nvmlInit_v2` and `nvmlShutdown`.
#[derive(Default)]
struct DriverState {
    users: u32,
    scenario: Scenario,
    lost: Vec<usize>,
    /// Each GPU at its current sample.
    gpus: Vec<GpuState>,
}

/// A GPU at one sample.
#[derive(Clone)]
struct GpuState {
    samples: u32,
    unit: Unit,
    is_lost: bool,
}

impl GpuState {
    fn new(unit: &Unit, samples: u32) -> Self {
        let (unit, is_lost) = unit.at(samples);
        Self { samples, unit, is_lost }
    }
}

/// The state of one thread, with the scenario that a test wants there.
struct ThreadState {
    file: PathBuf,
    state: DriverState,
}

thread_local! {
    static THREAD_STATE: RefCell<Option<ThreadState>> = const { RefCell::new(None) };
}
static PROCESS_STATE: Mutex<Option<DriverState>> = Mutex::new(None);

/// Sets the scenario file of the calling thread; with `None` the environment variable counts again.
pub(crate) fn set_scenario(file: Option<PathBuf>) {
    THREAD_STATE.set(file.map(|file| ThreadState { file, state: DriverState::default() }));
}

/// `nvmlInit_v2`: reads the scenario.
pub(crate) fn open() -> Code {
    let loaded = with_state(|state, file| {
        let Some(file) = file else { return Err(format!("{SCENARIO_VARIABLE} is not set")) };
        state.scenario = Scenario::load(file).map_err(|error| error.to_string())?;
        state.lost.clear();
        state.gpus = state.scenario.gpu.iter().map(|unit| GpuState::new(unit, 0)).collect();
        let code = state.scenario.init.unwrap_or(Code::Success);
        state.users += u32::from(code == Code::Success);
        Ok(code)
    });
    loaded.unwrap_or_else(|error| {
        eprintln!("fake-nvml: {error}");
        Code::InvalidArgument
    })
}

/// `nvmlShutdown`.
pub(crate) fn close() -> Code {
    with_state(|state, _| match state.users.checked_sub(1) {
        Some(left) => {
            state.users = left;
            Code::Success
        }
        None => Code::Uninitialized,
    })
}

/// Queries the scenario as a whole.
pub(crate) fn query_system<T>(answer: impl FnOnce(&Scenario) -> Result<T, Code>) -> Result<T, Code> {
    with_state(|state, _| if state.users == 0 { Err(Code::Uninitialized) } else { answer(&state.scenario) })
}

/// Queries the GPU `gpu`, or its slice `slice` (a position in the file), and applies the scenario's failures.
pub(crate) fn query<T>(
    gpu: usize,
    slice: Option<usize>,
    call: Call,
    answer: impl FnOnce(&Unit) -> Result<T, Code>,
) -> Result<T, Code> {
    with_state(|state, _| {
        if state.users == 0 {
            return Err(Code::Uninitialized);
        }
        let now = state.gpus.get_mut(gpu).ok_or(Code::InvalidArgument)?;
        if call == Call::Handle && !state.scenario.gpu[gpu].phases.is_empty() {
            // The first opening is that of sample 0.
            *now = GpuState { samples: now.samples + 1, ..GpuState::new(&state.scenario.gpu[gpu], now.samples) };
        }
        if now.is_lost || state.lost.contains(&gpu) {
            return Err(Code::GpuIsLost);
        }
        let whole = &now.unit;
        let unit = slice.map_or(Some(whole), |slice| whole.mig.get(slice)).ok_or(Code::InvalidArgument)?;
        if unit.lost_after == Some(call) {
            state.lost.push(gpu);
        }
        unit.fails.get(&call).map_or_else(|| answer(unit), |code| Err(*code))
    })
}

fn with_state<T>(phase: impl FnOnce(&mut DriverState, Option<&Path>) -> T) -> T {
    THREAD_STATE.with_borrow_mut(|thread| {
        if let Some(ThreadState { file, state }) = thread {
            return phase(state, Some(file));
        }
        let mut process = PROCESS_STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let file = std::env::var_os(SCENARIO_VARIABLE).map(PathBuf::from);
        phase(process.get_or_insert_default(), file.as_deref())
    })
}
