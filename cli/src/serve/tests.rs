use std::collections::BTreeSet;

use clap::Parser;
use gpu_tuned_optimize::Model;
use gpu_tuned_project::config::workload_from_words;

use super::presets;
use crate::project::ModelOrWorkloadArgs;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    model: ModelOrWorkloadArgs,
}

/// The description of a model on a command line.
fn described(args: &[&str]) -> Option<gpu_tuned_core::workload::WorkloadSpec> {
    let options = Options::try_parse_from([&["plan", "--model"], args].concat()).expect("options");
    options.model.model().ok().map(|described| described.expect("a model").1)
}

#[test]
fn presets_are_the_models_that_plan_has_names_for() {
    let presets: Vec<_> = presets().collect();
    let names: BTreeSet<_> = presets.iter().map(|preset| preset.name).collect();
    assert_eq!((names.len(), presets.len()), (Model::known_names().count(), names.len()), "each has its own name");
    let mut open = 0;
    for preset in &presets {
        let values: Vec<_> = preset.values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let named = described(&[preset.name]);
        // The page asks for the length where the model has none.
        let (named, values) = if let Some(named) = named {
            (named, values)
        } else {
            open += 1;
            let values = values.into_iter().chain(["seq = 512".to_owned()]).collect();
            (described(&[preset.name, "--dim", "seq=512"]).expect(preset.name), values)
        };
        let (_, of_page) = workload_from_words(&format!("{}({})", preset.model, values.join(", ")), &[])
            .unwrap_or_else(|error| panic!("{}: {error}", preset.name));
        assert_eq!(of_page, named, "{}", preset.name);
    }
    assert!(open < presets.len() / 2, "{open}");
}
