//! Dry runs compared with training: final memory of the pools.

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor, TensorData};
use fake_cuda::Machine;
use gpu_tuned::Options;
use gpu_tuned::measure::{Step, Subject, dry};
use models_tests::recurrent::{Dimensions, Recurrent};

use super::Config;

/// Selects dry steps; otherwise steps are trained.
const DRY: &str = "STEPS_ARE_DRY";
const SAMPLES: usize = 512;
const LAYERS: Dimensions = Dimensions {
    input: 16,
    hidden: 64,
    layers: 2,
    seq: 12,
    classes: 10,
    vocab: 0,
    every_step: false,
    gru: false,
    bidirectional: false,
};

/// Layers with described dimensions.
#[derive(Module, Debug)]
struct Network {
    layers: Recurrent,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self { layers: Recurrent::new(&LAYERS, device) }
    }

    fn loss(&self, sequences: Tensor<3>) -> Tensor<1> {
        self.layers.logits(&LAYERS, sequences).powi_scalar(2).mean()
    }
}

/// From the host, as a loader brings it.
fn batch(samples: usize, device: &Device) -> Tensor<3> {
    let shape = [samples, LAYERS.seq, LAYERS.input];
    Tensor::from_data(TensorData::zeros::<f32, _>(shape), device)
}

fn optimizer() -> ModuleOptimizer {
    AdamWConfig::new().init()
}

/// A typical training loop, in the thread that opened the device. Returns all memory of the process.
fn trained(device: &Device) -> u64 {
    let (mut model, mut optimizer) = (Network::new(&device.clone().autodiff()), optimizer());
    for _ in 0..30 {
        let loss = model.loss(batch(SAMPLES, &device.clone().autodiff()));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-6, model, gradients);
    }
    device.memory_pool_usage().expect("a GPU has pools").bytes_reserved
}

#[test]
#[ignore = "a program for the test below"]
fn program_that_takes_steps() {
    let session = Options::default().start(Config::default()).expect("it starts");
    let device = session.inner_device();
    let held = if std::env::var_os(DRY).is_some() {
        let subject = Subject::new(Network::new, optimizer, batch, |model: &Network, batch| model.loss(batch));
        let step = Step { batch: SAMPLES, micro_batches: 1, checkpointing: false, cuda_graphs: false };
        dry(&device, &subject, step).expect("it is measured").reserved_bytes.0
    } else {
        trained(&device)
    };
    own_process::give(held);
}

fn held(machine: &Machine, is_dry: bool) -> u64 {
    let mut command = machine.command(std::env::current_exe().expect("a test knows its own path"));
    command.args(own_process::arguments(program_that_takes_steps));
    if is_dry {
        command.env(DRY, "1");
    }
    own_process::result(&mut command).parse().expect("bytes")
}

/// In the process that tunes the kernels, and in one that finds them tuned.
#[test]
fn recurrent_layers_hold_in_training_what_their_dry_run_held() {
    let machine = Machine::new("h200");
    let dry = [(); 2].map(|()| held(&machine, true));
    let trained = held(&machine, false);
    assert_eq!((dry, trained), ([trained; 2], held(&Machine::new("h200"), false)));
}
