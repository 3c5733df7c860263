//! `cargo gpu-tuned plan`.

mod row;

use gpu_tuned_core::plan::{Plan, PlanError};
use gpu_tuned_core::{Goal, Provenance, grouped, plan};

use crate::args::{Common, GoalArgs, PlanArgs};
use crate::error::Error;
use crate::project::{Described, Project};
use crate::table::{Align, BAD, BOLD, FAINT, PLAIN, Table, styled};
use crate::targets::Target;
use crate::wrap::wrapped;
use crate::{Answer, Code};
use row::{Outcome, Row};
pub(crate) use row::{cells, headings, misfit_in_words};

/// Plans each workload for each target.
pub(crate) fn run(common: &Common, args: &PlanArgs) -> Result<Answer, Error> {
    let model = args.workload.model()?;
    let project = if model.is_some() { Project::read_if_any(common)? } else { Project::read(common)? };
    let workloads = match &model {
        Some(model) => vec![project.model(model)],
        None => project.workloads(&args.workload.of_package)?,
    };
    let (targets, mut notes) = Target::wanted(&project, args.targets.names(), args.all, args.targets.here)?;
    notes.extend(project.left_out(&workloads));
    notes.extend(kept_from_builds(&workloads, args.targets.here));
    let mut rows = Vec::new();
    for described in &workloads {
        for target in &targets {
            let goal = args.goal.over(target.goal(described.goal.clone()));
            rows.push(row(described, target, &goal)?);
        }
    }
    let fits = rows.iter().all(|row| matches!(row.outcome, Outcome::Plan(_)));
    let text = if common.json {
        format!("{}\n", serde_json::to_string_pretty(&rows).expect("BUG: plans are always JSON"))
    } else {
        workloads.iter().map(|described| table(described, &args.goal, &rows)).collect::<Vec<_>>().join("\n")
    };
    Ok(Answer { text, notes, code: if fits { Code::Fine } else { Code::No } })
}

/// That programs do otherwise here than they would if they were built for this machine.
pub(crate) fn kept_from_builds(workloads: &[Described<'_>], here: bool) -> Option<String> {
    let with_statistics = |described: &&Described<'_>| described.workload().batch_statistics;
    let names: Vec<_> =
        workloads.iter().filter(with_statistics).map(|described| format!("`{}`", described.name)).collect();
    (here && !names.is_empty()).then(|| {
        format!(
            "{}: a model that computes statistics over the micro-batch keeps, wherever it fits, the one that its program was \
             built with; this is what a build for this machine would have",
            names.join(", ")
        )
    })
}

fn row(described: &Described<'_>, target: &Target, goal: &Goal) -> Result<Row, Error> {
    let facts = target.facts_of(goal.world_size);
    let outcome = match plan(&facts, &described.workload_on(&facts), goal) {
        Ok(plan) => Outcome::Plan(Box::new(plan)),
        Err(PlanError::DoesNotFit(misfit)) => Outcome::Misfit(misfit),
        Err(error @ PlanError::PrecisionUnsupported { .. }) => Outcome::Unsupported(error.to_string()),
        // What no target could mend is a mistake of the goal.
        Err(source) => return Err(Error::Plan { workload: described.name.to_owned(), source }),
    };
    let config = described.structure.map(|it| it.name.clone());
    Ok(Row { workload: described.name.to_owned(), config, target: target.name.clone(), outcome })
}

fn table(described: &Described<'_>, goal: &GoalArgs, rows: &[Row]) -> String {
    let align = |(heading, is_number)| (heading, if is_number { Align::Right } else { Align::Left });
    let columns: Vec<_> = core::iter::once(("target", false)).chain(row::headings()).map(align).collect();
    let mut table = Table::new(2, columns);
    for Row { target, outcome, .. } in rows.iter().filter(|row| row.workload == described.name) {
        match outcome {
            Outcome::Plan(plan) => table.row(PLAIN, row::cells(target, plan), provenance(plan)),
            Outcome::Misfit(misfit) => table.row(PLAIN, [target.clone()], styled(BAD, misfit_in_words(misfit))),
            Outcome::Unsupported(why) => table.row(PLAIN, [target.clone()], styled(BAD, why)),
        }
    }
    format!("{}\n{}", heading(described, goal), table.print())
}

/// Where the figures of a plan come from.
fn provenance(plan: &Plan) -> String {
    let (memory, speed) = (plan.memory.provenance, plan.samples_per_s_provenance);
    styled(FAINT, if memory == speed { speed.to_string() } else { format!("{memory} memory, {speed} speed") })
}

/// The workload in a line.
pub(crate) fn heading(described: &Described<'_>, goal: &GoalArgs) -> String {
    let (workload, goal) = (described.workload(), goal.over(described.goal.clone()));
    let step = match (goal.global_batch, goal.global_tokens) {
        (Some(samples), _) => format!("global batch {}", grouped(samples)),
        (None, Some(tokens)) => format!("{} tokens a step", grouped(tokens)),
        (None, None) => "no global batch".to_owned(),
    };
    let costs = match (workload.measured.in_words(), workload.provenance) {
        (Some(measured), _) => measured,
        (None, Provenance::Declared) => "costs as declared".to_owned(),
        (None, _) => "costs from its dimensions".to_owned(),
    };
    let parameters = grouped(workload.trained_parameters().0);
    let name = styled(BOLD, described.name);
    wrapped(&format!("{name}: {parameters} parameters, {}, {step}, {costs}", workload.optimizer), 2)
}
