//! The model that a config trains.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, Provenance};
use gpu_tuned_optimize::{Config, ConfigEntry, ConfigText, Dimension, Model, ModelRequest};

use super::args::OptimizeArgs;
use crate::error::Error;
use crate::project::{Project, WorkloadArgs};

pub(super) struct Training {
    pub name: String,
    pub workload: Workload,
    pub spec: WorkloadSpec,
    pub goal: Goal,
    /// Origin of the description.
    pub because: String,
    pub dims: Vec<Dimension>,
    /// True if the optimizer is not assumed.
    pub optimizer_known: bool,
}

/// The workload of the package that is named; else the model of the config or of `--model-config`, with its measurements.
/// Measurements on the devices are preferred.
pub(super) fn training(
    project: Option<&Project>,
    args: &OptimizeArgs,
    entries: &[ConfigEntry],
    text: &ConfigText,
    config: &Config,
    devices: &[DeviceFacts],
) -> Result<Training, Error> {
    let asked = &args.model;
    let is_of_package = asked.workload.is_some() || args.benchmark && asked.model.is_none() && asked.dims.is_empty();
    if let Some(project) = project.filter(|_| is_of_package) {
        let described = project.workload(&WorkloadArgs { workload: asked.workload.clone(), structure: None })?;
        let workload = described.workload();
        let costs = workload.measured.describe().unwrap_or_else(|| match workload.provenance {
            Provenance::Declared => "costs as declared".to_owned(),
            _ => "costs from its dimensions".to_owned(),
        });
        return Ok(Training {
            name: described.name.to_owned(),
            because: format!("workload `{}` of `{}`, {costs}", described.name, project.name()),
            workload,
            spec: described.spec.clone(),
            goal: described.goal,
            dims: Vec::new(),
            optimizer_known: true,
        });
    }
    let optimizer = config.optimizer;
    let request = ModelRequest { kind: asked.model.as_deref(), dims: &asked.dims, optimizer, config: Some(config) };
    let model = match &asked.model_config {
        Some(path) => {
            let file = ConfigText::read(path)?;
            Model::read(&file.entries()?, &file, &request)
        }
        None => Model::read(entries, text, &request),
    }?;
    let kind = model.spec.model.kind().name;
    let mut workload = model.spec.workload();
    let mut because = format!("{kind}, {}", model.because);
    if let Some((name, measured)) = project.and_then(|project| project.measured_for(&model.spec, devices)) {
        workload = workload.with_measured(measured.clone());
        because = format!("{because}; measured as `{name}`");
    }
    Ok(Training {
        name: kind.to_owned(),
        because,
        workload,
        optimizer_known: optimizer.is_some() || model.dims.iter().any(|dim| dim.name == "optimizer"),
        spec: model.spec,
        goal: Goal::default(),
        dims: model.dims,
    })
}
