//! Summary of a model: the speed-up of the planned method, compared with the guides' promise.

use serde::Serialize;
use serde_json::Value;

use super::Model;

/// Times the naive samples per second.
const FACTOR: f64 = 5.0;
/// Share of the time in which the GPU computes.
const UTILISATION: f64 = 0.85;
/// Losses are averaged over this last share of the samples or of the time.
const LAST: f64 = 0.1;

/// The planned method compared with the naive one.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    run: &'static str,
    model: Model,
    /// The one that reaches both goals, or the faster one: the planner leaves the precision to the user.
    tuned_way: Option<&'static str>,
    naive_samples_per_second: Option<f64>,
    tuned_samples_per_second: Option<f64>,
    /// Speed-up of one change after another.
    factors: Vec<(&'static str, f64)>,
    factor: Option<f64>,
    utilisation: Option<f64>,
    naive_utilisation: Option<f64>,
    goal_factor: f64,
    goal_utilisation: f64,
    within: bool,
    batch_size: Option<u64>,
    naive_batch_size: Option<u64>,
    /// Loss after equally many samples; differs because the batch of a step differs.
    same_samples: Option<u64>,
    naive_loss_after_same_samples: Option<f64>,
    tuned_loss_after_same_samples: Option<f64>,
    same_seconds: Option<f64>,
    naive_loss_after_same_seconds: Option<f64>,
    tuned_loss_after_same_seconds: Option<f64>,
}

/// The line of a way that did not fail.
pub(super) fn found<'l>(lines: &'l [Value], model: Model, way: &str) -> Option<&'l Value> {
    let name = serde_json::to_value(model).ok()?;
    lines.iter().find(|line| line["model"] == name && line["way"] == way && line.get("message").is_none())
}

impl Verdict {
    pub(super) fn new(model: Model, lines: &[Value]) -> Self {
        let line = |way| found(lines, model, way);
        let utilisation = |line: Option<&Value>| line?["utilisation"]["mean"].as_f64();
        let rate = |way| line(way)?["samples_per_second"].as_f64();
        let naive = line("naive");
        let naive_rate = rate("naive");
        let factor = |way| Some(rate(way)? / naive_rate?);
        let reached = |found: Option<f64>, goal: f64| found.is_some_and(|found| found >= goal);
        let is_within = |way| reached(factor(way), FACTOR) && reached(utilisation(line(way)), UTILISATION);
        let planned = ["tuned_f32", "tuned_half"].into_iter().filter_map(|way| Some((is_within(way), rate(way)?, way)));
        let better = |one: &(bool, f64, _), other: &(bool, f64, _)| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1));
        let tuned_way = planned.max_by(better).map(|(_, _, way)| way);
        let tuned = tuned_way.and_then(line);
        let changes = ["naive_with_workers", "tuned_f32", "tuned_half"];
        let same = |key: &str| Some(last(naive?, key)?.min(last(tuned?, key)?));
        let (samples, seconds) = (same("learned"), same("seconds"));
        let loss = |line: Option<&Value>, key: &str, same: Option<f64>| loss(line?, key, same?);
        Self {
            run: "naive",
            model,
            tuned_way,
            naive_samples_per_second: naive_rate,
            tuned_samples_per_second: tuned_way.and_then(rate),
            factors: changes.into_iter().filter_map(|way| Some((way, factor(way)?))).collect(),
            factor: tuned_way.and_then(factor),
            utilisation: utilisation(tuned),
            naive_utilisation: utilisation(naive),
            goal_factor: FACTOR,
            goal_utilisation: UTILISATION,
            within: tuned_way.is_some_and(is_within),
            batch_size: tuned.and_then(|line| line["batch_size"].as_u64()),
            naive_batch_size: naive.and_then(|line| line["batch_size"].as_u64()),
            same_samples: samples.map(|samples| samples as u64),
            naive_loss_after_same_samples: loss(naive, "learned", samples),
            tuned_loss_after_same_samples: loss(tuned, "learned", samples),
            same_seconds: seconds,
            naive_loss_after_same_seconds: loss(naive, "seconds", seconds),
            tuned_loss_after_same_seconds: loss(tuned, "seconds", seconds),
        }
    }
}

/// End of a curve.
fn last(line: &Value, key: &str) -> Option<f64> {
    line["curve"].as_array()?.last()?[key].as_f64()
}

/// The mean loss over the last share of a curve up to `most` samples or seconds. If that share has no point, the loss at
/// the latest point before.
fn loss(line: &Value, key: &str, most: f64) -> Option<f64> {
    let points =
        line["curve"].as_array()?.iter().filter_map(|point| Some((point[key].as_f64()?, point["loss"].as_f64()?)));
    let before: Vec<_> = points.filter(|(at, _)| *at <= most).collect();
    let (_, latest) = *before.last()?;
    let near: Vec<f64> = before.iter().filter(|(at, _)| *at >= (1.0 - LAST) * most).map(|(_, loss)| *loss).collect();
    Some(if near.is_empty() { latest } else { near.iter().sum::<f64>() / near.len() as f64 })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Model, Verdict};

    fn line(way: &str, rate: f64, busy: Option<f64>, curve: &[(u64, f64, f64)]) -> Value {
        let point =
            |(learned, seconds, loss): &(u64, f64, f64)| json!({"learned": learned, "seconds": seconds, "loss": loss});
        json!({
            "model": "lstm", "way": way, "samples_per_second": rate, "utilisation": {"mean": busy}, "batch_size": 8,
            "curve": curve.iter().map(point).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn the_faster_planned_way_is_held_against_both_goals() {
        let naive = line("naive", 100.0, Some(0.3), &[(0, 0.0, 4.0), (80, 0.8, 3.0), (95, 0.95, 2.0), (100, 1.0, 1.0)]);
        let f32 = line("tuned_f32", 600.0, Some(0.9), &[(0, 0.0, 4.0), (1000, 5.0, 0.5)]);
        let mut half = line("tuned_half", 500.0, Some(0.99), &[]);
        let verdict = Verdict::new(Model::Lstm, &[naive.clone(), f32.clone(), half.clone()]);
        assert!(verdict.within && verdict.tuned_way == Some("tuned_f32") && verdict.factor == Some(6.0), "{verdict:?}");
        // Before its second step the planned way has learned nothing.
        assert_eq!((verdict.same_samples, verdict.tuned_loss_after_same_samples), (Some(100), Some(4.0)));
        assert_eq!(verdict.naive_loss_after_same_samples, Some(1.5));
        assert_eq!(verdict.factors, [("tuned_f32", 6.0), ("tuned_half", 5.0)]);
        half["samples_per_second"] = json!(700.0);
        assert_eq!(Verdict::new(Model::Lstm, &[naive.clone(), f32.clone(), half.clone()]).factor, Some(7.0));
        half["utilisation"]["mean"] = json!(0.5);
        assert_eq!(Verdict::new(Model::Lstm, &[naive.clone(), f32.clone(), half.clone()]).factor, Some(6.0));
        half["utilisation"]["mean"] = json!(0.99);
        half["message"] = json!("it failed");
        assert_eq!(Verdict::new(Model::Lstm, &[naive.clone(), f32, half]).factor, Some(6.0));
        for (rate, busy) in [(499.0, Some(0.9)), (600.0, Some(0.84)), (600.0, None)] {
            let tuned = line("tuned_f32", rate, busy, &[(0, 0.0, 1.0)]);
            assert!(!Verdict::new(Model::Lstm, &[naive.clone(), tuned]).within, "{rate}, {busy:?}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let verdict = Verdict::new(Model::Cnn, &[line("naive", 100.0, None, &[])]);
        assert!(
            !verdict.within && verdict.factor.is_none() && verdict.naive_samples_per_second.is_none(),
            "{verdict:?}"
        );
    }
}
