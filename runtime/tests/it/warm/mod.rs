//! Warm starts in processes of their own, since CubeCL is configured once in a process.

mod bundles;
mod damaged;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::Tensor;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::environment;
use cubecl_environment::bytes::Bytes;
use cubecl_environment::persistence::{Origin, open};
use gpu_tuned::measure::Subject;
use gpu_tuned::warm::{Caches, Fingerprint, begin, save};
use gpu_tuned::{ComputeCapability, GpuReading, Options, Session};
use serde_json::{Value, json};
use tempfile::TempDir;

const TASK: &str = "WARM_TEST_TASK";

/// Caches of CubeCL for the first GPU, and for all.
const TUNED: &str = "autotune/0.11.3/device-0-0-cuda/matmul";
const TUNED_ON_THE_THIRD: &str = "autotune/0.11.3/device-0-2-cuda/matmul";
const KERNELS: &str = "cuda/0.11.3/ptx_sm90-llvm-86";

/// A machine: a user's cache folder, and a folder that the program runs in.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("work")).expect("a folder");
        Self(folder)
    }

    fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    /// Output of a task in a new process on this machine.
    fn run(&self, task: &str, variables: &[(&str, &Path)]) -> Value {
        serde_json::from_str(&own_process::result(&mut self.command(task, variables))).expect("JSON")
    }

    fn command(&self, task: &str, variables: &[(&str, &Path)]) -> Command {
        let mut command = own_process::command(started_again);
        command
            .current_dir(self.work())
            .env_remove("CARGO_MANIFEST_DIR")
            .envs([("XDG_CACHE_HOME", self.0.path().join("cache")), ("HOME", self.0.path().to_owned())])
            .env(TASK, task)
            .envs(variables.iter().copied());
        command
    }
}

fn fingerprint(driver: &str) -> Fingerprint {
    let mut gpu = GpuReading::default();
    gpu.name = Some("NVIDIA H200".to_owned());
    gpu.compute_capability = Some(ComputeCapability::new(9, 0));
    Fingerprint::new([&gpu], Some(driver)).expect("a GPU")
}

fn put(namespace: &str, key: &str, value: &str) {
    let [key, value] = [key, value].map(|text| Bytes::from_bytes_vec(text.as_bytes().to_vec()));
    open(namespace).insert(&key, value, Origin::Local);
}

fn get(namespace: &str, key: &str) -> Option<String> {
    open(namespace).get(key.as_bytes()).map(|value| String::from_utf8_lossy(&value).into_owned())
}

#[test]
#[ignore = "a program for the tests below"]
fn started_again() {
    let task = env::var(TASK).expect("a task");
    let words: Vec<_> = task.split(' ').collect();
    let here = fingerprint("580.95.05");
    let result = match words.as_slice() {
        ["begin"] => begun(&here, &[0]),
        ["begin-elsewhere"] => begun(&fingerprint("550.1"), &[0]),
        ["begin-on", a, b] => begun(&here, &[a, b].map(|number| number.parse().expect("a number"))),
        ["configured", "first"] => {
            assert!(CubeClRuntimeConfig::try_set(CubeClRuntimeConfig::default()));
            begun(&here, &[0])
        }
        ["twice"] => {
            let first = begun(&here, &[0]);
            json!([first, begun(&fingerprint("550.1"), &[0])])
        }
        ["slow-step"] => {
            let begun = begun(&here, &[0]);
            slow_step();
            begun
        }
        ["hold"] => {
            begin(&here, &[0]);
            damaged::hold()
        }
        [task @ ("fill" | "fill-many")] => {
            let begun = begun(&here, &[0]);
            if *task == "fill-many" {
                damaged::put_many();
            }
            put(TUNED, "512x512", "the third is fastest");
            put(TUNED, "2048x2048", "only the naive one works\nout of device memory allocating 7 bytes\n");
            put(KERNELS, "matmul", "PTX");
            begun
        }
        ["save"] => {
            begin(&here, &[0]);
            put(TUNED, "512x512", "the third is fastest");
            put(TUNED, "2048x2048", "only the naive one works\nAn out-of-memory error happened during launch\n");
            put(KERNELS, "matmul", "PTX");
            put("records/0.11.3/session", "1", "what was done");
            json!(save(&env::current_dir().expect("a folder").join("gpu-tuned.warm"), &here).expect("a bundle"))
        }
        ["save-nothing"] => {
            begin(&here, &[0]);
            json!(save(&env::current_dir().expect("a folder"), &here).expect_err("nothing is there").to_string())
        }
        ["bundle-on-cpu"] => {
            let error = session().measure_if_asked("one-layer", &subject(&Mutex::default())).expect_err("no GPU");
            json!(error.to_string())
        }
        other => panic!("{other:?} is no task"),
    };
    own_process::give(result);
}

/// Result of a start, and the caches after it.
fn begun(fingerprint: &Fingerprint, gpus: &[usize]) -> Value {
    let warm = begin(fingerprint, gpus);
    let config = CubeClRuntimeConfig::get();
    json!({
        "warm": warm,
        "said": warm.to_string(),
        "active": *environment::active(),
        "keeps_kernels": config.compilation.cache,
        "autotune": format!("{:?}", config.autotune.level),
        "tuned": get(TUNED, "512x512"),
        "tuned_on_the_third": get(TUNED_ON_THE_THIRD, "512x512"),
        "spoilt": get(TUNED, "2048x2048"),
        "kernel": get(KERNELS, "matmul"),
    })
}

#[test]
fn what_one_process_leaves_the_next_one_finds_but_not_what_was_chosen_without_memory() {
    let machine = Machine::new();
    let first = machine.run("fill", &[]);
    assert_eq!((&first["warm"]["caches"], &first["keeps_kernels"]), (&json!("on"), &json!(true)), "{first:#}");
    assert_eq!((&first["tuned"], &first["warm"]["bundle"]), (&Value::Null, &Value::Null));
    let path = PathBuf::from(first["warm"]["path"].as_str().expect("a path"));
    assert!(path.starts_with(machine.0.path().join("cache/cubecl")), "{}", path.display());
    // Nothing is left in the folder that the program runs in.
    assert_eq!(fs::read_dir(machine.work()).expect("a folder").count(), 0);

    let second = machine.run("begin", &[]);
    assert_eq!((&second["tuned"], &second["kernel"]), (&json!("the third is fastest"), &json!("PTX")));
    assert_eq!((&second["spoilt"], &second["warm"]["dropped"]), (&Value::Null, &json!(1)), "{second:#}");
    assert_eq!(machine.run("begin", &[])["warm"]["dropped"], 0);

    let elsewhere = machine.run("begin-elsewhere", &[]);
    assert_eq!((&elsewhere["tuned"], &elsewhere["kernel"]), (&Value::Null, &Value::Null), "{elsewhere:#}");
}

#[test]
fn what_the_user_configured_is_left_alone_and_the_rest_of_it_is_kept() {
    let machine = Machine::new();
    let file = machine.work().join("cubecl.toml");
    fs::write(&file, "[environment]\nname = \"mine\"\npath = \"local\"\n").expect("it is written");
    let configured = machine.run("begin", &[]);
    assert_eq!((&configured["warm"]["caches"], &configured["active"]), (&json!("configured"), &json!("mine")));
    assert_eq!(configured["keeps_kernels"], false);
    let message = configured["said"].as_str().expect("a report");
    assert!(message.starts_with("caches as configured by `environment.name` in "), "{message}");

    fs::write(&file, "[autotune]\nlevel = \"full\"\n").expect("it is written");
    let other = machine.run("begin", &[]);
    assert_eq!((&other["warm"]["caches"], &other["autotune"]), (&json!("on"), &json!("Full")), "{other:#}");

    let named = machine.run("begin", &[("CUBECL_ENVIRONMENT", Path::new("mine"))]);
    assert_eq!((&named["warm"]["by"], &named["active"]), (&json!("CUBECL_ENVIRONMENT"), &json!("mine")));
}

#[test]
fn a_process_that_used_cubecl_before_keeps_what_it_had() {
    let late = Machine::new().run("configured first", &[]);
    assert_eq!((&late["warm"]["caches"], &late["active"]), (&json!("too_late"), &json!("default")), "{late:#}");
}

#[test]
fn a_start_on_another_gpu_in_the_same_process_has_caches_of_its_own() {
    let both = Machine::new().run("twice", &[]);
    assert_eq!((&both[0]["warm"]["caches"], &both[1]["warm"]["caches"]), (&json!("on"), &json!("on")), "{both:#}");
    assert_ne!(both[0]["active"], both[1]["active"]);
}

#[test]
fn a_run_that_measures_leaves_what_it_tuned_to_training() {
    let machine = Machine::new();
    let measuring = machine.run("fill", &[("GPU_TUNED_MEASURE", Path::new("1"))]);
    assert_eq!(measuring["warm"]["caches"], "on");
    assert_eq!(machine.run("fill", &[])["tuned"], "the third is fastest");
}

config! { Config, mlp(widths = [8, 8]), global_batch = 10, target = "generic" }

/// Micro-batches of four: two of them, and two samples that remain.
fn session() -> Session<Config> {
    Options::default().cpu().start(Config { batch_size: 4 }).expect("there is a CPU")
}

/// Takes two steps of longer than 2 s. In the first one a kernel is compiled and a choice is tuned.
fn slow_step() {
    let session = session();
    let model = LinearConfig::new(8, 8).init(&session.device());
    let mut trainer = session.trainer(model, AdamWConfig::new().init()).expect("a trainer");
    let batch = Tensor::<2>::ones([4, 8], &session.device());
    for step in 0..2 {
        let loss = |model: &Linear, batch| {
            if step == 0 {
                put(TUNED, "64x64", "the first is fastest");
                put(KERNELS, "softmax", "PTX");
            }
            thread::sleep(Duration::from_millis(2100));
            model.forward(batch).mean()
        };
        trainer.step(0.1, batch.clone(), loss).expect("a step");
    }
}

#[test]
fn a_long_first_step_is_reported_with_what_was_compiled() {
    let machine = Machine::new();
    let output = own_process::run(&mut machine.command("slow-step", &[]));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<_> = errors.lines().filter_map(|line| line.strip_prefix("gpu-tuned: first step: ")).collect();
    let counts = " s, kernels compiled: 1, choices tuned: 1; kept in ";
    let ends: Vec<_> = lines.iter().filter(|line| !line.contains(" s so far")).collect();
    let [end] = ends[..] else { panic!("one first step: {errors}") };
    assert!(end.contains(counts) && end.ends_with(".db, so the next process is faster"), "{errors}");
}

/// It notes the sizes of its micro-batches.
fn subject(sizes: &Mutex<Vec<usize>>) -> Subject<'_, Linear, Tensor<2>> {
    Subject::new(
        |device| LinearConfig::new(8, 8).init(device),
        || AdamWConfig::new().init(),
        |samples, device| {
            sizes.lock().expect("no panic").push(samples);
            Tensor::ones([samples, 8], device)
        },
        |model: &Linear, batch| model.forward(batch).mean(),
    )
}

#[test]
fn warming_up_takes_steps_of_every_micro_batch_that_is_planned_or_would_be() {
    let sizes = Mutex::default();
    let session = session();
    assert_eq!((session.schedule().micro_batch, &session.warm_start().caches), (4, &Caches::NoGpu));
    assert_eq!(session.warm_up(&subject(&sizes)).expect("steps"), [4, 2, 1]);
    let three = |step: &[usize]| step.repeat(3);
    let expected = [three(&[4, 4, 2]), three(&[2, 2]), three(&[1, 1])].concat();
    assert_eq!(sizes.into_inner().expect("no panic"), expected);
}
