use std::sync::Once;

use burn::optim::{LearningRate, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{Device, FloatDType, Tensor};

static WARNED: Once = Once::new();

/// An optimizer whose state is f32 also after it has been loaded from a record.
///
/// Burn 0.22.1 loads the state of optimizers in the default float type. Where that is a 16-bit one, moments lose their
/// precision, and the next step mixes them with f32 gradients. This loads them on a device whose default is f32, from
/// where Burn moves them to the gradient's in the next step. Records are those of the optimizer itself.
///
/// For training on a GPU, that device is the CPU, even with a default of fp32: Burn loads the states of all ranks on
/// its default device, which is the first GPU. Training on the CPU with a 16-bit default has no such device: the state
/// starts from zero, with a warning.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::optim::{AdamWConfig, ModuleOptimizer};
/// use gpu_tuned::mixed::F32State;
///
/// let optimizer: ModuleOptimizer = F32State::new(AdamWConfig::new().build()).into();
/// ```
#[derive(Clone, Debug)]
pub struct F32State<O> {
    optimizer: O,
}

impl<O: Optimizer> F32State<O> {
    /// Wraps the result of an optimizer config's `build`.
    pub fn new(optimizer: O) -> Self {
        Self { optimizer }
    }
}

/// The state of an optimizer, loaded in f32.
#[derive(Clone, Debug)]
pub struct Wide<S>(S);

impl<O: Optimizer> Optimizer for F32State<O> {
    type State<const D: usize> = Wide<O::State<D>>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let (tensor, state) = self.optimizer.step(lr, tensor, grad, state.map(|state| state.0));
        (tensor, state.map(Wide))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        Wide(O::to_device(state.0, device))
    }
}

impl<S: RecordState> RecordState for Wide<S> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        self.0.state_flatten(prefix, out);
    }

    fn state_unflatten(prefix: &str, src: &mut StateSource, device: &Device) -> Option<Self> {
        let exact = [Device::flex(), device.clone()].into_iter().find(has_f32);
        if exact.is_none() {
            let text =
                "no device has f32 as its default float type: the optimizer's state is not loaded, and begins anew";
            WARNED.call_once(|| tracing::warn!("{text}"));
        }
        S::state_unflatten(prefix, src, &exact?).map(Self)
    }
}

fn has_f32(device: &Device) -> bool {
    device.settings().float_dtype == FloatDType::F32
}
