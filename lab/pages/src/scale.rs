//! `docs/scale.md`: predicted exchange of gradients on many ranks.

use anyhow::{Context as _, Result};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::exchange::{Exchange, Link, Topology};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{Norm, Positions, Transformer, Workload};
use gpu_tuned_core::{Bytes, Goal, Precision, grouped, plan, three_digits};

use crate::generated::{cells, filled, table};

/// Text of the page, with a name in braces for each generated part.
const PAGE: &str = include_str!("scale.md");

/// GPU of the table.
const GPU: &str = "h100-sxm5-80gb";

/// Ranks, and the links within and between hosts with the adapters of a host.
const TOPOLOGIES: [(u64, &str, &str, u64); 9] = [
    (2, "nvlink", "400g", 8),
    (2, "pcie", "400g", 8),
    (8, "nvlink", "400g", 8),
    (8, "pcie", "400g", 8),
    (16, "nvlink", "100g", 1),
    (16, "nvlink", "400g", 1),
    (16, "nvlink", "400g", 8),
    (1024, "nvlink", "400g", 8),
    (10_240, "nvlink", "400g", 8),
];

/// A model, the samples of a step on each rank, its precision, and true if the optimizer is sharded.
type Model = (&'static str, Workload, u64, Precision, bool);

fn models() -> [Model; 3] {
    let encoder =
        Transformer { heads: Some(8), tied_head: false, dropout: false, ..Transformer::new(6, 512, 8192, 256) };
    let llama = Transformer {
        heads: Some(32),
        d_ff: Some(8640),
        gated: true,
        bias: false,
        norm: Norm::Rms,
        positions: Positions::Rotary,
        tied_head: false,
        dropout: false,
        ..Transformer::new(26, 3200, 32_000, 512)
    };
    [
        ("transformer, 27.3 M", encoder.workload(), 256, Precision::MixedBf16, false),
        ("GPT-2, 124 M", Transformer::new(12, 768, 50_257, 1024).workload(), 32, Precision::MixedBf16, false),
        ("OpenLLaMA, 3.4 B", llama.workload(), 64, Precision::Bf16Params, true),
    ]
}

/// Generates the page.
pub fn page() -> Result<String> {
    let links = Link::ALL.map(|link| {
        let [ring, tree] = link.latency_us;
        format!("| `{}` | {} | {ring}, {tree} | {} |", link.name, link.gb_s, link.source)
    });
    Ok(filled(PAGE, &[("links", links.join("\n")), ("pairs", pairs()?), ("table", scaling()?)]))
}

fn topology(ranks: u64, within: &str, between: &str, adapters: u64) -> Result<Topology> {
    let link = |name: &str| Link::named(name).with_context(|| format!("no link {name}"));
    Ok(Topology { ranks, ranks_per_host: 8, within: link(within)?, between: link(between)?, adapters })
}

/// Time of buckets over two GPUs of a host.
fn pairs() -> Result<String> {
    let mib = [1, 8, 64, 512];
    let row = |name: &str| {
        let topology = topology(2, name, "400g", 1)?;
        let [a, b, c, d] = mib.map(|mib| three_digits(topology.bucket_s(Bytes::from_mib(mib).0 as f64) * 1e3));
        Ok(cells![format!("`{name}`"), a, b, c, d])
    };
    let rows: Result<Vec<_>> = ["nvlink", "pcie", "sockets"].into_iter().map(row).collect();
    Ok(table(["link", "1 MiB, ms", "8 MiB, ms", "64 MiB, ms", "512 MiB, ms"], rows?))
}

/// Exchange of each model on each topology.
fn scaling() -> Result<String> {
    let device = DeviceFacts::nominal(ProfileTable::builtin().get(GPU).context("no profile")?);
    let mut rows = Vec::new();
    for (name, workload, samples, precision, shard_optimizer) in models() {
        for (ranks, within, between, adapters) in TOPOLOGIES {
            let topology = topology(ranks, within, between, adapters)?;
            let global_batch = Some(samples * ranks);
            let precision = Some(precision.into());
            let goal = Goal { global_batch, world_size: ranks, precision, shard_optimizer, ..Goal::default() };
            let links = if ranks > 8 { format!("{within}, {adapters} x {between}") } else { within.to_owned() };
            let [ms, share, batch, own] = match plan(&device, &workload, &goal) {
                Ok(plan) => {
                    let exchange = Exchange::new(&plan, &workload, shard_optimizer, topology);
                    let batch = exchange.tenth_from_batch;
                    let share = format!("{:.1}%", exchange.step_share * 100.0);
                    cells![three_digits(exchange.step_ms), share, grouped(batch), grouped(batch.div_ceil(ranks))]
                }
                Err(_) => cells!["does not fit", "", "", ""],
            };
            rows.push(cells![name, grouped(ranks), links, samples, ms, share, batch, own]);
        }
    }
    let headings = ["model", "ranks", "links", "samples a rank", "exchange, ms", "share", "10% from", "a rank"];
    Ok(table(headings, rows))
}
