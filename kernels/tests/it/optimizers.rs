use burn::module::Param;
use burn::optim as burn_optim;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Distribution, Tensor};
use gpu_tuned_kernels::optim;

type Parameter = Param<Tensor<2>>;

/// Optimizers of each kind and variant: ours, and Burn's.
fn pairs() -> Vec<(ModuleOptimizer, ModuleOptimizer)> {
    let decay = Some(WeightDecayConfig::new(0.01));
    vec![
        (optim::AdamConfig::new().init(), burn_optim::AdamConfig::new().init()),
        (
            optim::AdamConfig::new().with_beta_1(0.8).with_weight_decay(decay.clone()).init(),
            burn_optim::AdamConfig::new().with_beta_1(0.8).with_weight_decay(decay).init(),
        ),
        (optim::AdamWConfig::new().with_epsilon(1e-3).init(), burn_optim::AdamWConfig::new().with_epsilon(1e-3).init()),
        (
            optim::AdamWConfig::new().with_amsgrad(true).with_beta_2(0.9).init(),
            burn_optim::AdamWConfig::new().with_amsgrad(true).with_beta_2(0.9).init(),
        ),
        (
            optim::AdamWConfig::new().with_cautious_weight_decay(true).with_weight_decay(0.1).init(),
            burn_optim::AdamWConfig::new().with_cautious_weight_decay(true).with_weight_decay(0.1).init(),
        ),
    ]
}

fn stepped(optimizer: &mut ModuleOptimizer, parameter: Parameter, step: u32, input: &Tensor<2>) -> Parameter {
    let gradients = (parameter.val() * input.clone()).sum().backward();
    let gradients = GradientsParams::from_grads(gradients, &parameter);
    optimizer.step(f64::from(step % 7) * 1e-3, parameter, gradients)
}

#[test]
fn optimizers_and_records_are_burns() {
    let device = Device::flex().autodiff();
    device.seed(3);
    let random = || Tensor::<2>::random([4, 3], Distribution::Normal(0.0, 1.0), &device);
    for (mut ours, mut burns) in pairs() {
        let mut by_ours = Parameter::from_tensor(random());
        let mut by_burn = by_ours.clone();
        for step in 0..60 {
            let input = random();
            by_ours = stepped(&mut ours, by_ours, step, &input);
            by_burn = stepped(&mut burns, by_burn, step, &input);
            if step == 30 {
                // Each goes on with the state of the other.
                let states = [ours.into_bytes().expect("a record"), burns.into_bytes().expect("a record")];
                let [of_ours, of_burns] = states;
                ours = ours.from_bytes(of_burns).expect("a state");
                burns = burns.from_bytes(of_ours).expect("a state");
            }
        }
        by_ours.val().into_data().assert_eq(&by_burn.val().into_data(), true);
    }
}

#[test]
fn configs_have_the_defaults_and_files_of_burns() {
    use burn::config::Config;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let ours = optim::AdamWConfig::new().with_beta_1(0.7);
    ours.save(&file).expect("a file");
    let burns = burn_optim::AdamWConfig::load(&file).expect("a config");
    assert_eq!(burns.to_string(), ours.to_string());
    assert_eq!(optim::AdamConfig::new().to_string(), burn_optim::AdamConfig::new().to_string());
}
