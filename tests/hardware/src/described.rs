//! The models as `gpu-tuned` describes them.

use gpu_tuned::measure::Subject;
use gpu_tuned::{Options, Precision, gpu_tuned};

use burn::optim::AdamWConfig;

use crate::{
    baseline::{self, Trained},
    mode,
    network::{Batch, Fill, Model, Network},
    warm::{self, Warmed},
};

macro_rules! described {
    ($($(#[$tuned:meta])+ $config:ident;)+) => {$(
        $(#[$tuned])+
        #[derive(Clone, Debug)]
        struct $config {
            #[tuned]
            precision: Precision,
        }
    )+};
}

described! {
    #[gpu_tuned(
        transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256, heads = 8, causal = false, dropout = false,
                    positions = "none", final_norm = false, tied_head = false),
        global_batch = 512, target = "h200"
    )]
    TransformerConfig;

    #[gpu_tuned(
        convnet(image = 64, classes = 10, stages = [[96, 8]], batch_statistics = true),
        global_batch = 512, target = "h200"
    )]
    ConvnetConfig;

    #[gpu_tuned(
        convnet(image = 32, classes = 10, stages = [[64, 2], [128, 2], [256, 2], [512, 2]], block = "basic",
                batch_statistics = true),
        global_batch = 512, target = "h200"
    )]
    ResNetConfig;

    #[gpu_tuned(
        recurrent(inputs = 64, hidden = 256, layers = 3, seq = 60, outputs = 10),
        global_batch = 512, target = "h200"
    )]
    LstmConfig;

    #[gpu_tuned(
        unet(image = 128, widths = [32, 64, 128, 256], classes = 2, batch_statistics = true),
        global_batch = 512, target = "h200"
    )]
    UNetConfig;
}

/// Evaluates an expression with the config of a model in a precision.
macro_rules! with_config {
    ($model:expr, $precision:expr, $config:ident => $work:expr) => {{
        let precision = $precision;
        match $model {
            Model::Transformer => with_config!(TransformerConfig { precision }, $config => $work),
            Model::Convnet => with_config!(ConvnetConfig { precision }, $config => $work),
            Model::ResNet => with_config!(ResNetConfig { precision }, $config => $work),
            Model::Lstm => with_config!(LstmConfig { precision }, $config => $work),
            Model::UNet => with_config!(UNetConfig { precision }, $config => $work),
        }
    }};
    ($new:expr, $config:ident => $work:expr) => {{
        let $config = $new;
        $work
    }};
}

/// Samples in an optimizer step, as the configs above have it.
pub(crate) const GLOBAL_BATCH: usize = 512;

impl Model {
    /// If `cargo gpu-tuned measure` started the program, measures the model on the session's GPU into a lock, and
    /// ends the process.
    pub(crate) fn measure_if_asked(self, name: &str, precision: mode::Precision) -> anyhow::Result<()> {
        let subject = self.subject();
        with_config!(self, precision.into(), config => Options::default().start(config)?.measure_if_asked(name, &subject)?);
        Ok(())
    }

    /// Takes the first steps of a session, or writes a kernel cache archive on request.
    pub(crate) fn warmed(self, precision: mode::Precision, wanted: warm::Wanted) -> anyhow::Result<Warmed> {
        with_config!(self, precision.into(), config => wanted.take(self, || Options::default().start(config)))
    }

    /// Trains with the settings of a run.
    pub(crate) fn tuned(self, run: &baseline::Arguments) -> anyhow::Result<Trained> {
        with_config!(self, run.precision, config => run.tuned(run.options().start(config)?))
    }

    /// The parts of a step.
    pub(crate) fn subject(self) -> Subject<'static, Network, Batch> {
        Subject::new(
            move |device| self.network(device),
            || AdamWConfig::new().init(),
            move |samples, device| self.batch(samples, Fill::Random, device),
            |network: &Network, batch: Batch| network.loss(batch),
        )
    }
}

#[cfg(test)]
mod tests {
    use burn::{module::Module, tensor::Device};
    use gpu_tuned::Tuned;

    use super::{ConvnetConfig, LstmConfig, ResNetConfig, TransformerConfig, UNetConfig};
    use crate::network::Model;

    #[test]
    fn descriptions_have_the_parameters_of_the_models() {
        let described = [
            (Model::Transformer, TransformerConfig::default().workload()),
            (Model::Convnet, ConvnetConfig::default().workload()),
            (Model::ResNet, ResNetConfig::default().workload()),
            (Model::Lstm, LstmConfig::default().workload()),
            (Model::UNet, UNetConfig::default().workload()),
        ];
        for (model, spec) in described {
            let workload = spec.workload();
            let all = workload.parameters.trained() + workload.parameters.frozen;
            assert_eq!(model.network(&Device::flex()).num_params() as u64, all, "{model:?}");
            let name = serde_json::to_value(model).expect("a name");
            // PyTorch trains the models of docs/speed.md.
            if model == Model::UNet {
                continue;
            }
            let in_python = format!("{name}: {}", workload.parameters.trained());
            assert!(include_str!("../peer.py").contains(&in_python), "peer.py has other parameters: {in_python}");
        }
    }
}
