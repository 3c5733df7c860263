//! What is being played: per thread when a test asked for it, per process when the environment names the scenario.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::scenario::{Call, Scenario, Unit};
use crate::{Code, SCENARIO_VARIABLE};

/// A scenario between `nvmlInit_v2` and `nvmlShutdown`.
#[derive(Default)]
struct Stage {
    users: u32,
    scenario: Scenario,
    lost: Vec<usize>,
    /// Each GPU as it is at its look of the moment.
    now: Vec<Moment>,
}

/// A GPU at one look.
#[derive(Clone)]
struct Moment {
    looks: u32,
    unit: Unit,
    is_lost: bool,
}

impl Moment {
    fn of(unit: &Unit, looks: u32) -> Self {
        let (unit, is_lost) = unit.at(looks);
        Self { looks, unit, is_lost }
    }
}

/// The stage of one thread, with the scenario that a test wants there.
struct Rehearsal {
    file: PathBuf,
    stage: Stage,
}

thread_local! {
    static REHEARSAL: RefCell<Option<Rehearsal>> = const { RefCell::new(None) };
}
static PERFORMANCE: Mutex<Option<Stage>> = Mutex::new(None);

/// Sets the scenario file of the calling thread; with `None` the environment variable counts again.
pub(crate) fn rehearse(file: Option<PathBuf>) {
    REHEARSAL.set(file.map(|file| Rehearsal { file, stage: Stage::default() }));
}

/// `nvmlInit_v2`: reads the scenario.
pub(crate) fn open() -> Code {
    let loaded = on_stage(|stage, file| {
        let Some(file) = file else { return Err(format!("{SCENARIO_VARIABLE} is not set")) };
        stage.scenario = Scenario::load(file).map_err(|error| error.to_string())?;
        stage.lost.clear();
        stage.now = stage.scenario.gpu.iter().map(|unit| Moment::of(unit, 0)).collect();
        let code = stage.scenario.init.unwrap_or(Code::Success);
        stage.users += u32::from(code == Code::Success);
        Ok(code)
    });
    loaded.unwrap_or_else(|error| {
        eprintln!("fake-nvml: {error}");
        Code::InvalidArgument
    })
}

/// `nvmlShutdown`.
pub(crate) fn close() -> Code {
    on_stage(|stage, _| match stage.users.checked_sub(1) {
        Some(left) => {
            stage.users = left;
            Code::Success
        }
        None => Code::Uninitialized,
    })
}

/// Asks the scenario as a whole.
pub(crate) fn ask_system<T>(answer: impl FnOnce(&Scenario) -> Result<T, Code>) -> Result<T, Code> {
    on_stage(|stage, _| if stage.users == 0 { Err(Code::Uninitialized) } else { answer(&stage.scenario) })
}

/// Asks the GPU `gpu`, or its slice `slice` (a position in the file), with all that the scenario wants to go wrong.
pub(crate) fn ask<T>(
    gpu: usize,
    slice: Option<usize>,
    call: Call,
    answer: impl FnOnce(&Unit) -> Result<T, Code>,
) -> Result<T, Code> {
    on_stage(|stage, _| {
        if stage.users == 0 {
            return Err(Code::Uninitialized);
        }
        let now = stage.now.get_mut(gpu).ok_or(Code::InvalidArgument)?;
        if call == Call::Handle && !stage.scenario.gpu[gpu].acts.is_empty() {
            // The first opening is that of look 0.
            *now = Moment { looks: now.looks + 1, ..Moment::of(&stage.scenario.gpu[gpu], now.looks) };
        }
        if now.is_lost || stage.lost.contains(&gpu) {
            return Err(Code::GpuIsLost);
        }
        let whole = &now.unit;
        let unit = slice.map_or(Some(whole), |slice| whole.mig.get(slice)).ok_or(Code::InvalidArgument)?;
        if unit.lost_after == Some(call) {
            stage.lost.push(gpu);
        }
        unit.fails.get(&call).map_or_else(|| answer(unit), |code| Err(*code))
    })
}

fn on_stage<T>(act: impl FnOnce(&mut Stage, Option<&Path>) -> T) -> T {
    REHEARSAL.with_borrow_mut(|rehearsal| {
        if let Some(Rehearsal { file, stage }) = rehearsal {
            return act(stage, Some(file));
        }
        let mut performance = PERFORMANCE.lock().unwrap_or_else(PoisonError::into_inner);
        let file = std::env::var_os(SCENARIO_VARIABLE).map(PathBuf::from);
        act(performance.get_or_insert_default(), file.as_deref())
    })
}
