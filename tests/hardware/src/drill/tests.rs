//! Drills on the CPU, where micro-batches are made to fail at the same moments.

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

fn told(drill: &str) -> serde_json::Value {
    let arguments = arguments(drill);
    let bench = arguments.bench().unwrap();
    let mut known = arguments.undisturbed(&bench).unwrap();
    serde_json::to_value(disturbed::drilled(&arguments, &bench, &mut known, 1).unwrap()).unwrap()
}

#[test]
fn training_goes_on_after_each_disturbance_with_the_same_losses() {
    for (drill, moment) in
        [("forward", "forward"), ("backward", "forward"), ("optimizer", "optimizer"), ("loader", "upload")]
    {
        let told = told(drill);
        assert_eq!(told["error"], serde_json::Value::Null, "{told}");
        assert_eq!((&told["samples_exact"], &told["rescued_in_step"]), (&true.into(), &3.into()), "{told}");
        assert_eq!(told["steps"][3]["rescues"][0]["moment"], moment, "{told}");
        assert!(told["micro_batch_after"].as_u64() < told["planned"].as_u64(), "{told}");
        assert!(told["loss_apart"].as_f64().unwrap() < 1e-4, "{told}");
        let on_host = told["batches_on_host"].as_u64().unwrap();
        assert!(if drill == "loader" { (1..8).contains(&on_host) } else { on_host == 0 }, "{told}");
    }
}

#[test]
fn a_neighbour_that_goes_lets_training_grow_back_and_one_that_stays_does_not() {
    let goes = told("goes");
    assert_eq!(goes["micro_batch_after"], goes["planned"], "{goes}");
    assert_eq!(goes["rescues"], 1, "{goes}");
    let stays = told("stays");
    assert!(stays["micro_batch_after"].as_u64() < stays["planned"].as_u64(), "{stays}");
    assert!(stays["rescues"] == 2 && stays["samples_exact"] == true, "{stays}");
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
