//! The models as `gpu-tuned` describes them.

use gpu_tuned::measure::Subject;
use gpu_tuned::optim::AdamWConfig;
use gpu_tuned::{Precision, Tuned, gpu_tuned};

use crate::network::{Batch, Fill, Model, Network};

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
        transformer(layers = 6, d_model = 384, vocab = 50257, seq = 256, heads = 6, causal = false, dropout = false,
                    positions = "none", final_norm = false, tied_head = false),
        global_batch = 256, target = "h200"
    )]
    GptConfig;

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
        convnet(image = 64, classes = 10, stages = [[64, 3], [128, 3], [256, 3]], block = "basic",
                batch_statistics = true),
        global_batch = 512, target = "h200"
    )]
    ResidualConfig;

    #[gpu_tuned(
        convnet(image = 64, classes = 10, stages = [[64, 3], [128, 3], [256, 3]], block = "separable", stem_kernel = 3,
                stem_stride = 2, stem_channels = 64, last_channels = 256, batch_statistics = true),
        global_batch = 512, target = "h200"
    )]
    DepthwiseConfig;

    #[gpu_tuned(
        recurrent(inputs = 64, hidden = 256, layers = 3, seq = 60, outputs = 10),
        global_batch = 512, target = "h200"
    )]
    LstmConfig;

    #[gpu_tuned(
        unet(image = 128, widths = [32, 64, 128, 256], classes = 2),
        global_batch = 512, target = "h200"
    )]
    UNetConfig;

    #[gpu_tuned(
        vit(image = 96, patch = 8, classes = 10, layers = 4, d_model = 256, heads = 4, class_token = false,
            dropout = false),
        global_batch = 512, target = "h200"
    )]
    VitConfig;
}

/// Work with the config of a model, whose type depends on the model.
pub trait WithConfig {
    /// Result of the work.
    type Output;

    /// Does the work.
    fn run<C: Tuned>(self, config: C) -> Self::Output;
}

/// Samples in an optimizer step, as the configs above have it.
pub(crate) const GLOBAL_BATCH: usize = 512;

impl Model {
    /// Does `work` with the config of the model, in the planned precision or in another.
    pub fn with_config<W: WithConfig>(self, precision: impl Into<Option<Precision>>, work: W) -> W::Output {
        let precision = precision.into();
        macro_rules! run {
            ($config:ident) => {{
                let planned = $config::default();
                work.run($config { precision: precision.unwrap_or(planned.precision) })
            }};
        }
        match self {
            Self::Transformer => run!(TransformerConfig),
            Self::Gpt => run!(GptConfig),
            Self::Convnet => run!(ConvnetConfig),
            Self::ResNet => run!(ResNetConfig),
            Self::Residual => run!(ResidualConfig),
            Self::Depthwise => run!(DepthwiseConfig),
            Self::Lstm => run!(LstmConfig),
            Self::UNet => run!(UNetConfig),
            Self::Vit => run!(VitConfig),
        }
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

    use super::*;
    use crate::network::Model;

    #[test]
    fn descriptions_have_the_parameters_of_the_models() {
        let described = [
            (Model::Transformer, TransformerConfig::default().workload()),
            (Model::Gpt, GptConfig::default().workload()),
            (Model::Convnet, ConvnetConfig::default().workload()),
            (Model::ResNet, ResNetConfig::default().workload()),
            (Model::Residual, ResidualConfig::default().workload()),
            (Model::Depthwise, DepthwiseConfig::default().workload()),
            (Model::Lstm, LstmConfig::default().workload()),
            (Model::UNet, UNetConfig::default().workload()),
            (Model::Vit, VitConfig::default().workload()),
        ];
        for (model, spec) in described {
            let workload = spec.workload();
            let all = workload.parameters.trained() + workload.parameters.frozen;
            assert_eq!(model.network(&Device::flex()).num_params() as u64, all, "{model:?}");
        }
    }
}
