//! Drills on the CPU, where micro-batches are made to fail at the same points.

use clap::Parser;

use super::{Arguments, Drill, disturbed};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

/// A small model in micro-batches of 256.
fn arguments(drill: &str) -> Arguments {
    let small = "--layers 1 --d-model 8 --classes 8 --frames 2 --micro-batch 256 --before 3 --after 8 --share 0.5";
    Line::parse_from(["drill", drill].into_iter().chain(small.split(' '))).arguments
}

/// Reports of some drills with shared undisturbed runs.
fn reports_of<const N: usize>(drills: [&str; N]) -> [serde_json::Value; N] {
    let bench = arguments(drills[0]).bench().unwrap();
    let mut known = arguments(drills[0]).undisturbed(&bench).unwrap();
    drills.map(|drill| {
        let arguments = arguments(drill);
        let report = disturbed::drilled(&arguments, &bench, &mut known, 1).unwrap();
        serde_json::to_value(report).unwrap()
    })
}

#[test]
fn training_goes_on_after_each_disturbance_with_the_same_losses() {
    let moments = ["forward", "forward", "optimizer"];
    for (report, moment) in reports_of(["forward", "backward", "optimizer"]).into_iter().zip(moments) {
        assert_eq!(report["error"], serde_json::Value::Null, "{report}");
        assert_eq!((&report["samples_exact"], &report["rescued_in_step"]), (&true.into(), &3.into()), "{report}");
        assert_eq!(report["steps"][3]["rescues"][0]["moment"], moment, "{report}");
        assert!(report["micro_batch_after"].as_u64() < report["planned"].as_u64(), "{report}");
        assert!(report["loss_apart"].as_f64().unwrap() < 1e-4, "{report}");
    }
}

#[test]
fn neighbours_that_go_let_training_grow_back_and_loaders_go_on_without_memory() {
    let [goes, stays, loader] = reports_of(["goes", "stays", "loader"]);
    assert_eq!(goes["micro_batch_after"], goes["planned"], "{goes}");
    assert_eq!(goes["rescues"], 1, "{goes}");
    assert!(stays["micro_batch_after"].as_u64() < stays["planned"].as_u64(), "{stays}");
    assert!(stays["rescues"] == 2 && stays["samples_exact"] == true, "{stays}");
    // A batch that the loader cannot upload is still trained on.
    assert_eq!((&loader["error"], &loader["rescued_in_step"]), (&serde_json::Value::Null, &3.into()), "{loader}");
    assert!((1..8).contains(&loader["batches_on_host"].as_u64().unwrap()), "{loader}");
    assert!(loader["samples_exact"] == true && loader["loss_apart"].as_f64().unwrap() < 1e-4, "{loader}");
}

#[test]
fn what_never_fits_is_an_error_and_the_model_is_as_it_was() {
    let arguments = arguments("never");
    assert_eq!(arguments.drill, Drill::Never);
    let never = disturbed::never(&arguments, &arguments.bench().unwrap(), 1).unwrap();
    assert!(never.does_not_fit && never.panic.is_none() && never.step.is_none(), "{never:?}");
    assert_eq!(never.loss_after, Some(never.loss_before));
    assert!(never.next.is_some_and(|next| next.step.applied));
}
