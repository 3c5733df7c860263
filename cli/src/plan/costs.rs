//! Energy and cost of predicted training, and the order of a table's rows.

use core::cmp::Ordering;
use core::str::FromStr;

use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::three_digits;
use gpu_tuned_project::gpu_names::profile;
use serde::Serialize;

use crate::error::Error;
use crate::output::or_dash;
use crate::target::Target;

/// Price of a GPU, as `GPU=USD_PER_HOUR`.
#[derive(Clone, Debug)]
pub(super) struct Price {
    gpu: String,
    usd_per_hour: f64,
}

impl Price {
    /// Prices by the ids of profiles, of which each has one price at most.
    pub(super) fn of_profiles(prices: &[Self], table: &ProfileTable) -> Result<Vec<Self>, Error> {
        let mut found: Vec<Self> = Vec::new();
        for Self { gpu, usd_per_hour } in prices {
            let gpu = profile(table, gpu)?.id.to_string();
            if found.iter().any(|earlier| earlier.gpu == gpu) {
                return Err(Error::TwicePriced { gpu });
            }
            found.push(Self { gpu, usd_per_hour: *usd_per_hour });
        }
        Ok(found)
    }

    fn is_of(&self, target: &Target) -> bool {
        target.profile.as_ref().is_some_and(|profile| profile.id.as_str() == self.gpu)
    }
}

/// Highest price of a GPU, in USD per hour.
const HIGHEST_PRICE: f64 = 1e6;

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(gpu, usd)| Some((gpu, usd.parse::<f64>().ok()?)));
        match parts.filter(|(_, usd)| (0.0..=HIGHEST_PRICE).contains(usd)) {
            Some((gpu, usd_per_hour)) => Ok(Self { gpu: gpu.to_owned(), usd_per_hour }),
            None => Err(format!("expected GPU=USD_PER_HOUR from 0 to {HIGHEST_PRICE}, such as h200=3.5")),
        }
    }
}

/// Order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// Lowest cost of a sample first; needs `--price`
    Cost,
    /// Fastest first
    Time,
    /// GPU with the least memory first
    Memory,
}

/// Energy and cost of training by a plan, over all ranks.
#[derive(Debug, Default, Serialize)]
pub(super) struct Costs {
    /// Watt-hours of 1,000 optimizer steps, at the power limits of boards or parts of boards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wh_per_1000_steps: Option<f64>,
    /// US dollars of a million samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_million_samples: Option<f64>,
}

impl Costs {
    pub(super) fn new(target: &Target, plan: &Plan, prices: &[Price]) -> Self {
        let ranks = plan.schedule.world_size as f64;
        let hours = |samples: f64| samples / plan.samples_per_s / 3600.0;
        let price = prices.iter().find(|price| price.is_of(target));
        Self {
            wh_per_1000_steps: target
                .facts
                .power
                .map(|power| power.watts() * ranks * hours(1e3 * plan.schedule.global_batch as f64)),
            usd_per_million_samples: price.map(|price| price.usd_per_hour * ranks * hours(1e6)),
        }
    }

    /// Names the power limit of a GPU of this machine, if that of the data sheet does not apply.
    pub(super) fn note(target: &Target) -> Option<String> {
        let power = target.facts.power?;
        let published = target.profile.as_ref().and_then(|profile| profile.board.tdp_w);
        let is_published = power.share >= 1.0 && published.is_some_and(|watts| (watts - power.board_w).abs() < 1.0);
        (!is_published).then(|| format!("Wh/1k steps of {}: at a power limit of {power}", target.name))
    }

    /// Headings of [`cells`](Self::cells).
    pub(super) fn headings(prices: &[Price]) -> impl Iterator<Item = String> {
        let cost = (!prices.is_empty()).then_some(">USD/1M");
        [Some(">Wh/1k steps"), cost].into_iter().flatten().map(str::to_owned)
    }

    pub(super) fn cells(&self, prices: &[Price]) -> impl Iterator<Item = String> {
        let usd = |usd: f64| if usd < 0.01 { format!("{usd:.4}") } else { three_digits(usd) };
        let cost = (!prices.is_empty()).then(|| or_dash(self.usd_per_million_samples.map(usd)));
        [Some(or_dash(self.wh_per_1000_steps.map(three_digits))), cost].into_iter().flatten()
    }
}

impl Sort {
    /// Compares two plans with their costs. What has no figure is last.
    pub(super) fn compare(self, one: (&Plan, &Costs), other: (&Plan, &Costs)) -> Ordering {
        let key = |(plan, costs): (&Plan, &Costs)| match self {
            Self::Cost => costs.usd_per_million_samples.unwrap_or(f64::INFINITY),
            Self::Time => -plan.samples_per_s,
            Self::Memory => plan.memory.available.0 as f64,
        };
        key(one).total_cmp(&key(other))
    }
}
