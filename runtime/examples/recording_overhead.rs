//! What a recording costs: the same optimizer steps with and without, turn by turn in one process. Prints JSON lines.
//!
//! `cargo run --release -p gpu-tuned --features burn --example recording_overhead [STEPS]`

use std::error::Error;
use std::time::Instant;

use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use gpu_tuned::train::Trainer;
use gpu_tuned::{Options, Session, gpu_tuned};

/// Small layers, so that a step takes about as long as the smallest do.
#[gpu_tuned(mlp(widths = [64, 64]), global_batch = 64, target = "generic")]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

/// Steps in a turn.
const TURN: usize = 20;

/// One of the two that are compared.
struct Run {
    session: Session<Config>,
    trainer: Trainer<Linear>,
    /// Seconds per step of each turn.
    turns: Vec<f64>,
}

impl Run {
    fn start(options: &Options) -> Result<Self, Box<dyn Error>> {
        let session = options.start(Config { batch_size: 16 })?;
        let model = LinearConfig::new(64, 64).init(&session.device());
        let trainer = session.trainer(model, SgdConfig::new().init())?;
        Ok(Self { session, trainer, turns: Vec::new() })
    }

    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        let batch = Tensor::<2>::ones([64, 64], &self.session.device());
        let begin = Instant::now();
        for _ in 0..TURN {
            self.trainer
                .step(1e-3, batch.clone(), |model: &Linear, batch| model.forward(batch).powi_scalar(2).mean())?;
        }
        self.turns.push(begin.elapsed().as_secs_f64() / TURN as f64);
        Ok(())
    }

    /// The median over turns.
    fn seconds(&mut self) -> f64 {
        self.turns.sort_unstable_by(f64::total_cmp);
        self.turns[self.turns.len() / 2]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let steps: usize = std::env::args().nth(1).map_or(Ok(4000), |steps| steps.parse())?;
    let folder = tempfile::tempdir()?;
    let plain = Options::default();
    let mut without = Run::start(&plain)?;
    let mut with = Run::start(&plain.clone().record(folder.path().join("run.jsonl")))?;
    let mut again = Run::start(&plain)?;
    for turn in 0..(steps / TURN).max(3) {
        // Whoever comes first finds the caches as the last one left them.
        let mut order = [&mut without, &mut with, &mut again];
        order.rotate_left(turn % 3);
        for run in order {
            run.turn()?;
        }
    }
    let (plain, recorded, same) = (without.seconds(), with.seconds(), again.seconds());
    println!(
        "{{\"step_us\":{:.1},\"recorded_step_us\":{:.1},\"ratio\":{:.4},\"ratio_of_the_same_without\":{:.4}}}",
        plain * 1e6,
        recorded * 1e6,
        recorded / plain,
        same / plain
    );
    Ok(())
}
