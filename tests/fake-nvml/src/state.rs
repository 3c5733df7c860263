//! The current scenario: one that a test sets for its copy of the library, else that of the environment.

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

/// The state of this copy of the library, and the scenario file that a test wants.
static STATE: Mutex<Option<(DriverState, Option<PathBuf>)>> = Mutex::new(None);

/// Sets the scenario file; with `None` the environment variable counts again.
pub(crate) fn set_scenario(file: Option<PathBuf>) {
    *STATE.lock().unwrap_or_else(PoisonError::into_inner) = Some((DriverState::default(), file));
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
            std::thread::sleep(state.scenario.gpu[gpu].hangs_at(now.samples).unwrap_or_default());
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
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let (state, file) = state.get_or_insert_default();
    let file = file.clone().or_else(|| std::env::var_os(SCENARIO_VARIABLE).map(PathBuf::from));
    phase(state, file.as_deref())
}
