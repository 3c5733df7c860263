use char_lm::{config::TrainingConfig, perplexity::Perplexities};
use gpu_tuned::{Bytes, Session};

/// What a run did.
#[derive(Default)]
pub(crate) struct Report {
    /// Optimizer steps taken before this process.
    pub(crate) resumed_after: usize,
    /// Optimizer steps taken until now.
    pub(crate) steps_taken: usize,
    /// On the held-out text; `None` when the run is not at its end.
    pub(crate) perplexities: Option<Perplexities>,
    /// What the network wrote.
    pub(crate) sample: Option<String>,
    /// Wall-clock time of training, measuring and sampling in this process.
    pub(crate) seconds: f64,
}

impl Report {
    /// For people.
    pub(crate) fn text(&self, session: &Session<TrainingConfig>) -> String {
        let (config, global_batch) = (session.config(), session.schedule().global_batch);
        let Self { resumed_after, steps_taken, seconds, .. } = self;
        let mut lines = vec![format!(
            "{steps_taken} of {} steps of {global_batch} windows of {} characters; {} steps in {seconds:.1} s",
            config.steps,
            config.window,
            steps_taken - resumed_after
        )];
        lines.push(match self.perplexities {
            None => "stopped early: go on with --resume".to_owned(),
            Some(Perplexities { network, bigram, uniform }) => format!(
                "held-out perplexity {network:.3} a character; that of bigrams is {bigram:.3}, of no knowledge {uniform:.0}"
            ),
        });
        let memory = &session.plan().memory;
        let planned = memory.total() - memory.context - memory.kernels;
        lines.extend(reserved(session).map(|taken| format!("memory pools hold {taken}, planned were {planned}")));
        lines.extend(self.sample.as_ref().map(|sample| format!("\n{sample}")));
        lines.join("\n")
    }

    /// One line for programs.
    pub(crate) fn json(&self, session: &Session<TrainingConfig>) -> String {
        serde_json::json!({
            "session": session,
            "steps": session.config().steps,
            "steps_taken": self.steps_taken,
            "resumed_after": self.resumed_after,
            "perplexity": self.perplexities.map(|all| all.network),
            "bigram_perplexity": self.perplexities.map(|all| all.bigram),
            "uniform_perplexity": self.perplexities.map(|all| all.uniform),
            "sample": self.sample,
            "seconds": self.seconds,
            "reserved_bytes": reserved(session),
        })
        .to_string()
    }
}

/// Memory that Burn took from the device; `None` where it keeps no pool, as on the CPU.
fn reserved(session: &Session<TrainingConfig>) -> Option<Bytes> {
    session.inner_device().memory_pool_usage().map(|usage| Bytes(usage.bytes_reserved))
}
