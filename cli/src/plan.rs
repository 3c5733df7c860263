//! `cargo gpu-tuned plan`.

use core::str::FromStr;

use gpu_tuned_core::exchange::Exchange;
use gpu_tuned_core::plan;
use gpu_tuned_core::plan::{Misfit, Plan, PlanError, SpeedError, TRANSFER_ERROR};
use gpu_tuned_core::profile::{ProfileId, ProfileTable};
use gpu_tuned_core::{Goal, three_digits};
use gpu_tuned_project::gpu_names::profile;
use serde::Serialize;

use crate::args::{Common, GoalArgs, PinArgs, TargetArgs};
use crate::error::Error;
use crate::output::{Answer, BAD, Code, FAINT, PLAIN, Table, add_new, or_dash, styled};
use crate::project::{Described, ModelOrWorkloadArgs, Project};
use crate::target::{Target, Targets};
use crate::view;

/// Plan workloads for GPUs: what fits, how it runs, and where the figures come from
///
/// Without a GPU, for those that the package declares as features.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("plan/help.txt"))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Plan for every shipped profile and your own
    #[arg(long, conflicts_with_all = ["names", "target", "here", "gpu"])]
    all: bool,
    /// Sort the GPUs; those on which the workload does not fit come last
    #[arg(long, value_name = "BY", value_enum, requires_if("cost", "price"))]
    sort: Option<Sort>,
    /// Price of a GPU per hour, such as `h200=3.5`, for the cost of samples; repeatable
    #[arg(long, value_name = "GPU=USD")]
    price: Vec<Price>,
    #[command(flatten)]
    workload: ModelOrWorkloadArgs,
    #[command(flatten)]
    goal: GoalArgs,
    #[command(flatten)]
    pins: PinArgs,
    #[command(flatten)]
    exchange: view::ExchangeArgs,
}

impl PlanArgs {
    /// Calls `with` with the name for a file, the only workload, and its goal.
    pub(crate) fn with_workload<T>(
        &self,
        common: &Common,
        with: impl FnOnce(&str, &Described<'_>, &Goal) -> T,
    ) -> Result<T, Error> {
        let model = self.workload.model()?;
        let project = if model.is_some() { Project::read_if_any(common)? } else { Project::read(common)? };
        let described = match &model {
            Some(model) => project.model(model),
            None => project.workload(&self.workload.of_package)?,
        };
        let goal = self.pins.add_to(&self.goal).over(described.goal.clone());
        Ok(with(if model.is_some() { "model" } else { described.name }, &described, &goal))
    }
}

#[derive(Serialize)]
struct Plans<'a> {
    plans: &'a [Row],
    /// Factor by which the ratio of two GPUs' speeds may be off; left out for one GPU and for measured speeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    between_gpus_ratio: Option<f64>,
}

#[derive(Serialize)]
struct Row {
    workload: String,
    /// The annotated struct with this workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    target: String,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    has_estimates: bool,
    #[serde(flatten)]
    costs: Costs,
    /// Exchange of gradients between several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<Exchange>,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Row {
    /// GPU that the workload does not fit, and the reason.
    const fn misfit(&self) -> Option<(&str, &Misfit)> {
        if let Outcome::Misfit(misfit) = &self.outcome { Some((self.target.as_str(), misfit)) } else { None }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Plan(Box<Plan>),
    Misfit(Box<Misfit>),
    /// Reason why the target lacks a requested feature.
    Unsupported(String),
}

/// GPUs that a workload does not fit, up to which all remedies are listed.
const MOST_DETAILED: usize = 3;

/// Note on a workload that the generic card cannot hold.
const STAND_IN: &str =
    "a build that names no GPU compiles all the same: there, `generic` has the least of 16, 32, … 512 GiB that fits";

pub(crate) fn run(common: &Common, args: &PlanArgs) -> Result<Answer, Error> {
    let model = args.workload.model()?;
    let project = if model.is_some() { Project::read_if_any(common)? } else { Project::read(common)? };
    let workloads = match &model {
        Some(model) => vec![project.model(model)],
        None => project.workloads(&args.workload.of_package)?,
    };
    let targets = Targets::wanted(&project, &args.targets, args.all)?;
    let asked = args.pins.add_to(&args.goal);
    let mut notes = targets.notes();
    notes.extend(asked.note());
    notes.extend(project.left_out(&workloads));
    notes.extend(view::kept_from_builds(&workloads, args.targets.here.is_given()));
    let prices = Price::of_profiles(&args.price, &project.profiles())?;
    let mut rows = Vec::new();
    for described in &workloads {
        let fit = |target: &Target| target.fit(described, &asked);
        let (chosen, reasons) = targets.chosen(fit);
        add_new(&mut notes, reasons);
        add_new(&mut notes, chosen.iter().filter_map(|target| target.precision_note(described, &asked)));
        add_new(&mut notes, view::remarks(chosen));
        let mut found = Vec::new();
        for target in chosen {
            let goal = target.goal_for(described, &asked);
            add_new(&mut notes, args.exchange.note(&goal));
            let mut row = row(described, target, &goal, (&prices, &args.exchange))?;
            if let Outcome::Misfit(misfit) = &mut row.outcome {
                targets.add_remedy(misfit, target, fit);
                add_new(&mut notes, (target.name == ProfileId::GENERIC).then(|| STAND_IN.to_owned()));
            }
            if let Outcome::Plan(plan) = &mut row.outcome {
                args.pins.mark(plan);
                let facts = target.facts_of(goal.world_size);
                add_new(&mut notes, plan.padding(&facts, &described.workload_on(&facts)));
            }
            if row.costs.max_wh_per_1000_steps.is_some() {
                add_new(&mut notes, Costs::note(target));
            }
            found.push(row);
        }
        if let Some(sort) = args.sort {
            found.sort_by(|one, other| {
                let (one, other) = (sort.key(one), sort.key(other));
                one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
            });
        }
        rows.extend(found);
    }
    let between_gpus_ratio = between_gpus(&rows);
    notes.extend(
        between_gpus_ratio.map(|ratio| {
            format!("to compare GPUs: nine of ten ratios of their predicted speeds are within x{ratio:.1}")
        }),
    );
    let fits = rows.iter().all(|row| matches!(row.outcome, Outcome::Plan(_)));
    let text = || workloads.iter().map(|described| table(described, args, &rows)).collect::<Vec<_>>().join("\n");
    let code = if fits { Code::Ok } else { Code::No };
    Ok(Answer::new(("plan", common.json), &Plans { plans: &rows, between_gpus_ratio }, text, notes, code))
}

/// Factor by which the ratio of two rows' speeds may be off; `None` without two speeds of a workload of which one is predicted.
fn between_gpus(rows: &[Row]) -> Option<f64> {
    let speeds = || {
        rows.iter().filter_map(|row| match &row.outcome {
            Outcome::Plan(plan) => Some((&row.workload, plan.samples_per_s_error)),
            _ => None,
        })
    };
    let has_other = |workload| speeds().filter(|(other, _)| *other == workload).count() > 1;
    speeds().any(|(workload, error)| error.is_some() && has_other(workload)).then_some(TRANSFER_ERROR)
}

fn row(
    described: &Described<'_>,
    target: &Target,
    goal: &Goal,
    (prices, links): (&[Price], &view::ExchangeArgs),
) -> Result<Row, Error> {
    let facts = target.facts_of(goal.world_size);
    let model = described.workload_on(&facts);
    let goal = links.over(goal.clone(), target, &model);
    let mut exchange = None;
    let outcome = match plan(&facts, &model, &goal) {
        Ok(mut plan) => {
            if let Some((predicted, missing_s)) = links.predict(target, &model, &plan, &goal) {
                plan.count_exchange(missing_s);
                exchange = Some(predicted);
            }
            Outcome::Plan(Box::new(plan))
        }
        Err(PlanError::DoesNotFit(misfit)) => Outcome::Misfit(misfit),
        Err(error) if error.is_of_device() => Outcome::Unsupported(error.to_string()),
        // Other errors are mistakes in the goal.
        Err(source) => return Err(Error::Plan { workload: described.name.to_owned(), source }),
    };
    let config = described.structure.map(|it| it.name.clone());
    let costs = match &outcome {
        Outcome::Plan(plan) => Costs::new(target, plan, prices),
        _ => Costs::default(),
    };
    let (workload, name, has_estimates) = (described.name.to_owned(), target.name.clone(), !facts.estimated.is_empty());
    Ok(Row { workload, config, target: name, has_estimates, costs, exchange, outcome })
}

fn table(described: &Described<'_>, args: &PlanArgs, rows: &[Row]) -> String {
    let headings = view::headings("target").into_iter().chain(Costs::headings(&args.price));
    let mut table = Table::new(2, headings);
    for Row { target, outcome, costs, has_estimates, .. } in rows.iter().filter(|row| row.workload == described.name) {
        match outcome {
            Outcome::Plan(plan) => {
                let cells = view::cells(target, plan).into_iter().chain(costs.cells(&args.price));
                table.row(PLAIN, cells.collect::<Vec<_>>(), provenance(plan, *has_estimates));
            }
            Outcome::Misfit(misfit) => table.row(PLAIN, [target.clone()], styled(BAD, misfit.in_one_line())),
            Outcome::Unsupported(why) => table.row(PLAIN, [target.clone()], styled(BAD, why)),
        }
    }
    let misfits: Vec<_> = rows.iter().filter(|row| row.workload == described.name).filter_map(Row::misfit).collect();
    let others = misfits.iter().filter(|_| misfits.len() <= MOST_DETAILED);
    let others = others.flat_map(|(target, misfit)| {
        misfit.remedies.iter().skip(1).map(move |remedy| view::aside(&format!("{target}, or:"), &remedy.to_string()))
    });
    let exchanges = rows.iter().filter(|row| row.workload == described.name);
    let exchanges = exchanges.filter_map(|row| {
        Some(view::aside(&format!("{}:", row.target), &view::describe_exchange(row.exchange.as_ref()?)))
    });
    let others: String = others.chain(exchanges).collect();
    let gap = if others.is_empty() { "" } else { "\n" };
    format!("{}\n{}{gap}{others}", view::heading(described, &args.goal), table.print())
}

fn provenance(plan: &Plan, has_estimates: bool) -> String {
    let (memory, speed) = (plan.memory.provenance, plan.samples_per_s_provenance);
    let launches = if plan.samples_per_s_error == Some(SpeedError::LaunchBound) { ", launch-bound" } else { "" };
    let estimates = if has_estimates { ", by estimates" } else { "" };
    let same = if memory == speed { speed.to_string() } else { format!("{memory} memory, {speed} speed") };
    styled(FAINT, same + launches + estimates + view::with_graphs(plan))
}

/// Price of a GPU, as `GPU=USD_PER_HOUR`.
#[derive(Clone, Debug)]
struct Price {
    gpu: String,
    usd_per_hour: f64,
}

impl Price {
    /// Prices by the ids of profiles, of which each has one price at most.
    fn of_profiles(prices: &[Self], table: &ProfileTable) -> Result<Vec<Self>, Error> {
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
enum Sort {
    /// Lowest cost of a sample first; needs `--price`
    Cost,
    /// Fastest first
    Time,
    /// GPU with the least memory first
    Memory,
}

/// Energy and cost of training by a plan, over all ranks.
#[derive(Debug, Default, Serialize)]
struct Costs {
    /// Upper bound of the watt-hours of 1,000 optimizer steps: at the power limits of boards or parts of boards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wh_per_1000_steps: Option<f64>,
    /// US dollars of a million samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_million_samples: Option<f64>,
}

impl Costs {
    fn new(target: &Target, plan: &Plan, prices: &[Price]) -> Self {
        let ranks = plan.schedule.world_size as f64;
        let hours = |samples: f64| samples / plan.samples_per_s / 3600.0;
        let price = prices.iter().find(|price| price.is_of(target));
        Self {
            max_wh_per_1000_steps: target
                .facts
                .power
                .map(|power| power.watts() * ranks * hours(1e3 * plan.schedule.global_batch as f64)),
            usd_per_million_samples: price.map(|price| price.usd_per_hour * ranks * hours(1e6)),
        }
    }

    /// Names the power limit of a GPU of this machine, if that of the data sheet does not apply.
    fn note(target: &Target) -> Option<String> {
        let power = target.facts.power?;
        let published = target.profile.as_ref().and_then(|profile| profile.board.tdp_w);
        let is_published = power.share >= 1.0 && published.is_some_and(|watts| (watts - power.board_w).abs() < 1.0);
        (!is_published).then(|| format!("Wh/1k steps of {}: at a power limit of {power}", target.name))
    }

    fn headings(prices: &[Price]) -> impl Iterator<Item = String> {
        let cost = (!prices.is_empty()).then_some(">USD/1M");
        [Some(">Wh/1k steps"), cost].into_iter().flatten().map(str::to_owned)
    }

    fn cells(&self, prices: &[Price]) -> impl Iterator<Item = String> {
        let usd = |usd: f64| if usd < 0.01 { format!("{usd:.4}") } else { three_digits(usd) };
        let cost = (!prices.is_empty()).then(|| or_dash(self.usd_per_million_samples.map(usd)));
        let energy = self.max_wh_per_1000_steps.map(|energy| format!("≤{}", three_digits(energy)));
        [Some(or_dash(energy)), cost].into_iter().flatten()
    }
}

impl Sort {
    /// Returns what rows are sorted by. Those without a plan are last, behind plans without the figure.
    fn key(self, row: &Row) -> (bool, f64) {
        let Outcome::Plan(plan) = &row.outcome else { return (true, 0.0) };
        let figure = match self {
            Self::Cost => row.costs.usd_per_million_samples.unwrap_or(f64::INFINITY),
            Self::Time => -plan.samples_per_s,
            Self::Memory => plan.memory.available.0 as f64,
        };
        (false, figure)
    }
}
