//! `cargo gpu-tuned explain`.

use gpu_tuned_core::exchange::Exchange;
use gpu_tuned_core::plan::{Explanation, Outcome, explain};
use serde::Serialize;

use crate::args::{Common, GoalArgs, PinArgs, TargetArgs};
use crate::error::Error;
use crate::output::{Answer, BAD, BOLD, Code, styled, wrapped};
use crate::project::{ModelOrWorkloadArgs, Project};
use crate::target::{Target, Targets};
use crate::view;

/// Explain a plan: every figure, every item of the memory, and the alternatives
///
/// Without a GPU, for the one that the package declares as a feature.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("explain/help.txt"))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    workload: ModelOrWorkloadArgs,
    #[command(flatten)]
    goal: GoalArgs,
    #[command(flatten)]
    pins: PinArgs,
    #[command(flatten)]
    exchange: view::ExchangeArgs,
}

#[derive(Serialize)]
struct Explained<'a> {
    workload: &'a str,
    target: &'a str,
    #[serde(flatten)]
    explanation: &'a Explanation,
    /// Exchange of gradients between several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<Exchange>,
}

pub(crate) fn run(common: &Common, args: &ExplainArgs) -> Result<Answer, Error> {
    let model = args.workload.model()?;
    let project = if model.is_some() { Project::read_if_any(common)? } else { Project::read(common)? };
    let described = match &model {
        Some(model) => project.model(model),
        None => project.workload(&args.workload.of_package)?,
    };
    let targets = Targets::one(&project, &args.targets)?;
    let asked = args.pins.add_to(&args.goal);
    let mut notes = targets.notes();
    notes.extend(asked.note());
    let fit = |target: &Target| target.fit(&described, &asked);
    let (chosen, reasons) = targets.chosen(fit);
    notes.extend(reasons);
    let [target] = chosen else {
        let names = chosen.iter().map(|target| target.name.clone()).collect();
        return Err(Error::SeveralHere { names });
    };
    notes.extend(target.precision_note(&described, &asked));
    notes.extend(project.left_out(core::slice::from_ref(&described)));
    notes.extend(view::kept_from_builds(core::slice::from_ref(&described), args.targets.here.is_given()));
    let goal = target.goal_for(&described, &asked);
    notes.extend(args.exchange.note(&goal));
    let facts = target.facts_of(goal.world_size);
    let workload = described.workload_on(&facts);
    let goal = args.exchange.over(goal, target, &workload);
    let explained = explain(&facts, &workload, &goal);
    let mut explanation = explained.map_err(|source| Error::Plan { workload: described.name.to_owned(), source })?;
    let exchange = args.exchange.count(target, &workload, &goal, &mut explanation);
    match &mut explanation.outcome {
        Outcome::Plan(plan) => args.pins.mark(plan),
        Outcome::Misfit(misfit) => targets.add_remedy(misfit, target, fit),
    }
    let code = match explanation.outcome {
        Outcome::Plan(_) => Code::Ok,
        Outcome::Misfit(_) => Code::No,
    };
    let explained = Explained { workload: described.name, target: &target.name, explanation: &explanation, exchange };
    let text = || {
        let heading = format!("{} on {}", styled(BOLD, described.name), styled(BOLD, &target.name));
        let heading = wrapped(&format!("{heading}: {}", summary(&explanation)), 2);
        let aside = exchange.map(|exchange| view::aside("ranks:", &view::describe_exchange(&exchange)));
        format!("{heading}\n{}{}", view::explanation(&project, target, &explanation), aside.unwrap_or_default())
    };
    Ok(Answer::new(("explain", common.json), &explained, text, notes, code))
}

fn summary(explanation: &Explanation) -> String {
    match &explanation.outcome {
        Outcome::Plan(plan) => {
            let settings = &plan.settings;
            format!(
                "batch {} x {}, {}, {} of {}",
                settings.batch_size,
                settings.gradient_accumulation,
                settings.precision,
                explanation.needed,
                plan.memory.available
            )
        }
        Outcome::Misfit(misfit) => styled(BAD, misfit.in_one_line()),
    }
}
