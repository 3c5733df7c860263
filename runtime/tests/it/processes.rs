//! Ranks as processes of their own, as launchers start them.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, Tensor, TensorData};
use gpu_tuned::ranks::EXIT_CODE;
use gpu_tuned::{MicroBatch, Options};
use networks::{furthest, values};

const RATE: f64 = 0.1;
/// Samples of the steps; the parts of ranks are uneven, and some have none.
const SIZES: [usize; 20] = [24, 24, 23, 7, 24, 1, 24, 24, 2, 24, 5, 24, 24, 19, 24, 3, 24, 24, 24, 11];
/// Step before which the second rank waits to be killed.
const KILLED: usize = 4;
/// Longest time from a fault to the end of all ranks.
const LONGEST: Duration = Duration::from_secs(30);

config! { Config, mlp(widths = [3, 2]), global_batch = 24, target = "generic" }

fn model(device: &Device) -> Linear {
    LinearConfig::new(3, 2).with_initializer(Initializer::Constant { value: 0.3 }).init(device)
}

fn batch(step: usize) -> Tensor<2> {
    let value = |index: usize| ((index * 37 + step * 11) % 19) as f32 / 19.0 - 0.5;
    let rows = SIZES[step];
    Tensor::from_data(TensorData::new((0..rows * 5).map(value).collect(), [rows, 5]), &Device::flex())
}

fn loss(model: &Linear, rows: Tensor<2>) -> Tensor<1> {
    let (input, target) = (rows.clone().narrow(1, 0, 3), rows.narrow(1, 3, 2));
    MseLoss::new().forward(model.forward(input), target, Reduction::Mean)
}

/// A program that trains as one of several ranks, and prints its parameters.
#[test]
#[ignore = "a program for the tests below"]
fn program_of_a_rank() {
    let session = Options::default().cpu().distributed().start(Config { batch_size: 5 }).expect("a session");
    let mut trainer = session.trainer(model(&session.device()), SgdConfig::new().init()).expect("a trainer");
    for (step, samples) in SIZES.iter().enumerate() {
        if step == KILLED && session.rank() == 1 && std::env::var_os("RANK_WAITS").is_some() {
            println!("waits");
            std::thread::park();
        }
        let own = MicroBatch::narrow(&batch(step), session.part(*samples));
        let taken = trainer.step(RATE, own, loss).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(taken.samples, *samples);
    }
    println!("parameters {:?}", values(trainer.model()).into_iter().map(f32::to_bits).collect::<Vec<_>>());
}

/// Starts so many ranks with a launcher's variables. The second waits to be killed if `waits`.
fn start(ranks: usize, waits: bool) -> Vec<Child> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let rank = |rank: usize| {
        let mut command: Command = own_process::command(program_of_a_rank);
        let numbers = [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)];
        command.envs(numbers.map(|(name, value)| (name, value.to_string())));
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if waits {
            command.env("RANK_WAITS", "1");
        }
        command
    };
    (0..ranks).map(|number| rank(number).spawn().expect("it starts")).collect()
}

fn parameters(output: &Output) -> Vec<f32> {
    let text = String::from_utf8_lossy(&output.stdout);
    // The harness begins the line with the name of the test.
    let line = text.lines().find_map(|line| Some(line.split_once("parameters ")?.1));
    let line = line.unwrap_or_else(|| panic!("{output:?}"));
    let bits: Vec<u32> = serde_json::from_str(line).expect("a list");
    bits.into_iter().map(f32::from_bits).collect()
}

#[test]
fn steps_of_one_to_four_processes_are_those_of_one_large_batch() {
    let device = Device::flex().autodiff();
    let (mut expected, mut optimizer) = (model(&device), SgdConfig::new().init());
    for step in 0..SIZES.len() {
        let gradients = loss(&expected, batch(step).autodiff()).backward();
        let gradients = GradientsParams::from_grads(gradients, &expected);
        expected = optimizer.step(RATE, expected, gradients);
    }
    let expected = values(&expected);
    for ranks in 1..=4 {
        let outputs: Vec<_> =
            start(ranks, false).into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
        let all: Vec<_> = outputs.iter().map(parameters).collect();
        let off = furthest(&all[0], &expected);
        assert!(off < 1e-4, "{off} with {ranks} processes");
        assert!(all.iter().all(|parameters| parameters == &all[0]), "{ranks} processes came apart");
    }
}

#[test]
fn a_killed_rank_ends_the_others_with_an_error_that_names_it() {
    let [first, mut second, third] = <[Child; 3]>::try_from(start(3, true)).expect("three");
    let mut lines = BufReader::new(second.stdout.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("waits"))));
    let begin = Instant::now();
    second.kill().expect("it runs");
    second.wait().expect("it is ended");
    for other in [first, third] {
        let output = other.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        // A panic of the program, or the end of the process if it does not look.
        assert!([Some(101), Some(EXIT_CODE)].contains(&output.status.code()), "{output:?}");
        assert!(text.contains("rank 1 on "), "{text}");
    }
    assert!(begin.elapsed() < LONGEST, "{:?}", begin.elapsed());
}
