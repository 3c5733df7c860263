//! Exchange of gradients between the ranks of a plan.

use core::str::FromStr;

use gpu_tuned_core::exchange::{Exchange, Link, Topology};
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{grouped, three_digits};

use super::aside;
use crate::target::Target;

/// GPUs of usual servers.
const RANKS_PER_HOST: u64 = 8;

/// Links between the ranks.
#[derive(Debug, clap::Args)]
pub(crate) struct ExchangeArgs {
    /// Links between the ranks, such as `nvlink,8x400g`: nvlink, pcie or sockets within a host (default: NVLink if the GPU
    /// has it), sockets, 100g or 400g between hosts (default: 400g), where a number counts a host's network adapters
    #[arg(long, value_name = "LINKS", value_delimiter = ',')]
    link: Vec<WantedLink>,
    /// Ranks of each host
    #[arg(long, value_name = "RANKS", default_value_t = RANKS_PER_HOST, value_parser = clap::value_parser!(u64).range(1..))]
    ranks_per_host: u64,
}

/// A link, and the number of adapters.
#[derive(Clone, Copy, Debug)]
struct WantedLink {
    link: Link,
    adapters: u64,
}

impl FromStr for WantedLink {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let counted = text.split_once('x').and_then(|(count, name)| Some((count.parse().ok()?, name)));
        let (adapters, name) = counted.unwrap_or((1, text));
        let link =
            Link::named(name).filter(|link| (1..=64).contains(&adapters) && (adapters == 1 || link.is_network()));
        let names = || Link::ALL.map(|link| link.name).join(", ");
        let link = link.ok_or_else(|| format!("expected one of {}, or a number of adapters: 8x400g", names()))?;
        Ok(Self { link, adapters })
    }
}

impl Default for ExchangeArgs {
    fn default() -> Self {
        Self { link: Vec::new(), ranks_per_host: RANKS_PER_HOST }
    }
}

impl ExchangeArgs {
    /// Predicts the exchange of a plan for several ranks.
    pub(crate) fn predict(&self, target: &Target, workload: &Workload, plan: &Plan) -> Option<Exchange> {
        let ranks = plan.schedule.world_size;
        let profile = target.profile.as_ref();
        let wanted = |is: fn(&Link) -> bool| self.link.iter().rev().find(|wanted| is(&wanted.link));
        let within = wanted(Link::is_local).map_or("nvlink", |wanted| wanted.link.name);
        let within = Link::within_host(profile, within).or_else(|| Link::within_host(profile, "pcie"))?;
        let default = WantedLink { link: Link::named("400g")?, adapters: 1 };
        let WantedLink { link: between, adapters } = *wanted(Link::is_network).unwrap_or(&default);
        let topology = Topology { ranks, ranks_per_host: self.ranks_per_host, within, between, adapters };
        (ranks > 1).then(|| Exchange::new(plan, workload, topology))
    }
}

/// Describes an exchange below a table, with the name of the GPU.
pub(crate) fn exchange_aside(target: &str, exchange: &Exchange) -> String {
    aside(&format!("{target}:"), &describe_exchange(exchange))
}

/// Describes an exchange in a sentence.
pub(crate) fn describe_exchange(exchange: &Exchange) -> String {
    let Exchange { topology, gradient_bytes, step_ms, step_share, tenth_from_batch, tenth_to_ranks } = exchange;
    let Topology { ranks, ranks_per_host, within, between, adapters } = topology;
    let links = if ranks <= ranks_per_host {
        within.name.to_owned()
    } else {
        format!("{} and {adapters} x {}", within.name, between.name)
    };
    let most = tenth_to_ranks.map_or("no 2".to_owned(), |ranks| format!("up to {}", grouped(ranks)));
    format!(
        "exchange of {gradient_bytes} of gradients over {links}: {} ms, {:.1}% of a step; at most 10% from a global batch of \
         {}, or with this one among {most} ranks",
        three_digits(*step_ms),
        step_share * 100.0,
        grouped(*tenth_from_batch)
    )
}
