//! GPUs of this machine that a program may take.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::plan::Remedy;
use gpu_tuned_core::profile::{ProfileId, ProfileTable};
use gpu_tuned_nvml::{FirstFit, Fit, Host, Machine, PassedOver, UnusableGpu, UsableGpu, detect};
use gpu_tuned_project::profile_text::describe;

use super::Target;
use crate::args::WhichGpu;
use crate::error::Error;

/// Returns true if `targets --here --toml` prints a profile for a GPU that matches none exactly.
pub(crate) fn is_describable(reading: &GpuReading) -> bool {
    describe(reading, None, |_| false).is_ok()
}

/// This machine, with its usable GPUs in the order in which a program tries them.
pub(crate) struct Here {
    pub machine: Machine,
    table: ProfileTable,
    /// GPUs that the package declares.
    pub declared: Vec<ProfileId>,
    pub usable: Vec<UsableGpu>,
    unusable: Vec<UnusableGpu>,
}

impl Here {
    /// Reads the machine. A build of the package is for the only declared GPU; of several, for any.
    pub(crate) fn read(table: ProfileTable, declared: Vec<ProfileId>) -> Self {
        Self::new(detect(), table, declared)
    }

    pub(crate) fn new(machine: Machine, table: ProfileTable, declared: Vec<ProfileId>) -> Self {
        let (usable, unusable) = (Vec::new(), Vec::new());
        let mut here = Self { machine, table, declared, usable, unusable };
        for position in here.order(here.only_declared()) {
            match here.machine.usable(position, &here.table) {
                Ok(gpu) => here.usable.push(gpu),
                Err(gpu) => here.unusable.push(gpu),
            }
        }
        here
    }

    /// Positions of all GPUs in the order in which a program that is built for `target` tries them.
    fn order(&self, target: Option<&ProfileId>) -> Vec<usize> {
        self.machine.preference(|gpu| self.is_exactly(gpu, target))
    }

    fn only_declared(&self) -> Option<&ProfileId> {
        if let [only] = self.declared.as_slice() { Some(only) } else { None }
    }

    fn is_exactly(&self, gpu: &GpuReading, target: Option<&ProfileId>) -> bool {
        let is = |target: &ProfileId| {
            identify(gpu, &self.table).exact_profile().is_some_and(|profile| profile.id == *target)
        };
        target.is_some_and(is)
    }

    /// The requested GPUs; without a number, all in the order in which a program tries them. The CPU without a GPU.
    pub(super) fn targets(&self, which: Option<WhichGpu>) -> Result<Vec<Target>, Error> {
        let mut gpus: Vec<&UsableGpu> = self.usable.iter().collect();
        match which {
            None => {}
            Some(WhichGpu::All) => gpus.sort_by_key(|gpu| gpu.position),
            Some(WhichGpu::Number(number)) => {
                gpus.retain(|gpu| gpu.position == number);
                if gpus.is_empty() {
                    return Err(self.unusable(number));
                }
            }
        }
        let targets: Vec<_> = gpus.into_iter().map(|gpu| Target::of_gpu(gpu, &self.machine)).collect();
        Ok(if targets.is_empty() { vec![Target::cpu(&self.machine.host)] } else { targets })
    }

    /// Reason why the GPU cannot be used.
    pub(crate) fn reason_against(&self, position: usize) -> Option<&str> {
        self.unusable.iter().find(|gpu| gpu.position == position).map(|gpu| gpu.because.as_str())
    }

    fn unusable(&self, number: usize) -> Error {
        if let Some(because) = self.reason_against(number) {
            return Error::UnusableGpu { because: because.to_owned() };
        }
        let wanted = number as u64;
        if self.machine.gpus.is_empty() {
            let because = self.machine.trouble.clone();
            return Error::WithoutGpus { wanted, because, help: "--here plans for the CPU" };
        }
        let there = (0..self.machine.gpus.len()).map(|number| number.to_string()).collect();
        Error::NoGpu { wanted, whose: "GPUs of a program are", there }
    }

    /// Reasons why GPUs are missing, limited or unusable, and sources of memory that the driver does not report.
    pub(crate) fn trouble(&self) -> Vec<String> {
        let unusable = self.unusable.iter().map(|gpu| gpu.because.clone());
        let remarks = self.usable.iter().filter_map(|gpu| gpu.memory_remark.clone());
        self.machine.trouble.iter().cloned().chain(unusable).chain(remarks).collect()
    }

    /// Notes on a plan for this machine.
    pub(super) fn notes(&self) -> Vec<String> {
        let cpu = self.usable.is_empty().then(|| "no usable GPU: the plan is for the CPU".to_owned());
        self.trouble().into_iter().chain(cpu).collect()
    }

    /// Index of the GPU in [`usable`](Self::usable) that a program takes, with the reasons. `fits` are the plans for the
    /// GPUs. Without a plan that fits, the first GPU.
    pub(super) fn choose(&self, fits: &[Fit<()>]) -> (usize, Vec<String>) {
        let index_of = |position: usize| self.usable.iter().position(|gpu| gpu.position == position);
        let first = |target: Option<&ProfileId>| {
            let order = self.order(target).into_iter();
            FirstFit::new(order.filter_map(|position| Some((position, fits[index_of(position)?].clone()))))
        };
        let target = self.only_declared();
        let Some(FirstFit { position, failed, .. }) = first(target) else { return (0, Vec::new()) };
        let is_target = |gpu: &GpuReading| self.is_exactly(gpu, target);
        let passed_over = self.machine.passed_over(position, is_target, &failed);
        // The notes name missing and unusable GPUs.
        let is_usable = |gpu: &PassedOver| gpu.position.is_some_and(|position| index_of(position).is_some());
        let mut reasons: Vec<String> = passed_over.into_iter().filter(is_usable).map(|gpu| gpu.because).collect();
        let count = self.machine.gpus.len();
        if count > 1 {
            let target = target.filter(|_| is_target(&self.machine.gpus[position]));
            let built = target.map_or_else(String::new, |id| format!(" that is built for {id}"));
            reasons.push(format!(
                "of {count} GPUs a program{built} takes GPU {position}; --gpu NUMBER plans for another, --gpu all for each"
            ));
        }
        for id in self.declared.iter().filter(|_| target.is_none()) {
            if let Some(other) = first(Some(id)).filter(|other| other.position != position) {
                reasons.push(format!("a program that is built for {id} alone takes GPU {}", other.position));
            }
        }
        (index_of(position).unwrap_or_default(), reasons)
    }

    /// Names the GPU of this machine that would do in place of `refused`, or the limit of this process.
    pub(super) fn remedy(&self, refused: &Target, fits: impl Fn(&Target) -> bool) -> Option<Remedy> {
        let Some(position) = refused.position else {
            return self.machine.host_remedy(|host: &Host| fits(&Target::cpu(host)));
        };
        self.machine.remedy(position, |gpu| {
            let mut machine = self.machine.clone();
            machine.gpus = vec![gpu.clone()];
            machine.usable(0, &self.table).is_ok_and(|gpu| fits(&Target::of_gpu(&gpu, &self.machine)))
        })
    }
}
