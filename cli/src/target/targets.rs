//! The devices of a command.

use gpu_tuned_core::plan::Misfit;
use gpu_tuned_core::profile::{ProfileId, ProfileTable};
use gpu_tuned_nvml::Fit;

use super::Target;
use super::here::Here;
use crate::args::{HereArgs, TargetArgs, WhichGpu};
use crate::error::Error;
use crate::project::Project;

/// Devices to plan for.
pub(crate) struct Targets {
    all: Vec<Target>,
    /// This machine, and the requested GPU of it.
    here: Option<(Here, Option<WhichGpu>)>,
    /// GPUs that Burn cannot train on.
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

    /// Changes the list of devices.
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
