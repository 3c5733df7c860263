//! Figures that change while a GPU is watched.

use serde::{Deserialize, Serialize};

use crate::Unit;
use crate::scenario::Process;

/// A stretch of time in which a GPU shows other figures than its own; what is left out is as the GPU says.
///
/// Time is counted in looks: each time that the GPU is opened by its index, the first of which is often made to find out
/// what there is. The last act stays, unless the GPU says that its acts are repeated.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// For how many looks.
    pub looks: u32,
    /// By how much figures of work, power and traffic go up and down, in percent of themselves.
    pub swing_percent: Option<f64>,
    /// Whether the GPU is lost meanwhile.
    #[serde(default)]
    pub lost: bool,
    /// See [`Unit`], as all that follow.
    pub uuid: Option<String>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub memory_free_mib: Option<u64>,
    /// Memory that is taken in each look of the act, after the first.
    pub memory_growth_mib: Option<u64>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub utilisation_percent: Option<[u32; 2]>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub power_draw_mw: Option<u32>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub enforced_power_limit_mw: Option<u32>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub clocks_mhz: Option<[u32; 2]>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub throttle: Option<Vec<Reason>>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub temperature_c: Option<u32>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub pcie: Option<[u32; 2]>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub pcie_kb_s: Option<[u32; 2]>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub counters: Option<Counted>,
    #[allow(missing_docs, reason = "as the GPU's")]
    pub processes: Option<Vec<Process>>,
}

/// What the performance counters (GPM) tell; what is left out is not supported.
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
    /// Somebody asked for these clocks.
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
    /// The power supply asks for less.
    HwPowerBrake = 0x80,
    /// A reason younger than the bindings.
    FromTheFuture = 0x8000_0000,
}

impl Unit {
    /// The GPU as it is at a look, counted from 0, and whether it is lost.
    pub(crate) fn at(&self, look: u32) -> (Self, bool) {
        let Some((act, since)) = self.act_at(look) else { return (self.clone(), false) };
        let mut unit = self.clone();
        let swing = Swing { share: act.swing_percent.unwrap_or(0.0) / 100.0, look };
        unit.uuid = act.uuid.clone().or_else(|| self.uuid.clone());
        let taken = act.memory_growth_mib.unwrap_or(0).saturating_mul(since.into());
        unit.memory_free_mib = act.memory_free_mib.or(self.memory_free_mib).map(|free| free.saturating_sub(taken));
        unit.utilisation_percent = act.utilisation_percent.or(self.utilisation_percent);
        unit.utilisation_percent =
            unit.utilisation_percent.map(|[gpu, memory]| [swing.percent(gpu, 1), swing.percent(memory, 2)]);
        unit.power_draw_mw = act.power_draw_mw.or(self.power_draw_mw).map(|power| swing.of(power.into(), 3) as u32);
        unit.enforced_power_limit_mw = act.enforced_power_limit_mw.or(self.enforced_power_limit_mw);
        unit.clocks_mhz = act.clocks_mhz.or(self.clocks_mhz);
        unit.throttle = act.throttle.clone().or_else(|| self.throttle.clone());
        unit.temperature_c = act.temperature_c.or(self.temperature_c);
        unit.pcie = act.pcie.or(self.pcie);
        unit.pcie_kb_s = act
            .pcie_kb_s
            .or(self.pcie_kb_s)
            .map(|[to, from]| [swing.of(to.into(), 4) as u32, swing.of(from.into(), 5) as u32]);
        unit.counters = act.counters.or(self.counters).map(|counted| counted.swung(swing));
        unit.processes = act.processes.clone().or_else(|| self.processes.clone());
        (unit, act.lost)
    }

    /// The act of a look, and how many looks of it are over.
    fn act_at(&self, look: u32) -> Option<(&Act, u32)> {
        let all: u32 = self.acts.iter().map(|act| act.looks).sum();
        let mut left = if self.acts_repeat && all > 0 { look % all } else { look };
        for act in &self.acts {
            if left < act.looks {
                return Some((act, left));
            }
            left -= act.looks;
        }
        self.acts.last().map(|last| (last, last.looks + left))
    }
}

impl Counted {
    fn swung(self, swing: Swing) -> Self {
        let percent = |figure: Option<f64>, place| figure.map(|figure| swing.of(figure, place).min(100.0));
        let traffic = |figure: Option<f64>, place| figure.map(|figure| swing.of(figure, place));
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

/// Ups and downs that are the same in every run.
#[derive(Clone, Copy)]
struct Swing {
    share: f64,
    look: u32,
}

impl Swing {
    fn of(self, figure: f64, place: u32) -> f64 {
        // A slow wave and a quick one, each figure at another point of them.
        let time = f64::from(self.look + 17 * place);
        figure * (1.0 + self.share * (0.6 * (time * 0.7).sin() + 0.4 * (time * 2.9).sin()))
    }

    fn percent(self, figure: u32, place: u32) -> u32 {
        if figure > 100 { figure } else { (self.of(figure.into(), place).round() as u32).min(100) }
    }
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    fn drawn(text: &str, looks: u32) -> Vec<(Option<u32>, bool)> {
        let unit = toml::from_str::<Scenario>(text).expect("a scenario").gpu.remove(0);
        (0..looks).map(|look| unit.at(look)).map(|(unit, lost)| (unit.power_draw_mw, lost)).collect()
    }

    const ACTS: &str = "[[gpu]]\npower_draw_mw = 5\nacts_repeat = false\n[[gpu.acts]]\nlooks = 1\n\
                        [[gpu.acts]]\nlooks = 2\npower_draw_mw = 7\n[[gpu.acts]]\nlooks = 1\nlost = true\n";

    #[test]
    fn acts_follow_each_other_and_the_last_one_stays() {
        let expected = [(Some(5), false), (Some(7), false), (Some(7), false), (Some(5), true), (Some(5), true)];
        assert_eq!(drawn(ACTS, 5), expected);
    }

    #[test]
    fn acts_may_be_repeated() {
        let repeated = ACTS.replace("false", "true");
        assert_eq!(drawn(&repeated, 6)[3..], [(Some(5), true), (Some(5), false), (Some(7), false)]);
    }

    #[test]
    fn swinging_figures_are_the_same_in_every_run_and_stay_near() {
        let text = "[[gpu]]\n[[gpu.acts]]\nlooks = 9\nswing_percent = 10\npower_draw_mw = 1000\n";
        let first = drawn(text, 9);
        assert_eq!(first, drawn(text, 9));
        assert!(first.iter().all(|(power, _)| (900..=1100).contains(&power.unwrap_or(0))), "{first:?}");
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{first:?}");
    }
}
