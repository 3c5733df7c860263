//! Arguments that choose workloads.

use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_project::config::workload_from_words;

use crate::args::pair;
use crate::error::Error;

/// The workload or the struct of a package.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// Use this workload only
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// Use this annotated struct only
    #[arg(id = "struct", long = "struct", value_name = "NAME", conflicts_with = "workload")]
    pub structure: Option<String>,
}

impl WorkloadArgs {
    /// Returns true if a workload or a struct is chosen.
    pub(crate) const fn is_given(&self) -> bool {
        self.workload.is_some() || self.structure.is_some()
    }
}

/// The workload of a package, or a model without a package.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ModelOrWorkloadArgs {
    #[command(flatten)]
    pub of_package: WorkloadArgs,
    /// Describe the model here, without a package: in the words of the attribute, such as `mlp(widths = [784, 10])`, or by its
    /// kind with --dim for each dimension: transformer, encoder_decoder, vit, convnet, unet, mlp, recurrent, lstm, gru, or
    /// declared (costs)
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["workload", "struct"])]
    pub model: Option<String>,
    /// Dimension of --model, or key of its training, such as `seq=512` or `lora_rank=8`; repeatable
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = pair, requires = "model")]
    pub dims: Vec<(String, String)>,
    /// Optimizer of --model: sgd, momentum, adam, adamw (the default), adafactor or muon
    #[arg(long, value_name = "NAME", requires = "model")]
    pub optimizer: Option<String>,
}

impl ModelOrWorkloadArgs {
    /// Returns the model's name and description; `None` without `--model`.
    ///
    /// # Errors
    ///
    /// When the model or a dimension is unknown, missing or out of range.
    pub(crate) fn model(&self) -> Result<Option<(&str, WorkloadSpec)>, Error> {
        let Some(model) = &self.model else { return Ok(None) };
        let optimizer = self.optimizer.iter().map(|name| ("optimizer".to_owned(), name.clone()));
        let pairs: Vec<_> = self.dims.iter().cloned().chain(optimizer).collect();
        workload_from_words(model, &pairs).map(Some).map_err(|source| Error::Model { source })
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::workload::ModelKind;

    #[test]
    fn every_help_about_models_lists_every_kind() {
        let command = crate::command();
        let mut lists = 0;
        for command in command.get_subcommands() {
            let help = command.get_arguments().find(|argument| argument.get_id() == "model").map(clap::Arg::get_help);
            let Some(help) = help.flatten().map(ToString::to_string) else { continue };
            let words: Vec<_> = help.split([' ', ',']).collect();
            for kind in ModelKind::requestable() {
                assert!(words.contains(&kind), "{}: {kind} in {help}", command.get_name());
            }
            lists += 1;
        }
        assert_eq!(lists, 3);
    }
}
