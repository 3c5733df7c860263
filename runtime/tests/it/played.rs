//! Machines of scenario files, simulated by a fake management library.

use fake_nvml::play;
use gpu_tuned::{Bytes, Decision, Machine, Options, Tuned, detect_through};

/// The scenario's GPUs in this machine.
pub(crate) fn machine(scenario: &str) -> Machine {
    play(scenario, |library| detect_through(Some(library)))
}

/// The scenario's GPUs in a host that is the same everywhere.
pub(crate) fn machine_in_fixed_host(scenario: &str) -> Machine {
    let mut machine = machine(scenario);
    (machine.host.cores, machine.host.memory_available) = (32, Bytes::from_mib(64 << 10));
    machine
}

/// Options of a start on the scenario's machine.
pub(crate) fn on(scenario: &str) -> Options {
    Options::default().machine(machine(scenario))
}

/// Decision for the scenario's machine.
pub(crate) fn decide<C: Tuned>(config: &C, scenario: &str) -> Decision {
    on(scenario).decide(config).unwrap_or_else(|error| panic!("{scenario}: {error}"))
}

/// Id of the profile that the taken GPU matches exactly.
pub(crate) fn exact_profile(decision: &Decision) -> Option<&str> {
    Some(decision.selection.device()?.exact_profile()?.id.as_str())
}
