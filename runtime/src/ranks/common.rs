//! What ranks have in common, and in what the weakest fall behind.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::DeviceFacts;

use crate::decide::{CommonFacts, RankFacts};
use crate::selection::Shortfall;

impl CommonFacts {
    /// What ranks have in common, in their order.
    ///
    /// # Errors
    ///
    /// A sentence, if some ranks are on the CPU and others are not.
    pub(crate) fn new(ranks: &[RankFacts]) -> Result<Self, String> {
        let differs = |rank: &&RankFacts| rank.facts.kind != ranks[0].facts.kind;
        if let Some(at) = ranks.iter().position(|rank| differs(&rank)) {
            let device = |rank: usize| format!("rank {rank} on {} has {}", ranks[rank].host, ranks[rank].facts.name);
            return Err(format!(
                "{}, and {}: ranks are all on GPUs or all on the CPU; mend the one without a GPU, or start all with \
                 `Options::cpu`",
                device(0),
                device(at)
            ));
        }
        let facts = DeviceFacts::common(ranks.iter().map(|rank| &rank.facts)).ok_or("there is no rank")?;
        Ok(Self {
            facts,
            built_for: ranks.iter().map(|rank| rank.built_for).reduce(|a, b| Some(a? && b?)).flatten(),
            is_target: ranks.iter().all(|rank| rank.is_target),
            weakest: shortfalls(ranks),
            shares: None,
        })
    }
}

/// In what the weakest of several ranks fall behind: each such figure once, with the rank that has least of it.
fn shortfalls(ranks: &[RankFacts]) -> Vec<Shortfall> {
    let host = |rank: usize| ranks[rank].host.clone();
    let bytes = extremes(ranks, |facts| Some(facts.memory_available.0 as f64));
    let memory = bytes.map(|(rank, free, most)| {
        let bytes = |figure| Bytes(figure as u64);
        Shortfall::Memory { rank, host: host(rank), free: bytes(free), most: bytes(most) }
    });
    let rate = extremes(ranks, |facts| facts.fp32_tflops);
    let rate = rate.map(|(rank, tflops, most)| Shortfall::Rate { rank, host: host(rank), tflops, most });
    let bandwidth = extremes(ranks, |facts| facts.bandwidth_gb_s);
    let bandwidth = bandwidth.map(|(rank, gb_s, most)| Shortfall::Bandwidth { rank, host: host(rank), gb_s, most });
    let bf16 = extremes(ranks, |facts| Some(f64::from(u8::from(facts.has_bf16))));
    let bf16 = bf16.map(|(rank, ..)| Shortfall::Bf16 { rank, host: host(rank) });
    [memory, rate, bandwidth, bf16].into_iter().flatten().collect()
}

/// Less than a hundredth is no difference: a display takes more memory than that.
const ALIKE: f64 = 0.99;

/// Rank and value of the device with the least, and the largest value; `None` if all are equal or one is unknown.
fn extremes(ranks: &[RankFacts], figure: impl Fn(&DeviceFacts) -> Option<f64>) -> Option<(usize, f64, f64)> {
    let all: Option<Vec<_>> = ranks.iter().map(|rank| figure(&rank.facts)).collect();
    let all: Vec<_> = all?.into_iter().enumerate().collect();
    let (rank, least) = all.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = all.iter().map(|(_, value)| *value).max_by(f64::total_cmp)?;
    (least < most * ALIKE).then_some((rank, least, most))
}
