//! Training configs: tuned so that the text read back has the same step, or refused. JSON begins with a bracket; other texts are read
//! as TOML and as YAML.
#![no_main]

use std::path::Path;

use gpu_tuned_core::Goal;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_optimize::{Config, ConfigText, Format, Model, ModelRequest, OptimizeError, Step, Tuner};
use libfuzzer_sys::fuzz_target;

fn tune(file: &ConfigText) -> Result<(), OptimizeError> {
    let entries = file.entries()?;
    let config = Config::read(&entries, file, &[])?;
    let step = Step::new(&config, None, None)?;
    let request = ModelRequest { optimizer: config.optimizer, config: Some(&config), ..ModelRequest::default() };
    let model = Model::read(&entries, file, &request)?;
    let workload = model.spec.workload();
    for gpu in ["h200", "gtx1080"] {
        let tuner = Tuner {
            config: &config,
            step,
            spec: &model.spec,
            workload: &workload,
            name: "model",
            goal: Goal::default(),
            headroom: None,
            precision: None,
            add_keys: false,
            framework: config.framework(),
        };
        let facts = DeviceFacts::nominal(ProfileTable::builtin().get(gpu).expect("a shipped profile"));
        let Ok(tuned) = tuner.tune(gpu, &facts, Goal::default()) else { continue };
        let Some(text) = tuned.text else { continue };
        let edited = ConfigText::new(&file.path, file.format, &text);
        let again = Config::read(&edited.entries().expect("it is valid"), &edited, &[]).expect("it is a config");
        let again = Step::new(&again, None, None).expect("it has a step");
        assert_eq!(again.global, step.global, "{}\n{text}", file.text);
    }
    Ok(())
}

fuzz_target!(|text: &str| {
    let formats = if text.starts_with(['{', '[']) { &[Format::Json][..] } else { &[Format::Toml, Format::Yaml] };
    for format in formats {
        if let Err(error) = tune(&ConfigText::new(Path::new("config"), *format, text)) {
            assert!(!error.to_string().is_empty());
        }
    }
});
