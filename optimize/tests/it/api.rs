//! The crate's public API, as the command line uses it. A change of the API is mended here only.

use std::path::Path;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{Transformer, WorkloadSpec};
use gpu_tuned_core::{Bytes, Goal, Precision};
use gpu_tuned_optimize::{Change, Config, ConfigText, Model, ModelRequest, OptimizeError, Step, Tuned, Tuner};

use crate::table::{Options, path};

/// A config with everything that is read from it.
pub(crate) struct Reading {
    file: ConfigText,
    config: Config,
    pub(crate) step: Step,
    pub(crate) model: Result<WorkloadSpec, OptimizeError>,
}

/// Options of an edit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    /// `--add`
    pub(crate) add_keys: bool,
    /// `--precision`
    pub(crate) precision: Option<Precision>,
}

/// A config edited for a GPU.
pub(crate) struct Edited {
    pub(crate) before: String,
    /// The edited text; `None` where the training does not fit.
    pub(crate) after: Option<String>,
    pub(crate) changes: Vec<Change>,
    pub(crate) precision: Option<String>,
    pub(crate) problem: Option<String>,
    /// Memory of the config as it is.
    pub(crate) memory: Option<Bytes>,
}

/// Reads a config as the command does. Errors of the model are kept, because most values do not need one.
pub(crate) fn read(file: &Path, model: Option<&str>, options: &Options) -> Result<Reading, OptimizeError> {
    read_text(ConfigText::read(file)?, model, options)
}

fn read_text(file: ConfigText, model: Option<&str>, options: &Options) -> Result<Reading, OptimizeError> {
    let entries = file.entries()?;
    let config = Config::read(&entries, &file, &[])?;
    let step = Step::new(&config, options.global_batch, options.world_size)?;
    let request = ModelRequest { kind: None, dims: &options.dims, optimizer: config.optimizer, config: Some(&config) };
    let model = match model {
        Some(model) => {
            ConfigText::read(&path("configs", model)).and_then(|other| Model::read(&other.entries()?, &other, &request))
        }
        None => Model::read(&entries, &file, &request),
    };
    Ok(Reading { model: model.map(|model| model.spec), file, config, step })
}

impl Reading {
    pub(crate) fn workers(&self) -> Option<u64> {
        self.config.workers
    }

    pub(crate) fn optimizer(&self) -> Option<String> {
        self.config.optimizer.map(|optimizer| optimizer.name().to_owned())
    }

    /// The precision that the config asks for: that of a small model's plan for a GPU with every precision.
    pub(crate) fn precision(&self) -> Result<String, String> {
        let small = WorkloadSpec::from(Transformer::new(2, 64, 256, 16));
        let edited = self.tune("b200", &small, Asked::default())?;
        edited.precision.ok_or_else(|| edited.problem.unwrap_or_default())
    }

    /// Tunes the config for a GPU, on a host whose cores are unknown.
    pub(crate) fn tune(&self, gpu: &str, spec: &WorkloadSpec, asked: Asked) -> Result<Edited, String> {
        let workload = spec.workload();
        let tuner = Tuner {
            config: &self.config,
            step: self.step,
            spec,
            workload: &workload,
            name: "model",
            goal: Goal::default(),
            headroom: None,
            precision: asked.precision.map(Into::into),
            add_keys: asked.add_keys,
            framework: self.config.framework(),
        };
        let facts = DeviceFacts::nominal(ProfileTable::builtin().get(gpu).expect("a shipped profile"));
        let tuned: Tuned = tuner.tune(gpu, &facts, Goal::default()).map_err(|error| error.to_string())?;
        Ok(Edited {
            before: self.file.text.clone(),
            after: tuned.text,
            changes: tuned.changes,
            precision: tuned.settings.map(|settings| settings.precision.name().to_owned()),
            problem: tuned.after.problem,
            memory: tuned.before.memory_bytes,
        })
    }

    /// Reads an edited text as this config was read.
    pub(crate) fn again(&self, text: &str, model: Option<&str>, options: &Options) -> Result<Self, OptimizeError> {
        read_text(ConfigText::new(&self.file.path, self.file.format, text), model, options)
    }
}
