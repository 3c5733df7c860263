//! Devices that commands plan for.

use gpu_tuned_core::device::{DeviceFacts, DeviceKind, GpuReading};
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::plan;
use gpu_tuned_core::plan::{Misfit, PlanError, Remedy};
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::{Goal, Precision, PrecisionPolicy, Provenance};
use gpu_tuned_nvml::{FirstFit, Fit, Host, Machine, PassedOver, UnusableGpu, UsableGpu, detect};
use gpu_tuned_project::gpu_names::{NamedGpu, gpus};
use gpu_tuned_project::profile_text::describe;

use crate::args::{GoalArgs, GpuNames, HereArgs, TargetArgs, WhichGpu};
use crate::error::Error;
use crate::project::{Described, Project};

pub(crate) struct Target {
    /// Name of the profile, or of the device in the driver.
    pub name: String,
    pub facts: DeviceFacts,
    /// The device's profile, or the nearest one.
    pub profile: Option<Profile>,
    /// Number of a GPU of this machine in CUDA's order.
    pub position: Option<usize>,
    /// GPUs of the machine; 0 for a profile.
    pub beside: u64,
}

impl Target {
    pub(crate) fn nominal(profile: &Profile) -> Self {
        Self {
            name: profile.id.to_string(),
            facts: DeviceFacts::nominal(profile),
            profile: Some(profile.clone()),
            position: None,
            beside: 0,
        }
    }

    /// Devices with these names, each once.
    pub(crate) fn all_named(table: &ProfileTable, names: &GpuNames) -> Result<Vec<Self>, Error> {
        Ok(gpus(table, &names.items())?.into_iter().map(Self::named).collect())
    }

    fn named(NamedGpu { profile, slice }: NamedGpu<'_>) -> Self {
        let whole = Self::nominal(profile);
        match slice.and_then(|size| DeviceFacts::nominal_slice(profile, size)) {
            Some(facts) => Self { name: facts.name.clone(), facts, ..whole },
            None => whole,
        }
    }

    /// All GPUs that Burn can train on, and the names of the others.
    pub(crate) fn all(project: &Project) -> (Vec<Self>, Vec<String>) {
        let table = project.profiles();
        let gpus = table.iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC).map(Self::nominal);
        let (usable, refused): (Vec<_>, Vec<_>) = gpus.partition(|target| target.facts.refusal.is_none());
        (usable, refused.into_iter().map(|target| target.name).collect())
    }

    pub(crate) fn declared(project: &Project) -> Vec<Self> {
        let table = project.profiles();
        project.declared().iter().filter_map(|id| table.get(id.as_str())).map(Self::nominal).collect()
    }

    /// Sets the CPU cores of devices that are in this machine. Memory and speed stay those of the profile.
    pub(crate) fn take_cores_here(targets: &mut [Self], table: &ProfileTable) {
        let machine = detect();
        let here = recognised(&machine, table);
        for target in targets {
            if target.profile.as_ref().is_some_and(|profile| here.contains(&profile.id)) {
                target.facts.host_cores = Some(machine.host.cores);
                target.beside = machine.gpus.len() as u64;
            }
        }
    }

    /// Facts for one of several ranks: ranks on one machine share its CPU cores.
    pub(crate) fn facts_of(&self, ranks: u64) -> DeviceFacts {
        let sharing = ranks.clamp(1, self.beside.max(1));
        let host_cores = self.facts.host_cores.map(|cores| (cores / sharing).max(1));
        DeviceFacts { host_cores, ..self.facts.clone() }
    }

    pub(crate) fn fit(&self, described: &Described<'_>, asked: &GoalArgs) -> Fit<()> {
        let goal = asked.over(self.goal(described.goal.clone()));
        let facts = self.facts_of(goal.world_size);
        let workload = described.workload_on(&facts);
        match plan(&facts, &workload, &goal) {
            Ok(_) => Fit::Whole(()),
            Err(error @ PlanError::PrecisionUnsupported { .. }) => {
                let because = error.to_string();
                let is_pinned = goal.pins.precision.is_some();
                let without = Goal { precision: None, ..goal };
                if !is_pinned && plan(&facts, &workload, &without).is_ok() {
                    Fit::OtherPrecision { plan: (), because }
                } else {
                    Fit::No { because: Some(because) }
                }
            }
            Err(_) => Fit::No { because: None },
        }
    }

    fn of_gpu(gpu: &UsableGpu, machine: &Machine) -> Self {
        let UsableGpu { position, found, facts, .. } = gpu;
        let beside = machine.gpus.len() as u64;
        let (name, profile) = (facts.name.clone(), found.profile().cloned());
        Self { name, facts: facts.clone(), profile, position: Some(*position), beside }
    }

    fn cpu(host: &Host) -> Self {
        let facts = host.facts();
        Self { name: facts.name.clone(), facts, profile: None, position: None, beside: 0 }
    }

    /// The goal of a plan. On this machine a precision of the package that the device lacks becomes fp32, as in a program.
    pub(crate) fn goal_for(&self, described: &Described<'_>, asked: &GoalArgs) -> Goal {
        let goal = asked.over(self.goal(described.goal.clone()));
        if self.missing_precision(&goal, asked).is_some() { Goal { precision: None, ..goal } } else { goal }
    }

    /// Note on a precision of the package that the device lacks.
    pub(crate) fn precision_note(&self, described: &Described<'_>, asked: &GoalArgs) -> Option<String> {
        let missing = self.missing_precision(&described.goal, asked)?;
        let nearest = self.facts.mixed_precision();
        let advice = nearest.map_or_else(String::new, |nearest| format!("; it has them for {nearest}"));
        Some(format!("{}: fp32 in place of {missing}, for which it has no tensor cores{advice}", self.name))
    }

    fn missing_precision(&self, goal: &Goal, asked: &GoalArgs) -> Option<Precision> {
        let is_here = self.position.is_some() || self.facts.kind == DeviceKind::Cpu;
        let Some(PrecisionPolicy::Fixed(precision)) = goal.precision else { return None };
        let is_open = is_here && asked.precision().is_none() && goal.pins.precision.is_none();
        (is_open && !self.facts.has_units_for(precision)).then_some(precision)
    }

    /// The runtime's goal: on a detected device, the memory headroom is smaller.
    pub(crate) fn goal(&self, mut goal: Goal) -> Goal {
        if self.facts.memory_provenance == Provenance::Measured {
            goal.memory_headroom *= Goal::HEADROOM_KEPT;
        }
        goal
    }
}

/// Profiles of the usable GPUs, each once.
fn recognised(machine: &Machine, table: &ProfileTable) -> Vec<ProfileId> {
    let usable = (0..machine.gpus.len()).filter_map(|position| machine.usable(position, table).ok());
    let mut ids: Vec<_> = usable.filter_map(|gpu| Some(gpu.found.profile()?.id.clone())).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Devices to plan for.
pub(crate) struct Targets {
    all: Vec<Target>,
    /// This machine, and the requested GPU of it.
    here: Option<(Here, Option<WhichGpu>)>,
    left_out: Vec<String>,
}

impl Targets {
    /// The requested devices: by name, all, or of this machine; else those that the package declares.
    pub(crate) fn wanted(project: &Project, args: &TargetArgs, all: bool) -> Result<Self, Error> {
        if args.here.is_given() {
            return Self::here(project.profiles(), project.declared(), args.here);
        }
        let (targets, left_out) = if all {
            Target::all(project)
        } else if args.names.is_given() {
            (Target::all_named(&project.profiles(), &args.names)?, Vec::new())
        } else {
            (Target::declared(project), Vec::new())
        };
        if targets.is_empty() {
            return Err(project.without_targets());
        }
        Ok(Self { left_out, ..targets.into() })
    }

    /// The requested device: by name, or of this machine; else the only one that the package declares.
    pub(crate) fn one(project: &Project, args: &TargetArgs) -> Result<Self, Error> {
        let targets = Self::wanted(project, args, false)?;
        if args.here.is_given() || targets.all.len() == 1 {
            return Ok(targets);
        }
        let names = targets.all.into_iter().map(|target| target.name).collect();
        Err(if args.names.is_given() {
            Error::SeveralNamed { names }
        } else {
            Error::SeveralTargets { package: project.name().to_owned(), names }
        })
    }

    /// Devices of this machine, recognised among these profiles. `declared` are the GPUs that a package is built for.
    pub(crate) fn here(table: ProfileTable, declared: Vec<ProfileId>, args: HereArgs) -> Result<Self, Error> {
        let here = Here::read(table, declared);
        Ok(Self { all: here.targets(args.gpu)?, here: Some((here, args.gpu)), left_out: Vec::new() })
    }

    /// Every device. Of this machine without a number, those that a program may take, in the order of its choice.
    pub(crate) fn all(&self) -> &[Target] {
        &self.all
    }

    /// Returns true if a program takes one of the devices.
    pub(crate) const fn is_choice(&self) -> bool {
        matches!(self.here, Some((_, None)))
    }

    /// Notes on this machine, or on GPUs that are left out.
    pub(crate) fn notes(&self) -> Vec<String> {
        let here = self.here.iter().flat_map(|(here, _)| here.notes());
        let left_out = (!self.left_out.is_empty())
            .then(|| format!("left out, because Burn cannot train on them: {}", self.left_out.join(", ")));
        here.chain(left_out).collect()
    }

    /// The devices for a workload: all, or the one that a program takes, which is the first that fits; with the reasons.
    pub(crate) fn chosen(&self, fit: impl Fn(&Target) -> Fit<()>) -> (&[Target], Vec<String>) {
        if !self.is_choice() {
            return (&self.all, Vec::new());
        }
        let (index, reasons) = self.choose(&self.all.iter().map(fit).collect::<Vec<_>>());
        (&self.all[index..=index], reasons)
    }

    /// Index of the device that a program takes, with the reasons. `fits` are the plans for all devices.
    pub(crate) fn choose(&self, fits: &[Fit<()>]) -> (usize, Vec<String>) {
        self.here.as_ref().map_or_else(Default::default, |(here, _)| here.choose(fits))
    }

    pub(crate) fn map(mut self, change: impl FnOnce(Vec<Target>) -> Vec<Target>) -> Self {
        self.all = change(self.all);
        self
    }

    /// Names the GPU of this machine that would do in place of `refused`, or the limit of this process. Such a remedy leaves
    /// the run as it is.
    pub(crate) fn add_remedy(&self, misfit: &mut Misfit, refused: &Target, fit: impl Fn(&Target) -> Fit<()>) {
        let fits = |target: &Target| matches!(fit(target), Fit::Whole(()));
        if let Some(remedy) = self.here.as_ref().and_then(|(here, _)| here.remedy(refused, fits)) {
            misfit.remedies = vec![remedy];
        }
    }
}

impl From<Vec<Target>> for Targets {
    fn from(all: Vec<Target>) -> Self {
        Self { all, here: None, left_out: Vec::new() }
    }
}

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
    fn targets(&self, which: Option<WhichGpu>) -> Result<Vec<Target>, Error> {
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

    fn notes(&self) -> Vec<String> {
        let cpu = self.usable.is_empty().then(|| "no usable GPU: the plan is for the CPU".to_owned());
        self.trouble().into_iter().chain(cpu).collect()
    }

    /// Index of the GPU in [`usable`](Self::usable) that a program takes, with the reasons. `fits` are the plans for the
    /// GPUs. Without a plan that fits, the first GPU.
    fn choose(&self, fits: &[Fit<()>]) -> (usize, Vec<String>) {
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
    fn remedy(&self, refused: &Target, fits: impl Fn(&Target) -> bool) -> Option<Remedy> {
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
