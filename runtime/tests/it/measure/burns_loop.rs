//! A program that trains with Burn's own loop.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::optim::AdamWConfig;
use burn::tensor::Device;
use burn::train::{Learner, SupervisedTraining};

use gpu_tuned::{Options, Precision};
use gpu_tuned_core::measured::MeasuredMode;
use gpu_tuned_observe::bench::Request;
use networks::{Regression, Rows};

use super::bench::request;
use super::{Ended, Folder, MEASURE, WIDTH, measured_by, session};

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
    let folder = Folder::new();
    let trains = folder.run(program, &[]);
    assert!(trains.went_on() && !folder.lock().exists(), "{}", trains.stderr);

    let measures = folder.run(program, &[MEASURE]);
    let Ended { stdout, stderr, .. } = &measures;
    assert!(measures.is_ok && !measures.went_on(), "{stdout}{stderr}");
    let (_, found) = folder.measured().expect("it was written");
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
    let folder = Folder::new();
    let results = folder.0.path().join("gpu-tuned.bench.jsonl");
    let bench = |precision| {
        let request = Request { precision: Some(precision), ..request(results.clone(), &[1]) };
        serde_json::to_string(&request).expect("JSON")
    };
    let run = |asked: &[(&str, &str)]| {
        let ended = folder.run(program, asked);
        assert!(!ended.went_on(), "{}{}", ended.stdout, ended.stderr);
        (ended.is_ok, ended.stderr)
    };
    let measure = [MEASURE, (Options::SET_VARIABLE, "precision=mixed_f16")];
    for asked in [&measure[..], &[(Request::VARIABLE, &bench(Precision::MixedF16))]] {
        let (succeeded, stderr) = run(asked);
        assert!(!succeeded && stderr.contains("mixed_f16 needs a scaled loss"), "{stderr}");
        assert!(!folder.lock().exists() && !results.exists());
    }
    let (succeeded, stderr) = run(&[(Request::VARIABLE, &bench(Precision::MixedBf16))]);
    assert!(succeeded && results.exists(), "{stderr}");
}
