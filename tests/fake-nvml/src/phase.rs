//! Figures that change over time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Unit;
use crate::scenario::Process;

/// A period in which a GPU reports other figures than its own. Absent figures are the GPU's.
///
/// Time is counted in samples: one each time that the GPU is opened by its index. The first is often used up by
/// listing the GPUs. The last phase stays, unless `phases_repeat` is set.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "fields without documentation are those of `Unit`")]
pub struct Phase {
    /// Duration in samples.
    pub samples: u32,
    /// Amplitude of the variation of utilisation, power and traffic, in percent of their values.
    pub swing_percent: Option<f64>,
    /// True if the GPU is lost in this phase.
    #[serde(default)]
    pub lost: bool,
    /// Time for which the driver hangs when it opens the GPU.
    pub hang_ms: Option<u64>,
    pub uuid: Option<String>,
    pub memory_free_mib: Option<u64>,
    /// Memory allocated in each sample of the phase after the first.
    pub memory_growth_mib: Option<u64>,
    pub utilisation_percent: Option<[u32; 2]>,
    pub power_draw_mw: Option<u32>,
    pub enforced_power_limit_mw: Option<u32>,
    pub clocks_mhz: Option<[u32; 2]>,
    pub performance_state: Option<u32>,
    pub throttle: Option<Vec<Reason>>,
    pub temperature_c: Option<u32>,
    pub pcie: Option<[u32; 2]>,
    pub pcie_kb_s: Option<[u32; 2]>,
    pub counters: Option<Counted>,
    pub processes: Option<Vec<Process>>,
}

/// Performance counters (GPM). Absent ones are not supported.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Counted {
    /// Multiprocessors at work, in percent.
    pub sm: Option<f64>,
    /// Resident warps, in percent.
    pub occupancy: Option<f64>,
    /// Tensor cores at work, in percent.
    pub tensor: Option<f64>,
    /// Memory bandwidth in use, in percent.
    pub dram: Option<f64>,
    /// Traffic to the GPU in MiB per second.
    pub to_gpu_mib_s: Option<f64>,
    /// Traffic from the GPU in MiB per second.
    pub from_gpu_mib_s: Option<f64>,
}

/// NVML's reasons for lower clocks, with their bits (`nvmlClocksThrottleReason…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u64)]
pub enum Reason {
    /// Nothing to do.
    GpuIdle = 0x1,
    /// The user set these clocks.
    ApplicationsClocks = 0x2,
    /// The power limit.
    SwPowerCap = 0x4,
    /// Hardware, for any of several reasons.
    HwSlowdown = 0x8,
    /// GPUs that keep clocks together.
    SyncBoost = 0x10,
    /// The driver's temperature limit.
    SwThermal = 0x20,
    /// The hardware's temperature limit.
    HwThermal = 0x40,
    /// The power supply requests less power.
    HwPowerBrake = 0x80,
    /// A reason younger than the bindings.
    FromTheFuture = 0x8000_0000,
}

impl Unit {
    /// The GPU at a sample, counted from 0, and whether the GPU is lost.
    pub(crate) fn at(&self, sample: u32) -> (Self, bool) {
        let Some((phase, since)) = self.phase_at(sample) else { return (self.clone(), false) };
        let mut unit = self.clone();
        let variation = Variation { share: phase.swing_percent.unwrap_or(0.0) / 100.0, sample };
        unit.uuid = phase.uuid.clone().or_else(|| self.uuid.clone());
        let taken = phase.memory_growth_mib.unwrap_or(0).saturating_mul(since.into());
        unit.memory_free_mib = phase.memory_free_mib.or(self.memory_free_mib).map(|free| free.saturating_sub(taken));
        unit.utilisation_percent = phase.utilisation_percent.or(self.utilisation_percent);
        unit.utilisation_percent =
            unit.utilisation_percent.map(|[gpu, memory]| [variation.percent(gpu, 1), variation.percent(memory, 2)]);
        unit.power_draw_mw =
            phase.power_draw_mw.or(self.power_draw_mw).map(|power| variation.apply(power.into(), 3) as u32);
        unit.enforced_power_limit_mw = phase.enforced_power_limit_mw.or(self.enforced_power_limit_mw);
        unit.clocks_mhz = phase.clocks_mhz.or(self.clocks_mhz);
        unit.performance_state = phase.performance_state.or(self.performance_state);
        unit.throttle = phase.throttle.clone().or_else(|| self.throttle.clone());
        unit.temperature_c = phase.temperature_c.or(self.temperature_c);
        unit.pcie = phase.pcie.or(self.pcie);
        unit.pcie_kb_s = phase
            .pcie_kb_s
            .or(self.pcie_kb_s)
            .map(|[to, from]| [variation.apply(to.into(), 4) as u32, variation.apply(from.into(), 5) as u32]);
        unit.counters = phase.counters.or(self.counters).map(|counted| counted.varied(variation));
        unit.processes = phase.processes.clone().or_else(|| self.processes.clone());
        (unit, phase.lost)
    }

    /// Time for which the driver hangs in a sample.
    pub(crate) fn hangs_at(&self, sample: u32) -> Option<Duration> {
        self.phase_at(sample)?.0.hang_ms.map(Duration::from_millis)
    }

    /// The phase of a sample, and the number of its samples already over.
    fn phase_at(&self, sample: u32) -> Option<(&Phase, u32)> {
        let all: u32 = self.phases.iter().map(|phase| phase.samples).sum();
        let mut left = if self.phases_repeat && all > 0 { sample % all } else { sample };
        for phase in &self.phases {
            if left < phase.samples {
                return Some((phase, left));
            }
            left -= phase.samples;
        }
        self.phases.last().map(|last| (last, last.samples + left))
    }
}

impl Counted {
    fn varied(self, variation: Variation) -> Self {
        let percent = |figure: Option<f64>, place| figure.map(|figure| variation.apply(figure, place).min(100.0));
        let traffic = |figure: Option<f64>, place| figure.map(|figure| variation.apply(figure, place));
        Self {
            sm: percent(self.sm, 6),
            occupancy: percent(self.occupancy, 7),
            tensor: percent(self.tensor, 8),
            dram: percent(self.dram, 9),
            to_gpu_mib_s: traffic(self.to_gpu_mib_s, 10),
            from_gpu_mib_s: traffic(self.from_gpu_mib_s, 11),
        }
    }
}

/// A deterministic variation.
#[derive(Clone, Copy)]
struct Variation {
    share: f64,
    sample: u32,
}

impl Variation {
    fn apply(self, figure: f64, place: u32) -> f64 {
        // A slow wave and a quick one, each figure at another point of them.
        let time = f64::from(self.sample + 17 * place);
        figure * (1.0 + self.share * (0.6 * (time * 0.7).sin() + 0.4 * (time * 2.9).sin()))
    }

    fn percent(self, figure: u32, place: u32) -> u32 {
        if figure > 100 { figure } else { (self.apply(figure.into(), place).round() as u32).min(100) }
    }
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    fn drawn(text: &str, samples: u32) -> Vec<(Option<u32>, bool)> {
        let unit = toml::from_str::<Scenario>(text).expect("a scenario").gpu.remove(0);
        (0..samples).map(|sample| unit.at(sample)).map(|(unit, lost)| (unit.power_draw_mw, lost)).collect()
    }

    const PHASES: &str = "[[gpu]]\npower_draw_mw = 5\nphases_repeat = false\n[[gpu.phases]]\nsamples = 1\n\
                        [[gpu.phases]]\nsamples = 2\npower_draw_mw = 7\n[[gpu.phases]]\nsamples = 1\nlost = true\n";

    #[test]
    fn phases_follow_each_other_and_the_last_one_stays() {
        let expected = [(Some(5), false), (Some(7), false), (Some(7), false), (Some(5), true), (Some(5), true)];
        assert_eq!(drawn(PHASES, 5), expected);
    }

    #[test]
    fn phases_may_be_repeated() {
        let repeated = PHASES.replace("false", "true");
        assert_eq!(drawn(&repeated, 6)[3..], [(Some(5), true), (Some(5), false), (Some(7), false)]);
    }

    #[test]
    fn swinging_figures_are_the_same_in_every_run_and_stay_near() {
        let text = "[[gpu]]\n[[gpu.phases]]\nsamples = 9\nswing_percent = 10\npower_draw_mw = 1000\n";
        let first = drawn(text, 9);
        assert_eq!(first, drawn(text, 9));
        assert!(first.iter().all(|(power, _)| (900..=1100).contains(&power.unwrap_or(0))), "{first:?}");
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{first:?}");
    }
}
