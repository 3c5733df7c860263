//! `cargo gpu-tuned explain`.

mod device;
mod sections;

pub(crate) use device::total;
use gpu_tuned_core::plan::{Explanation, Outcome, explain};
use serde::Serialize;

pub(crate) use sections::{all as arithmetic, in_words};

use crate::args::{Common, ExplainArgs};
use crate::error::Error;
use crate::plan::kept_from_builds;
use crate::project::Project;
use crate::table::{BAD, BOLD, styled};
use crate::targets::Target;
use crate::wrap::wrapped;
use crate::{Answer, Code};

/// What `--json` prints.
#[derive(Serialize)]
struct Explained<'a> {
    workload_name: &'a str,
    target: &'a str,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

/// Explains the plan of one workload for one target.
pub(crate) fn run(common: &Common, args: &ExplainArgs) -> Result<Answer, Error> {
    let model = args.workload.model()?;
    let project = if model.is_some() { Project::read_if_any(common)? } else { Project::read(common)? };
    let described = match &model {
        Some(model) => project.model(model),
        None => project.workload(&args.workload.of_package)?,
    };
    let name = args.target.as_deref().or(args.option.as_deref());
    let (target, mut notes) = Target::one(&project, name, args.here)?;
    notes.extend(project.left_out(core::slice::from_ref(&described)));
    notes.extend(kept_from_builds(core::slice::from_ref(&described), args.here));
    let goal = args.goal.over(target.goal(described.goal.clone()));
    let facts = target.facts_of(goal.world_size);
    let explained = explain(&facts, &described.workload_on(&facts), &goal);
    let explanation = explained.map_err(|source| Error::Plan { workload: described.name.to_owned(), source })?;
    let code = match explanation.outcome {
        Outcome::Plan(_) => Code::Fine,
        Outcome::Misfit(_) => Code::No,
    };
    let text = if common.json {
        let explained = Explained { workload_name: described.name, target: &target.name, explanation: &explanation };
        format!("{}\n", serde_json::to_string_pretty(&explained).expect("BUG: an explanation is always JSON"))
    } else {
        let heading = format!("{} on {}", styled(BOLD, described.name), styled(BOLD, &target.name));
        let heading = wrapped(&format!("{heading}: {}", in_short(&explanation)), 2);
        format!("{heading}\n{}", arithmetic(&project, &target, &explanation))
    };
    Ok(Answer { text, notes, code })
}

fn in_short(explanation: &Explanation) -> String {
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
        Outcome::Misfit(misfit) => styled(BAD, crate::plan::misfit_in_words(misfit)),
    }
}
