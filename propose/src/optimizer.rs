//! Optimizer of a program.

use crate::burn::BurnNames;
use crate::code::Code;
use gpu_tuned_core::workload::Optimizer;

/// Optimizer in the annotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Annotated {
    /// None: the code has the default, or no optimizer.
    Default,
    /// An optimizer that differs from the default.
    Other(Optimizer),
    /// None: the code is ambiguous, or has an optimizer that the planner lacks. With a note.
    Open(String),
}

/// The optimizer of the program that trains, else of any code.
pub(super) fn find(code: &Code, chosen: &Code) -> Annotated {
    let in_code = |code: &Code| {
        let mut found: Vec<(String, Option<Optimizer>)> = Vec::new();
        for name in &code.names {
            let optimizer = BurnNames::get().optimizer(name);
            found.extend(
                optimizer.filter(|_| found.iter().all(|(known, _)| known != name)).map(|it| (name.clone(), it)),
            );
        }
        // Muon takes matrices only: another optimizer takes the rest.
        found.sort_by_key(|(_, optimizer)| *optimizer == Some(Optimizer::Muon));
        found
    };
    let found = Some(in_code(chosen)).filter(|found| !found.is_empty()).unwrap_or_else(|| in_code(code));
    let assumed = format!("plans assume {} until it is measured", Optimizer::default());
    match &found[..] {
        [] => Annotated::Default,
        [(_, Some(Optimizer::Sgd))] if code.has("MomentumConfig") => Annotated::Other(Optimizer::Momentum),
        [(_, Some(optimizer))] if *optimizer == Optimizer::default() => Annotated::Default,
        [(_, Some(optimizer))] => Annotated::Other(*optimizer),
        [.., (_, Some(Optimizer::Muon))] => Annotated::Other(Optimizer::Muon),
        [(config, None)] => Annotated::Open(format!("the planner has no `{config}`: {assumed}")),
        several => {
            let configs: Vec<_> = several.iter().map(|(config, _)| format!("`{config}`")).collect();
            Annotated::Open(format!("add `optimizer = …` for the one of {} that trains: {assumed}", configs.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::workload::Optimizer;

    use super::{Annotated, find};
    use crate::code::Code;

    fn naming(names: &[&str]) -> Code {
        let mut code = Code::default();
        code.names.extend(names.iter().map(|name| (*name).to_owned()));
        code
    }

    fn found(names: &[&str]) -> Annotated {
        find(&naming(names), &Code::default())
    }

    #[test]
    fn the_optimizer_is_the_one_that_the_code_names() {
        assert_eq!(found(&["Linear"]), Annotated::Default);
        assert_eq!(found(&["AdamWConfig"]), Annotated::Default);
        assert_eq!(found(&["AdamConfig"]), Annotated::Other(Optimizer::Adam));
        assert_eq!(found(&["SgdConfig"]), Annotated::Other(Optimizer::Sgd));
        assert_eq!(found(&["SgdConfig", "MomentumConfig"]), Annotated::Other(Optimizer::Momentum));
        assert_eq!(found(&["AdamWConfig", "MuonConfig"]), Annotated::Other(Optimizer::Muon));
    }

    #[test]
    fn the_program_that_trains_has_precedence() {
        let rest = naming(&["SgdConfig", "AdamConfig"]);
        assert_eq!(find(&rest, &naming(&["AdamConfig"])), Annotated::Other(Optimizer::Adam));
        let Annotated::Open(help) = find(&rest, &Code::default()) else { panic!("one is chosen") };
        assert!(help.contains("of `SgdConfig`, `AdamConfig`"), "{help}");
    }

    #[test]
    fn an_optimizer_that_the_planner_lacks_gets_a_note() {
        let Annotated::Open(help) = found(&["LionConfig"]) else { panic!("it is planned") };
        assert_eq!(help, "the planner has no `LionConfig`: plans assume adamw until it is measured");
    }
}
