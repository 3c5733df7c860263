//! The program's lines, on the CPU.

use std::process::Command;

use serde_json::Value;

/// The lines that the program prints, and whether it succeeds.
fn lines(words: &str) -> (Vec<Value>, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_hardware")).args(words.split(' ')).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (lines, output.status.success())
}

fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("{key} in {line}"))
}

#[test]
fn gradients_are_compared_for_every_model_and_cut() {
    let (found, succeeded) = lines("exact --global-batch 20 --micro-batches 20,5,6 --large-batch 0");
    assert!(succeeded && found.len() == 7, "{found:?}");
    let (probe, found) = found.split_first().expect("lines");
    assert_eq!(probe["math"], "full", "{probe}");
    let cuts: Vec<_> = found.iter().map(|line| number(line, "micro_batches")).collect();
    assert_eq!(cuts, [1.0, 4.0, 4.0, 1.0, 4.0, 4.0]);
    assert!(found.iter().all(|line| number(line, "relative_l2") < 1e-5), "{found:?}");
}

#[test]
fn steps_of_every_loss_are_compared_with_f64_one_kernel_at_a_time_and_as_graphs() {
    let (found, succeeded) = lines("steps --precisions f32,bf16_params");
    assert!(succeeded && found.len() == 7 * 2 * 2, "{found:?}");
    for line in found {
        assert!(number(&line, "largest") <= number(&line, "limit") && line["within"] == true, "{line}");
        let graphs = line["graphs"].as_array().expect("a status for each size").iter();
        let is_expected = |status: &str| match (line["way"].as_str(), line["loss"].as_str()) {
            (Some("eager"), _) => status == "off",
            (_, Some("host_number")) => status.contains("is a number of the host"),
            _ => status == "refused: graph capture is not supported by this backend",
        };
        assert!(graphs.map(|status| status.as_str().expect("text")).all(is_expected), "{line}");
    }
}

/// Both are Burn's kernels on the CPU.
#[test]
fn steps_are_compared_with_one_micro_batch_in_f32() {
    let words = "beside --small --global-batch 6 --micro-batches 1,4 --precisions f32,mixed_bf16";
    let (found, succeeded) = lines(words);
    assert!(succeeded && found.len() == 2 * 2 * 3, "{found:?}");
    for line in found {
        let (relative_l2, is_f32) = (number(&line, "relative_l2"), line["precision"] == "f32");
        assert!(if is_f32 { relative_l2 < 1e-5 } else { relative_l2 > 1e-4 }, "{line}");
        assert_eq!(line["micro_batches"], if line["micro_batch"] == 1 { 6 } else { 2 }, "{line}");
        let from_plain = line["from_plain"].as_f64();
        assert_eq!(from_plain, (line["way"] == "checkpointed").then_some(0.0), "{line}");
        let status = &line["graphs"]["status"];
        assert_eq!(status, if line["way"] == "graphs" { "refused" } else { "off" }, "{line}");
    }
}

#[test]
fn a_large_loss_scale_is_halved_until_gradients_fit_into_f16() {
    let words = "beside --small --global-batch 2 --micro-batches 1 --precisions mixed_f16 --ways plain";
    let (found, succeeded) = lines(words);
    assert!(succeeded && found.len() == 1, "{found:?}");
    let skipped = number(&found[0], "skipped");
    assert!(skipped > 1.0, "{found:?}");
    assert!(number(&found[0], "loss_scale") <= 2.0_f64.powf(30.0 - skipped), "{found:?}");
}

#[test]
fn memory_of_a_long_run_is_printed_at_each_interval() {
    let (found, _) = lines("soak --model transformer --small --batch 2 --micro-batch 1 --seconds 3 --every 0.4");
    assert!(found.len() >= 3 && found[0]["growth"].is_null(), "{found:?}");
    for (line, next) in found.iter().zip(&found[1..]) {
        assert!(number(line, "steps") < number(next, "steps") && number(line, "seconds") < number(next, "seconds"));
        assert!(number(next, "resident_bytes") > 1e7 && number(next, "open_files") >= 3.0, "{next}");
        assert!(next["growth"]["flat"].is_boolean(), "{next}");
    }
    assert_eq!(found[0]["micro_batches"], 2, "{found:?}");
}

#[test]
fn gradients_are_counted_and_a_gpu_that_is_not_there_is_said_to_be_missing() {
    let (found, succeeded) = lines("observe --model lstm --batch 1 --steps 4");
    assert!(succeeded && found.len() == 5, "{found:?}");
    assert_eq!(found[0]["message"], "there is no GPU", "{found:?}");
    for line in &found[1..4] {
        assert_eq!((&line["way"], &line["equal"]), (&Value::from("counts"), &Value::from(true)), "{line}");
        assert!(line["right"].as_array().expect("counts").iter().all(|count| count.as_u64() > Some(1000)), "{line}");
    }
    assert_eq!(found[4]["is_finite"], Value::from(true), "{found:?}");
}

/// The planner takes f32 on a CPU, so nothing starts again.
#[test]
fn a_model_that_is_not_ready_for_16_bits_trains_on_the_cpu() {
    let (lines, succeeded) = lines("unready");
    assert!(succeeded && lines.len() == 2, "{lines:?}");
    assert_eq!(lines[1]["precision"], "f32");
    assert_eq!(lines[1]["losses"].as_array().map(Vec::len), Some(3));
}
