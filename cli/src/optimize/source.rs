//! What is read: the config, and what it trains.

use std::path::{Path, PathBuf};

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Optimizer, Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, Provenance};

use super::args::OptimizeArgs;
use super::error::OptimizeError;
use super::leaf::{Leaf, leaves};
use super::model::{Asked, Dimension, Model, NoModel};
use super::text::{Format, Node};
use crate::error::Error;
use crate::project::{Project, WorkloadArgs};

/// A file with its text.
pub(super) struct Read {
    pub path: PathBuf,
    /// The file as it is named in messages.
    pub name: String,
    pub text: String,
    /// The mark that some editors put before the text.
    pub mark: &'static str,
    pub format: Format,
}

/// What stands before a text in UTF-8, where something does.
const MARK: &str = "\u{feff}";

impl Read {
    pub(super) fn from(path: &Path) -> Result<Self, Error> {
        let format = Format::of(path).ok_or_else(|| OptimizeError::Format { path: path.to_owned() })?;
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let (mark, text) = text.strip_prefix(MARK).map_or(("", text.as_str()), |text| (MARK, text));
        Ok(Self { path: path.to_owned(), name: path.display().to_string(), text: text.to_owned(), mark, format })
    }

    /// A text as the file has it, with the mark.
    pub(super) fn marked(&self, text: &str) -> String {
        format!("{}{text}", self.mark)
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source { file: &self.name, text: &self.text }
    }

    pub(super) fn tree(&self) -> Result<Node, Error> {
        self.format.parse(self.source()).map_err(|mistake| self.mistakes(vec![mistake]))
    }

    /// The mistakes with the text that they are in.
    pub(super) fn mistakes(&self, mistakes: Vec<FileError>) -> Error {
        Error::Files { mistakes: mistakes.into_iter().map(|mistake| (mistake, self.text.clone())).collect() }
    }
}

/// What the config trains.
pub(super) struct Training {
    pub name: String,
    pub workload: Workload,
    /// How the model is described, where it is by dimensions.
    pub spec: Option<WorkloadSpec>,
    pub goal: Goal,
    /// What tells that it is this model, in words.
    pub because: String,
    pub dims: Vec<Dimension>,
    /// Whether something says which optimizer it is.
    pub optimizer_known: bool,
}

/// The workload: of the package, where one is named; else by the dimensions of the config, or of the file that has them, with
/// what was measured of them, rather on the devices that are planned for.
pub(super) fn training(
    project: Option<&Project>,
    args: &OptimizeArgs,
    leaves_of_config: &[Leaf<'_>],
    config: &Read,
    optimizer: Option<Optimizer>,
    devices: &[DeviceFacts],
) -> Result<Training, Error> {
    let is_of_package =
        args.model.workload.is_some() || args.benchmark && args.model.model.is_none() && args.model.dims.is_empty();
    if let Some(project) = project.filter(|_| is_of_package) {
        let described = project.workload(&WorkloadArgs { workload: args.model.workload.clone(), structure: None })?;
        let workload = described.workload();
        let what = workload.measured.in_words().unwrap_or_else(|| match workload.provenance {
            Provenance::Declared => "costs as declared".to_owned(),
            _ => "costs from its dimensions".to_owned(),
        });
        return Ok(Training {
            name: described.name.to_owned(),
            because: format!("workload `{}` of `{}`, {what}", described.name, project.name()),
            workload,
            spec: Some(described.spec.clone()),
            goal: described.goal,
            dims: Vec::new(),
            optimizer_known: true,
        });
    }
    let asked = Asked { kind: args.model.model.as_deref(), dims: &args.model.dims, optimizer };
    let model = match &args.model.model_config {
        Some(path) => {
            let file = Read::from(path)?;
            let root = file.tree()?;
            read(&leaves(&root), &file, &asked)
        }
        None => read(leaves_of_config, config, &asked),
    }?;
    let optimizer_known = optimizer.is_some() || model.dims.iter().any(|dim| dim.name == "optimizer");
    let mut workload = model.spec.workload();
    let mut because = format!("{}: {}", model.spec.model.kind().name, model.because);
    if let Some((name, measured)) = project.and_then(|project| project.measured_for(&model.spec, devices)) {
        workload = workload.with_measured(measured.clone());
        because = format!("{because}; measured as `{name}`");
    }
    let name = model.spec.model.kind().name.to_owned();
    Ok(Training {
        name,
        because,
        workload,
        spec: Some(model.spec),
        goal: Goal::default(),
        dims: model.dims,
        optimizer_known,
    })
}

fn read(leaves: &[Leaf<'_>], file: &Read, asked: &Asked<'_>) -> Result<Model, Error> {
    Model::read(leaves, file.source(), asked).map_err(|none| match none {
        NoModel::Mistakes(mistakes) => file.mistakes(mistakes),
        NoModel::Unknown(error) => error.into(),
    })
}
