//! GPUs of this machine that a program may take.

use gpu_tuned::{Machine, PassedOver, detect};
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::plan::Remedy;
use gpu_tuned_core::profile::{ProfileId, ProfileTable};

use super::Target;
use crate::args::WhichGpu;
use crate::error::Error;

/// Position of the GPU that a program takes, if the plan fits; `None` without a usable GPU.
pub(crate) fn first_choice(machine: Machine, table: ProfileTable, declared: &[ProfileId]) -> Option<usize> {
    Here::new(machine, table, declared).positions.first().copied()
}

/// This machine, with its GPUs in the order in which a program tries them.
pub(super) struct Here {
    machine: Machine,
    table: ProfileTable,
    /// The only GPU that the package declares.
    declared: Option<ProfileId>,
    /// Positions of GPUs that can be planned for.
    positions: Vec<usize>,
    /// Reasons against other GPUs.
    unusable: Vec<(usize, String)>,
}

impl Here {
    pub(super) fn read(table: ProfileTable, declared: &[ProfileId]) -> Self {
        Self::new(detect(), table, declared)
    }

    fn new(machine: Machine, table: ProfileTable, declared: &[ProfileId]) -> Self {
        let declared = if let [only] = declared { Some(only.clone()) } else { None };
        let (positions, unusable) = (Vec::new(), Vec::new());
        let mut here = Self { machine, table, declared, positions, unusable };
        let preference = here.machine.preference(|gpu| here.is_declared(gpu));
        for position in preference {
            match here.obstacle(position) {
                None => here.positions.push(position),
                Some(because) => here.unusable.push((position, because)),
            }
        }
        here
    }

    /// Returns true for the GPU that a build of the package is for.
    fn is_declared(&self, gpu: &GpuReading) -> bool {
        let Some(declared) = &self.declared else { return false };
        matches!(identify(gpu, &self.table), Match::Exact { profile } if profile.id == *declared)
    }

    /// Reason why a GPU cannot be planned for.
    fn obstacle(&self, position: usize) -> Option<String> {
        let Some(Target { facts, .. }) = self.target(position) else {
            return Some(self.machine.gpus[position].without_memory(position));
        };
        facts.refusal.map(|reason| format!("{}: {reason}", facts.name))
    }

    fn target(&self, position: usize) -> Option<Target> {
        Target::of_gpu(&self.machine.gpus[position], &self.machine, &self.table)
    }

    /// The requested GPUs; without a number, all in the order in which a program tries them. The CPU without a GPU.
    pub(super) fn targets(&self, which: Option<WhichGpu>) -> Result<Vec<Target>, Error> {
        let positions = match which {
            None => self.positions.clone(),
            Some(WhichGpu::All) => {
                let mut all = self.positions.clone();
                all.sort_unstable();
                all
            }
            Some(WhichGpu::Number(number)) if self.positions.contains(&number) => vec![number],
            Some(WhichGpu::Number(number)) => {
                let there = (0..self.machine.gpus.len()).map(|number| number.to_string()).collect();
                let unusable = self.unusable.iter().find(|(position, _)| *position == number);
                return Err(match unusable {
                    Some((_, because)) => Error::UnusableGpu { because: because.clone() },
                    None => Error::NoGpu { wanted: number as u64, whose: "GPUs of a program are", there },
                });
            }
        };
        let gpus: Vec<_> = positions.into_iter().filter_map(|position| self.target(position)).collect();
        Ok(if gpus.is_empty() { vec![Target::cpu(&self.machine)] } else { gpus })
    }

    /// Notes on GPUs that are missing, limited or unusable.
    pub(super) fn notes(&self) -> Vec<String> {
        let unusable = self.unusable.iter().map(|(_, because)| because.clone());
        let cpu = self.positions.is_empty().then(|| "no usable GPU: the plan is for the CPU".to_owned());
        self.machine.trouble.iter().cloned().chain(unusable).chain(cpu).collect()
    }

    /// Reasons for the GPU at `index` in [`targets`](Self::targets) in place of earlier ones, and the other GPUs.
    pub(super) fn reasons(&self, index: usize) -> Vec<String> {
        let Some(&taken) = self.positions.get(index) else { return Vec::new() };
        let passed_over = self.machine.passed_over(taken, |gpu| self.is_declared(gpu), &self.unusable);
        // The notes have the missing and the unusable ones.
        let is_usable = |gpu: &PassedOver| gpu.position.is_some_and(|position| self.positions.contains(&position));
        let passed_over = passed_over.into_iter().filter(is_usable).map(|gpu| gpu.because);
        let count = self.machine.gpus.len();
        let declared = self.declared.as_ref().filter(|_| self.is_declared(&self.machine.gpus[taken]));
        let built = declared.map_or_else(String::new, |id| format!(" that is built for {id}"));
        let others = format!(
            "of {count} GPUs a program{built} takes GPU {taken}; --gpu NUMBER plans for another, --gpu all for each"
        );
        passed_over.chain((count > 1).then_some(others)).collect()
    }

    /// Names the GPU of this machine that would do in place of the requested one.
    pub(super) fn remedy(&self, which: Option<WhichGpu>, fits: impl Fn(&Target) -> bool) -> Option<Remedy> {
        let refused = match which {
            None => *self.positions.first()?,
            Some(WhichGpu::Number(position)) => position,
            Some(WhichGpu::All) => return None,
        };
        self.machine.remedy(refused, |gpu| Target::of_gpu(gpu, &self.machine, &self.table).is_some_and(|it| fits(&it)))
    }
}
