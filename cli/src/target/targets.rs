//! The devices of a command.

use gpu_tuned_core::plan::Misfit;
use gpu_tuned_core::profile::{ProfileId, ProfileTable};

use super::Target;
use super::here::Here;
use crate::args::{HereArgs, WhichGpu};
use crate::error::Error;
use crate::project::Project;

/// Devices to plan for.
pub(crate) struct Targets {
    all: Vec<Target>,
    /// This machine, and the requested GPU of it.
    here: Option<(Here, Option<WhichGpu>)>,
}

impl Targets {
    /// The requested devices: by name, all, or of this machine; else those that the package declares.
    pub(crate) fn wanted(project: &Project, names: &[String], all: bool, here: HereArgs) -> Result<Self, Error> {
        if here.is_given() {
            return Self::here(&project.profiles(), &project.declared(), here);
        }
        let targets = match names {
            _ if all => Target::all(project),
            [] => Target::declared(project),
            names => Target::all_named(project, names)?,
        };
        if targets.is_empty() {
            return Err(project.without_targets());
        }
        Ok(targets.into())
    }

    /// The requested device: by name, or of this machine; else the only one that the package declares.
    pub(crate) fn one(project: &Project, name: Option<&str>, here: HereArgs) -> Result<Self, Error> {
        if here.is_given() {
            return Self::here(&project.profiles(), &project.declared(), here);
        }
        if let Some(name) = name {
            return Ok(vec![Target::named(project, name)?].into());
        }
        let declared = Target::declared(project);
        match declared.len() {
            0 => Err(project.without_targets()),
            1 => Ok(declared.into()),
            _ => {
                let names = declared.into_iter().map(|target| target.name).collect();
                Err(Error::SeveralTargets { package: project.name().to_owned(), names })
            }
        }
    }

    /// Devices of this machine, recognised among these profiles. `declared` are the GPUs that a package is built for.
    pub(crate) fn here(table: &ProfileTable, declared: &[ProfileId], args: HereArgs) -> Result<Self, Error> {
        let here = Here::read(table.clone(), declared);
        Ok(Self { all: here.targets(args.gpu)?, here: Some((here, args.gpu)) })
    }

    /// Every device. Of this machine without a number, those that a program may take, in the order of its choice.
    pub(crate) fn all(&self) -> &[Target] {
        &self.all
    }

    /// Returns true if a program takes one of the devices.
    pub(crate) const fn is_choice(&self) -> bool {
        matches!(self.here, Some((_, None)))
    }

    /// Notes on this machine.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.here.as_ref().map_or_else(Vec::new, |(here, _)| here.notes())
    }

    /// The devices for a workload: all, or the one that a program takes, which is the first that fits; with the reasons.
    pub(crate) fn chosen(&self, fits: impl Fn(&Target) -> bool) -> (&[Target], Vec<String>) {
        match &self.here {
            Some((_, None)) => {
                let (index, reasons) = self.choose(self.all.iter().map(fits));
                (&self.all[index..=index], reasons)
            }
            _ => (&self.all, Vec::new()),
        }
    }

    /// Index of the device that a program takes, with the reasons. `fit` reports whether each device fits.
    pub(crate) fn choose(&self, mut fit: impl Iterator<Item = bool>) -> (usize, Vec<String>) {
        let index = fit.position(core::convert::identity).unwrap_or(0);
        (index, self.here.as_ref().map_or_else(Vec::new, |(here, _)| here.reasons(index)))
    }

    /// Changes the list of devices.
    pub(crate) fn map(mut self, change: impl FnOnce(Vec<Target>) -> Vec<Target>) -> Self {
        self.all = change(self.all);
        self
    }

    /// Names the GPU of this machine that would do, where none of the devices that a program may take fits.
    pub(crate) fn add_remedy(&self, misfit: &mut Misfit, fits: impl Fn(&Target) -> bool) {
        let remedy = self.here.as_ref().and_then(|(here, which)| here.remedy(*which, fits));
        if let Some(remedy) = remedy {
            misfit.remedy = remedy;
        }
    }
}

impl From<Vec<Target>> for Targets {
    fn from(all: Vec<Target>) -> Self {
        Self { all, here: None }
    }
}
