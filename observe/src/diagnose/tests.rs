use super::sort;
use crate::diagnose::finding::{Change, Finding, Kind, Prediction, Quantity, Severity};

fn finding(kind: Kind, gain: f64) -> Finding {
    let prediction = Prediction::new(Quantity::SamplesPerS, 100.0, 100.0 * gain, "");
    Finding::new(kind, Severity::from_gain(gain), "", Change::new("")).with_prediction(prediction)
}

fn leak(severity: Severity) -> Finding {
    let prediction = Prediction::new(Quantity::FailsAtStep, 100.0, 200.0, "");
    Finding::new(Kind::MemoryLeak, severity, "", Change::new("")).with_prediction(prediction)
}

#[test]
fn findings_come_in_the_order_of_their_changes() {
    use Kind::{
        BatchTooSmall, HostBound, LoaderBound, LowClocks, MemoryLeak, ModelTooSmall, NoAmp, OtherProcess, PowerCap,
        SlowLoop,
    };
    let tables: [(&str, Vec<Finding>, &[Kind]); 7] = [
        (
            "by gain",
            vec![finding(OtherProcess, 1.2), finding(BatchTooSmall, 3.0), finding(PowerCap, 1.3)],
            &[BatchTooSmall, PowerCap, OtherProcess],
        ),
        (
            "what ends the run first",
            vec![finding(LoaderBound, 3.0), leak(Severity::Critical)],
            &[MemoryLeak, LoaderBound],
        ),
        ("a slow leak comes later", vec![finding(LoaderBound, 3.0), leak(Severity::Hint)], &[LoaderBound, MemoryLeak]),
        (
            "a faster device comes behind the loader",
            vec![finding(BatchTooSmall, 2.0), finding(LoaderBound, 1.6), finding(SlowLoop, 1.7)],
            &[SlowLoop, LoaderBound, BatchTooSmall],
        ),
        (
            "causes, without their effects",
            vec![finding(HostBound, 1.6), finding(ModelTooSmall, 1.0), finding(BatchTooSmall, 2.0)],
            &[BatchTooSmall],
        ),
        (
            "a critical fault of the machine before all but a failure",
            vec![finding(LoaderBound, 3.0), finding(LowClocks, 1.6), leak(Severity::Critical), finding(PowerCap, 1.3)],
            &[MemoryLeak, LowClocks, LoaderBound, PowerCap],
        ),
        ("hints last", vec![finding(NoAmp, 1.05), finding(HostBound, 1.2)], &[HostBound, NoAmp]),
    ];
    for (what, findings, expected) in tables {
        let kinds: Vec<_> = sort(findings).iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, expected, "{what}");
    }
}
