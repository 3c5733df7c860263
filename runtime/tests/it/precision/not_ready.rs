//! Models that are not ready for 16 bits: the program starts again in f32.

use std::process::Command;

use gpu_tuned::{Fallback, Precision};

use super::{ForRtx4090, why};
use crate::played::on;

const REASON: &str = "running statistics would be kept in 16 bits: hold the module in an `InF32`";

/// Runs a test as its second start is run: with the reason for its own process.
fn second_start(test: impl Fn()) -> Command {
    let mut command = Command::new("sh");
    let script = format!(r#"GPU_TUNED_NOT_READY="$$ "'{REASON}' exec "$0" "$@""#);
    command
        .args(["-c", &script])
        .arg(std::env::current_exe().expect("this program"))
        .args(own_process::arguments(test));
    command
}

#[test]
#[ignore = "started by the test below"]
fn decides() {
    let decision = on("rtx4090").decide(&ForRtx4090::default()).expect("a plan");
    assert_eq!(decision.plan.settings.precision, Precision::F32, "{decision}");
    assert_eq!(decision.plan.schedule.global_batch, 512);
    assert_eq!(why(&decision), "the model is not ready for 16 bits");
    let expected = Fallback::NotReady { because: REASON.to_owned() };
    assert!(expected.changes_meaning());
    assert_eq!(decision.selection.fallbacks, [expected], "{decision}");
    let report = decision.to_string();
    assert!(report.contains("precision mixed_bf16 -> f32 (changes results)"), "{report}");
    let refused = on("rtx4090").strict(true).decide(&ForRtx4090::default()).expect_err("strict");
    assert!(refused.to_string().contains(REASON), "{refused}");
    // A precision by name stays.
    let named = ForRtx4090 { precision: Precision::MixedF16, ..ForRtx4090::default() };
    let named = on("rtx4090").decide(&named).expect("a plan");
    assert_eq!(named.plan.settings.precision, Precision::MixedF16, "{named}");
    own_process::give("f32");
}

#[test]
fn the_second_start_trains_in_f32_and_gives_the_reason() {
    assert_eq!(own_process::result(&mut second_start(decides)), "f32");
}

#[test]
#[ignore = "started by the test below"]
fn decides_without_a_reason() {
    let decision = on("rtx4090").decide(&ForRtx4090::default()).expect("a plan");
    own_process::give(decision.plan.settings.precision);
}

#[test]
fn the_reason_of_another_process_counts_for_nothing() {
    let mut command = own_process::command(decides_without_a_reason);
    assert_eq!(own_process::result(command.env("GPU_TUNED_NOT_READY", format!("1 {REASON}"))), "mixed_bf16");
}
