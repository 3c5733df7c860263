//! `cargo gpu-tuned plan`.

use gpu_tuned_core::plan::{Misfit, Plan, PlanError};
use gpu_tuned_core::{Goal, plan};
use serde::Serialize;

use crate::args::{Common, GoalArgs, TargetArgs};
use crate::error::Error;
use crate::output::{Answer, BAD, Code, FAINT, PLAIN, Table, pretty, styled};
use crate::project::{Described, ModelOrWorkloadArgs, Project};
use crate::target::Target;
use crate::view;

/// Plan workloads for GPUs: what fits, how it runs, and where the figures come from
///
/// Without a target, for those that the package declares as features.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Plan for every shipped profile and your own
    #[arg(long, conflicts_with_all = ["names", "target", "here"])]
    all: bool,
    #[command(flatten)]
    workload: ModelOrWorkloadArgs,
    #[command(flatten)]
    goal: GoalArgs,
}

#[derive(Serialize)]
struct Row {
    workload: String,
    /// The annotated struct with this workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    target: String,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Plan(Box<Plan>),
    Misfit(Box<Misfit>),
    /// Reason why the target lacks a requested feature.
    Unsupported(String),
}

pub(crate) fn run(common: &Common, args: &PlanArgs) -> Result<Answer, Error> {
    let model = args.workload.model()?;
    let project = if model.is_some() { Project::read_if_any(common)? } else { Project::read(common)? };
    let workloads = match &model {
        Some(model) => vec![project.model(model)],
        None => project.workloads(&args.workload.of_package)?,
    };
    let (targets, mut notes) = Target::wanted(&project, args.targets.names(), args.all, args.targets.here)?;
    notes.extend(project.left_out(&workloads));
    notes.extend(view::kept_from_builds(&workloads, args.targets.here));
    let mut rows = Vec::new();
    for described in &workloads {
        for target in &targets {
            let goal = args.goal.over(target.goal(described.goal.clone()));
            rows.push(row(described, target, &goal)?);
        }
    }
    let fits = rows.iter().all(|row| matches!(row.outcome, Outcome::Plan(_)));
    let text = if common.json {
        pretty(&rows)
    } else {
        workloads.iter().map(|described| table(described, &args.goal, &rows)).collect::<Vec<_>>().join("\n")
    };
    Ok(Answer { text, notes, code: if fits { Code::Ok } else { Code::No } })
}

fn row(described: &Described<'_>, target: &Target, goal: &Goal) -> Result<Row, Error> {
    let facts = target.facts_of(goal.world_size);
    let outcome = match plan(&facts, &described.workload_on(&facts), goal) {
        Ok(plan) => Outcome::Plan(Box::new(plan)),
        Err(PlanError::DoesNotFit(misfit)) => Outcome::Misfit(misfit),
        Err(error @ PlanError::PrecisionUnsupported { .. }) => Outcome::Unsupported(error.to_string()),
        // Other errors are mistakes in the goal.
        Err(source) => return Err(Error::Plan { workload: described.name.to_owned(), source }),
    };
    let config = described.structure.map(|it| it.name.clone());
    Ok(Row { workload: described.name.to_owned(), config, target: target.name.clone(), outcome })
}

fn table(described: &Described<'_>, goal: &GoalArgs, rows: &[Row]) -> String {
    let mut table = Table::new(2, view::headings("target"));
    for Row { target, outcome, .. } in rows.iter().filter(|row| row.workload == described.name) {
        match outcome {
            Outcome::Plan(plan) => table.row(PLAIN, view::cells(target, plan), provenance(plan)),
            Outcome::Misfit(misfit) => table.row(PLAIN, [target.clone()], styled(BAD, misfit.in_one_line())),
            Outcome::Unsupported(why) => table.row(PLAIN, [target.clone()], styled(BAD, why)),
        }
    }
    format!("{}\n{}", view::heading(described, goal), table.print())
}

fn provenance(plan: &Plan) -> String {
    let (memory, speed) = (plan.memory.provenance, plan.samples_per_s_provenance);
    styled(FAINT, if memory == speed { speed.to_string() } else { format!("{memory} memory, {speed} speed") })
}
