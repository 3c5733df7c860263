//! Devices of a model's parameters.

use burn::module::Module;
use burn::tensor::Device;

use crate::visit::visit_floats;

/// Devices of the float parameters that have autodiff, one a parameter. A module's own list merges devices that differ only
/// in activation checkpointing.
pub fn differentiated(model: &impl Module) -> Vec<Device> {
    visit_floats!(model, devices = Vec::new(), Vec<Device>, |param| {
        let device = param.val().device();
        if device.gradient_checkpointing_strategy().is_some() {
            devices.push(device);
        }
    })
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::differentiated;

    #[derive(Module, Debug)]
    struct Pair {
        first: Linear,
        second: Linear,
    }

    #[test]
    fn every_parameter_counts_and_those_without_autodiff_do_not() {
        let layer = |device: &Device| LinearConfig::new(2, 2).with_bias(false).init(device);
        let plain = Device::flex();
        let (kept, recomputed) = (plain.clone().autodiff(), plain.clone().autodiff().gradient_checkpointing());
        let strategies = |first: &Device, second: &Device| {
            let pair = Pair { first: layer(first), second: layer(second) };
            differentiated(&pair).iter().map(Device::gradient_checkpointing_strategy).collect::<Vec<_>>()
        };
        assert_eq!(strategies(&plain, &kept), [kept.gradient_checkpointing_strategy()]);
        let both = [&kept, &recomputed].map(Device::gradient_checkpointing_strategy);
        assert!(both[0] != both[1]);
        assert_eq!(strategies(&kept, &recomputed), both);
    }
}
