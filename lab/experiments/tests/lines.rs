//! Lines of the program, with small models on the CPU.

use std::process::Command;

use serde_json::Value;

/// The lines that the program prints, and whether it succeeds.
fn lines(words: &str) -> (Vec<Value>, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_experiments")).args(words.split(' ')).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (lines, output.status.success())
}

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"))
}

fn run_learn(words: &str) -> Value {
    let (lines, succeeded) = lines(&format!("learn --model convnet --small {words}"));
    assert!(succeeded && lines.len() == 1, "{words}: {lines:?}");
    lines[0].clone()
}

#[test]
fn every_precision_learns_what_f32_learns() {
    let steps = |way: &str| run_learn(&format!("--steps 60 --batch 16 --way {way}"));
    let right = steps("f32");
    let first = right["curve"][0].as_f64().expect("a loss");
    assert!(number(&right, "entropy") < number(&right, "held_out") && number(&right, "held_out") < 0.97 * first);
    for (way, apart) in [("mixed_bf16", 0.02), ("bf16_params", 0.1)] {
        let found = steps(way);
        assert!((number(&found, "held_out") - number(&right, "held_out")).abs() < apart, "{found}, f32: {right}");
        assert_eq!(found["skipped"], Value::Array(Vec::new()), "{way}");
    }
}

/// The CPU computes in f16 slowly.
#[test]
fn steps_that_overflow_in_f16_are_left_out_and_halve_the_scale() {
    let found = run_learn("--steps 12 --batch 4 --way mixed_f16 --overflow 3,4,8");
    assert_eq!(found["skipped"], serde_json::json!([3, 4, 8]));
    assert_eq!(found["loss_scales"], serde_json::json!([[0, 65536.0], [4, 32768.0], [5, 16384.0], [9, 8192.0]]));
    let right = run_learn("--steps 12 --batch 4 --way f32 --overflow 3,4,8");
    assert_eq!(right["skipped"], found["skipped"]);
    assert!((number(&found, "held_out") - number(&right, "held_out")).abs() < 0.005, "{found}, f32: {right}");
}

#[test]
fn seeds_are_runs_of_their_own_that_can_be_repeated() {
    let words = "learn --model convnet --small --steps 4 --batch 4 --way f32 --seeds 2";
    let held_out = || lines(words).0.iter().map(|line| number(line, "held_out").to_bits()).collect::<Vec<_>>();
    let found = held_out();
    assert!(found.len() == 2 && found[0] != found[1]);
    assert_eq!(found, held_out());
}

#[test]
fn both_loops_are_timed_with_every_number_of_micro_batches() {
    let words = "overhead --model lstm --batch 1 --accumulate 1,2 --micro-batches 2 --repeats 1";
    let (found, succeeded) = lines(words);
    assert!(succeeded, "{found:?}");
    let of: Vec<_> = found.iter().map(|line| (line["way"].as_str().unwrap(), number(line, "accumulate"))).collect();
    assert_eq!(of, [("plain_loop", 1.0), ("trainer", 1.0), ("plain_loop", 2.0), ("trainer", 2.0)]);
    for line in &found {
        let right = number(line, "accumulate") / number(line, "seconds_per_step");
        assert!((number(line, "samples_per_second") / right - 1.0).abs() < 1e-9, "{line}");
    }
}

#[test]
fn a_plain_loop_and_the_trainer_reach_the_same_losses_with_each_seed() {
    let train = |way: &str| {
        let (found, succeeded) = lines(&format!("baseline --model lstm --batch 2 --samples 20 {way}"));
        assert!(succeeded && found.len() == 1, "{found:?}");
        found[0].clone()
    };
    let other = train("--way plain --plain");
    let plain = train("--way plain --plain --seed 3");
    let tuned = train("--way tuned --micro-batch 1 --cuda-graphs --seed 3");
    assert_eq!((&other["seed"], &plain["seed"], &plain["library"]), (&0.into(), &3.into(), &false.into()));
    assert!((number(&other, "loss") - number(&plain, "loss")).abs() > 1e-3, "{other} {plain}");
    assert_eq!((&plain["graphs"]["status"], &tuned["graphs"]["status"]), (&"off".into(), &"refused".into()), "{tuned}");
    let curve = |line: &Value| -> Vec<f64> {
        line["curve"].as_array().expect("losses").iter().map(|loss| loss.as_f64().expect("a loss")).collect()
    };
    let (right, found) = (curve(&plain), curve(&tuned));
    assert_eq!((right.len(), Some(right[9])), (10, plain["loss"].as_f64()));
    assert!(right.iter().zip(&found).all(|(right, found)| (right - found).abs() < 1e-4 * right), "{right:?} {found:?}");
    for line in [plain, tuned] {
        let [lowest, median, highest] = ["lowest", "samples_per_second", "highest"].map(|key| number(&line, key));
        assert!(lowest > 0.0 && lowest <= median && median <= highest, "{line}");
        assert!(number(&line, "until_first_step_seconds") > number(&line, "first_step_seconds"), "{line}");
    }
}

/// Runs all parts in separate processes, like on a GPU.
#[test]
fn the_naive_way_and_the_planned_ones_are_compared() {
    let (found, succeeded) = lines("naive --small --seconds 0.3 --precision mixed_f16");
    assert!(succeeded, "{found:?}");
    let of = |model: &str, way: &str| {
        let is_it = |line: &&Value| line["model"] == model && line["way"] == way;
        found.iter().find(is_it).unwrap_or_else(|| panic!("{model}, {way}: {found:?}")).clone()
    };
    for model in ["cnn", "lstm"] {
        let (naive, plan, verdict) = (of(model, "naive"), of(model, "plan"), of(model, "verdict"));
        assert_eq!((number(&naive, "num_workers"), number(&naive, "prefetch_depth")), (0.0, 0.0));
        let measured = plan["measured"].as_array().expect("points");
        assert!(measured.len() >= 2 && measured[0]["batch"] == naive["batch_size"], "{plan}");
        for (way, precision) in [("tuned_f32", "f32"), ("tuned_half", "mixed_f16"), ("naive_with_workers", "f32")] {
            let line = of(model, way);
            assert!(line["precision"] == precision && line["by_measurement"] == true, "{line}");
            assert!(number(&line, "num_workers") >= 1.0 && number(&line, "samples_per_second") > 0.0, "{line}");
            let batch = if way == "naive_with_workers" { &naive["batch_size"] } else { &plan["f32"]["batch_size"] };
            assert_eq!((&line["batch_size"], &line["global_batch"]), (batch, batch));
        }
        let rate = |way: &str| number(&of(model, way), "samples_per_second");
        let factor = rate("tuned_f32").max(rate("tuned_half")) / rate("naive");
        assert!((number(&verdict, "factor") / factor - 1.0).abs() < 1e-9, "{verdict}");
        // A CPU has no utilisation figure.
        assert_eq!((&verdict["within"], &verdict["utilisation"]), (&Value::Bool(false), &Value::Null));
        assert!(number(&verdict, "naive_loss_after_same_samples") > 0.0, "{verdict}");
    }
}

#[test]
fn what_there_is_no_time_for_is_said_and_takes_nothing_from_the_rest() {
    let (found, succeeded) = lines("naive --small --model lstm --seconds 0.1 --budget 0.5");
    assert!(succeeded, "{found:?}");
    let ways: Vec<_> = found.iter().map(|line| line["way"].as_str().expect("a way")).collect();
    assert_eq!(ways, ["broken", "broken", "verdict"]);
    assert_eq!(found[2]["within"], false);
}

#[test]
fn a_loss_in_chunks_is_the_loss_of_all_logits() {
    let (found, succeeded) = lines("head --tokens 24 --width 16 --vocabulary 50 --chunks 0,7 --steps 2");
    assert!(succeeded && found.len() == 2, "{found:?}");
    let distance = |left: &Value, right: &Value| (left.as_f64().unwrap() / right.as_f64().unwrap() - 1.0).abs();
    assert!(distance(&found[0]["loss"], &found[1]["loss"]) < 1e-5, "{found:?}");
    for gradient in 0..2 {
        let [whole, chunked] = [0, 1].map(|line| &found[line]["gradient_norms"][gradient]);
        assert!(distance(whole, chunked) < 1e-4, "{found:?}");
    }
}
