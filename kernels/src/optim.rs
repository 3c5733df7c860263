//! Burn's optimizers under Burn's names, with one kernel for each parameter where the library is
//! [selected](crate::selection).
//!
//! A program changes `burn::optim` to this module. Configs, states and records are Burn's: what was saved with one loads
//! with the other. Optimizers without a faster version are Burn's own.
//!
//! Values are those of Burn's optimizers up to rounding. Parameters that are not f32, the first step of a parameter, and
//! AMSGrad and cautious weight decay use Burn's kernels.

use burn::config::Config;
use burn::grad_clipping::GradientClippingConfig;
use burn::optim as burn_optim;
use burn::optim::decay::WeightDecayConfig;
use burn::tensor::{Device, Tensor};

pub use burn::optim::*;

use crate::product::{AdamFactors, adam};

/// Config of Adam, with the fields, defaults and files of Burn's.
#[derive(Config, Debug)]
pub struct AdamConfig {
    /// Part of the first moment that a step keeps.
    #[config(default = 0.9)]
    beta_1: f32,
    /// Part of the second moment that a step keeps.
    #[config(default = 0.999)]
    beta_2: f32,
    /// Number that is added to the root of the second moment.
    #[config(default = 1e-5)]
    epsilon: f32,
    /// Uses the largest second moment so far (AMSGrad).
    #[config(default = false)]
    amsgrad: bool,
    /// Part of the parameters that is added to the gradients.
    weight_decay: Option<WeightDecayConfig>,
    /// Clipping of the gradient of each parameter.
    grad_clipping: Option<GradientClippingConfig>,
}

/// Config of AdamW, with the fields, defaults and files of Burn's.
#[derive(Config, Debug)]
pub struct AdamWConfig {
    /// Part of the first moment that a step keeps.
    #[config(default = 0.9)]
    beta_1: f32,
    /// Part of the second moment that a step keeps.
    #[config(default = 0.999)]
    beta_2: f32,
    /// Number that is added to the root of the second moment.
    #[config(default = 1e-5)]
    epsilon: f32,
    /// Part of the parameters, times the learning rate, that a step takes off.
    #[config(default = 1e-4)]
    weight_decay: f32,
    /// Leaves the decay out where it is against the step: see [Burn's config](burn::optim::AdamWConfig).
    #[config(default = false)]
    cautious_weight_decay: bool,
    /// Uses the largest second moment so far (AMSGrad).
    #[config(default = false)]
    amsgrad: bool,
    /// Clipping of the gradient of each parameter.
    grad_clipping: Option<GradientClippingConfig>,
}

impl AdamConfig {
    /// The optimizer of one parameter group, without clipping.
    pub fn build(&self) -> Adam {
        let config = burn_optim::AdamConfig::new()
            .with_beta_1(self.beta_1)
            .with_beta_2(self.beta_2)
            .with_epsilon(self.epsilon)
            .with_amsgrad(self.amsgrad)
            .with_weight_decay(self.weight_decay.clone());
        let rates = Rates {
            betas: [self.beta_1, self.beta_2],
            epsilon: self.epsilon,
            penalty: self.weight_decay.as_ref().map_or(0.0, |decay| decay.penalty),
            decay: 0.0,
        };
        Adam { burn: config.build(), rates: (!self.amsgrad).then_some(rates) }
    }

    /// The optimizer of a module.
    pub fn init(&self) -> ModuleOptimizer {
        of_module(self.build(), self.grad_clipping.as_ref())
    }
}

impl AdamWConfig {
    /// The optimizer of one parameter group, without clipping.
    pub fn build(&self) -> AdamW {
        let config = burn_optim::AdamWConfig::new()
            .with_beta_1(self.beta_1)
            .with_beta_2(self.beta_2)
            .with_epsilon(self.epsilon)
            .with_weight_decay(self.weight_decay)
            .with_cautious_weight_decay(self.cautious_weight_decay)
            .with_amsgrad(self.amsgrad);
        let (betas, decay) = ([self.beta_1, self.beta_2], self.weight_decay);
        let rates = Rates { betas, epsilon: self.epsilon, penalty: 0.0, decay };
        let has_kernel = !self.amsgrad && !self.cautious_weight_decay;
        AdamW { burn: config.build(), rates: has_kernel.then_some(rates) }
    }

    /// The optimizer of a module.
    pub fn init(&self) -> ModuleOptimizer {
        of_module(self.build(), self.grad_clipping.as_ref())
    }
}

fn of_module(optimizer: impl Optimizer, clipping: Option<&GradientClippingConfig>) -> ModuleOptimizer {
    let optimizer = ModuleOptimizer::from(optimizer);
    match clipping {
        Some(clipping) => optimizer.with_grad_clipping(clipping.init()),
        None => optimizer,
    }
}

/// Adam, by one kernel where it can be.
#[derive(Clone)]
pub struct Adam {
    burn: burn_optim::Adam,
    /// Numbers of the kernel; `None` for a variant that it does not compute.
    rates: Option<Rates>,
}

/// AdamW, by one kernel where it can be.
#[derive(Clone)]
pub struct AdamW {
    burn: burn_optim::AdamW,
    /// Numbers of the kernel; `None` for a variant that it does not compute.
    rates: Option<Rates>,
}

#[derive(Clone, Copy)]
struct Rates {
    betas: [f32; 2],
    epsilon: f32,
    penalty: f32,
    decay: f32,
}

impl Rates {
    /// Factors of a step, in the types in which Burn computes them.
    fn factors(&self, rate: LearningRate, time: usize) -> AdamFactors {
        let [beta_1, beta_2] = self.betas;
        let time = i32::try_from(time).unwrap_or(i32::MAX);
        AdamFactors {
            penalty: self.penalty,
            beta_1,
            beta_2,
            share_1: 1.0 - beta_1,
            share_2: 1.0 - beta_2,
            correction_1: 1.0 - beta_1.powi(time),
            correction_2: 1.0 - beta_2.powi(time),
            epsilon: self.epsilon,
            kept: (1.0 - rate * f64::from(self.decay)) as f32,
            rate: rate as f32,
        }
    }

    /// The new parameter and the new state; `None` where Burn's kernels compute.
    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        parameter: &Tensor<D>,
        gradient: &Tensor<D>,
        state: &AdaptiveMomentumState<D>,
    ) -> Option<(Tensor<D>, AdaptiveMomentumState<D>)> {
        let time = state.time + 1;
        let moments = [&state.moment_1, &state.moment_2];
        let (parameter, [moment_1, moment_2]) = adam(parameter, gradient, moments, self.factors(rate, time))?;
        Some((parameter, AdaptiveMomentumState::new(time, moment_1, moment_2)))
    }
}

macro_rules! optimizers {
    ($($name:ident with $state:ident;)*) => {$(
        impl Optimizer for $name {
            type State<const D: usize> = $state<D>;

            fn step<const D: usize>(
                &self,
                rate: LearningRate,
                parameter: Tensor<D>,
                gradient: Tensor<D>,
                state: Option<$state<D>>,
            ) -> (Tensor<D>, Option<$state<D>>) {
                if let (Some(rates), Some(state)) = (&self.rates, &state)
                    && let Some((parameter, momentum)) = rates.step(rate, &parameter, &gradient, &state.momentum)
                {
                    return (parameter, Some($state::new(momentum)));
                }
                self.burn.step(rate, parameter, gradient, state)
            }

            fn to_device<const D: usize>(state: $state<D>, device: &Device) -> $state<D> {
                burn_optim::$name::to_device(state, device)
            }
        }
    )*};
}

optimizers! {
    Adam with AdamState;
    AdamW with AdamWState;
}
