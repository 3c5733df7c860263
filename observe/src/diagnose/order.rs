//! The order of findings, and findings that others explain.

use super::finding::{Finding, Quantity};
use super::kind::{Kind, Severity};

/// Kinds that are left out beside one of those that explain them.
const EXPLAINED: &[(Kind, &[Kind])] = &[
    (Kind::HostBound, &[Kind::BatchTooSmall, Kind::HostSync]),
    (
        Kind::ModelTooSmall,
        &[
            Kind::LoaderBound,
            Kind::SlowStorage,
            Kind::PrefetchMissing,
            Kind::HostSync,
            Kind::SlowLoop,
            Kind::HostBound,
            Kind::BatchTooSmall,
        ],
    ),
    (Kind::NoTf32, &[Kind::NoAmp]),
    (Kind::BatchTooSmall, &[Kind::NoAccumulation]),
];

/// Kinds that keep the device waiting: a faster device gains nothing beside them.
const STALLS: &[Kind] = &[Kind::LoaderBound, Kind::SlowStorage, Kind::PrefetchMissing, Kind::HostSync, Kind::SlowLoop];

/// Kinds whose change makes the device faster.
const OF_DEVICE: &[Kind] = &[
    Kind::HostBound,
    Kind::BatchTooSmall,
    Kind::NoAmp,
    Kind::NoTf32,
    Kind::NeedlessCheckpointing,
    Kind::PowerCap,
    Kind::ThermalThrottle,
    Kind::PcieReduced,
];

/// Gain that counts as none.
const NO_GAIN: f64 = 1.02;

/// Sorts findings into the order of their changes: those that end the run, then by severity, then by gain.
pub(super) fn order(mut findings: Vec<Finding>) -> Vec<Finding> {
    let kinds: Vec<Kind> = findings.iter().map(|finding| finding.kind).collect();
    findings.retain(|finding| {
        let explains = EXPLAINED.iter().filter(|(kind, _)| *kind == finding.kind).flat_map(|(_, by)| *by);
        !explains.into_iter().any(|by| kinds.contains(by))
    });
    findings
        .sort_by(|a, b| ends(b).cmp(&ends(a)).then(a.severity.cmp(&b.severity)).then(b.gain().total_cmp(&a.gain())));
    let stalls = |finding: &Finding| STALLS.contains(&finding.kind) && finding.gain() > NO_GAIN;
    let Some(first) = findings.iter().find(|finding| stalls(finding)).map(|finding| finding.kind) else {
        return findings;
    };
    let last = findings.iter().rposition(stalls).unwrap_or(0);
    for finding in findings.iter_mut().filter(|finding| OF_DEVICE.contains(&finding.kind)) {
        finding.behind = Some(first);
    }
    let (mut before, after): (Vec<_>, Vec<_>) =
        findings.into_iter().enumerate().partition(|(index, finding)| *index <= last && finding.behind.is_none());
    before.extend(after);
    before.into_iter().map(|(_, finding)| finding).collect()
}

/// Returns whether the finding ends the run.
fn ends(finding: &Finding) -> bool {
    let fails = |quantity| matches!(quantity, Quantity::FailsAtStep | Quantity::FailsAfterS);
    finding.severity == Severity::Critical
        && finding.prediction.as_ref().is_some_and(|prediction| fails(prediction.quantity))
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Change, Finding, Prediction, Quantity};
    use super::super::kind::{Kind, Severity};
    use super::order;

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
            BatchTooSmall, HostBound, LoaderBound, MemoryLeak, ModelTooSmall, NoAmp, OtherProcess, PowerCap, SlowLoop,
        };
        let tables: [(&str, Vec<Finding>, &[Kind]); 6] = [
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
            (
                "a slow leak comes later",
                vec![finding(LoaderBound, 3.0), leak(Severity::Hint)],
                &[LoaderBound, MemoryLeak],
            ),
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
            ("hints last", vec![finding(NoAmp, 1.05), finding(HostBound, 1.2)], &[HostBound, NoAmp]),
        ];
        for (what, findings, expected) in tables {
            let kinds: Vec<_> = order(findings).iter().map(|finding| finding.kind).collect();
            assert_eq!(kinds, expected, "{what}");
        }
    }
}
