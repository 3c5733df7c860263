//! A program that trains with Burn's own loop.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::optim::AdamWConfig;
use burn::tensor::Device;
use burn::train::{Learner, SupervisedTraining};

use gpu_tuned::lock::LockFile;
use gpu_tuned::{Options, Precision};
use gpu_tuned_core::measured::MeasuredMode;
use gpu_tuned_observe::bench::Request;
use networks::{Regression, Rows};

use super::{WIDTH, measured_by, run_program, session};

#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let (session, device) = (session(), Device::flex());
    let loader =
        || DataLoaderBuilder::new(Rows::default()).batch_size(7).build(InMemDataset::new(vec![[1.0; WIDTH]; 21]));
    let folder = tempfile::tempdir().expect("a folder");
    let training = SupervisedTraining::new(folder.path(), loader(), loader())
        .with_training_strategy(session.strategy().expect("one device"))
        .with_application_logger(None)
        .num_epochs(1);
    // On another device than the session's, as programs are that know nothing of it.
    let model = Regression::new(&[WIDTH, WIDTH], &device.autodiff());
    let result = training.launch(Learner::new(model, AdamWConfig::new().init(), 1e-3));
    match result.error {
        None => println!("went on"),
        Some(error) => panic!("{error}"),
    }
}

#[test]
fn burns_loop_is_measured_in_place_of_its_first_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    let trains = run_program(program, &lock, &[]);
    assert!(String::from_utf8_lossy(&trains.stdout).contains("went on"), "{trains:?}");
    assert!(!lock.exists());

    let measures = run_program(program, &lock, &[("GPU_TUNED_MEASURE", "1")]);
    let (stdout, stderr) = (String::from_utf8_lossy(&measures.stdout), String::from_utf8_lossy(&measures.stderr));
    assert!(measures.status.success() && !stdout.contains("went on"), "{stdout}{stderr}");
    let found = LockFile::new(&lock).read().expect("a lock").expect("it was written").workload;
    let (_, found) = found.first_key_value().expect("a workload");
    let (reported, _) = measured_by(super::program);
    let (found, reported) = (&found.measured, &reported.measured);
    assert_eq!(found.parameters, reported.parameters);
    assert_eq!(found.on.keys().collect::<Vec<_>>(), reported.on.keys().collect::<Vec<_>>(), "{stderr}");
    for (device, on) in &found.on {
        let reported = &reported.on[device];
        // Whether activations are recomputed goes by the device that the program made its model on.
        let plain = reported.mode.keys().filter(|mode| !mode.checkpointing);
        assert_eq!(on.mode.keys().collect::<Vec<_>>(), plain.collect::<Vec<_>>(), "{device}");
        for (mode, found) in &on.mode {
            let reported = &reported.mode[mode];
            let largest = |mode: &MeasuredMode| mode.batch.values().filter_map(|point| point.reserved_bytes).max();
            let (found, reported) = (largest(found), largest(reported));
            assert_eq!(found.is_some(), cfg!(feature = "counting-allocator"), "{device}, {mode}");
            // The strategy holds on to the weights before a step until the step is done.
            let weights = (WIDTH * WIDTH + WIDTH) as u64 * 4;
            let apart = found.zip(reported).map(|(found, reported)| found.0.abs_diff(reported.0)).unwrap_or_default();
            assert!(apart <= 2 * weights, "{device}, {mode}: {found:?} for {reported:?}");
        }
    }
}

#[test]
fn burns_loop_is_measured_in_bf16_and_refused_in_f16() {
    let folder = tempfile::tempdir().expect("a folder");
    let (lock, results) = (folder.path().join("gpu-tuned.lock"), folder.path().join("gpu-tuned.bench.jsonl"));
    let bench = |precision| {
        let bench = Request {
            results: results.clone(),
            precision: Some(precision),
            batches: vec![1],
            checkpointing: vec![false],
            feeds: Vec::new(),
            seconds: 0.05,
            ignored_bytes: 0,
        };
        serde_json::to_string(&bench).expect("JSON")
    };
    let run = |asked: &[(&str, &str)]| {
        let ended = run_program(program, &lock, asked);
        let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(!stdout.contains("went on"), "{stdout}{stderr}");
        (ended.status.success(), stderr.into_owned())
    };
    let measure = |precision| [("GPU_TUNED_MEASURE", "1"), (Options::SET_VARIABLE, precision)];
    for asked in [&measure("precision=mixed_f16")[..], &[(Request::VARIABLE, &bench(Precision::MixedF16))]] {
        let (succeeded, stderr) = run(asked);
        assert!(!succeeded && stderr.contains("mixed_f16 needs a scaled loss"), "{stderr}");
        assert!(!lock.exists() && !results.exists());
    }
    let (succeeded, stderr) = run(&[(Request::VARIABLE, &bench(Precision::MixedBf16))]);
    assert!(succeeded && results.exists(), "{stderr}");
}
