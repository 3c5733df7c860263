//! Unmodified public configs: their step, and published memory.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use serde::Deserialize;

use crate::api::{self, Asked};
use crate::table::{Options, path};

#[derive(Deserialize)]
struct Public {
    #[serde(rename = "config")]
    configs: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    file: String,
    source: String,
    model: Option<String>,
    gpu: String,
    #[serde(default)]
    options: Options,
    batch: u64,
    global: u64,
    /// True if the published run compiled the model and its loss, unlike the file.
    #[serde(default)]
    compiled: bool,
    peak: Option<f64>,
    #[serde(default)]
    on_device: bool,
}

/// Reserved over allocated memory by the estimate.
const RESERVED: f64 = 1.11;

#[test]
fn public_configs_fit_as_they_are_with_the_published_memory() {
    let table: Public = toml::from_str(include_str!("../public.toml")).expect("a valid table");
    let mut checks = crate::Checks::default();
    for row in &table.configs {
        assert!(row.source.starts_with("https://github.com/"), "{}", row.file);
        let mut check = |name: &str, wanted: String, found: String, is_right: bool| {
            checks.add(&row.file, [name, &wanted], found, is_right);
        };
        let file = path("configs/public", &row.file);
        let read = api::read(&file, row.model.as_deref(), &row.options).and_then(|reading| {
            let text = std::fs::read_to_string(&file).expect("a config").replace("compile: False", "compile: True");
            if row.compiled { reading.again(&text, row.model.as_deref(), &row.options) } else { Ok(reading) }
        });
        let reading = match read {
            Ok(reading) => reading,
            Err(error) => {
                check("is read", "true".to_owned(), error.to_string(), false);
                continue;
            }
        };
        let step = [reading.step.batch, reading.step.global];
        check("step", format!("{:?}", [row.batch, row.global]), format!("{step:?}"), step == [row.batch, row.global]);
        let tuned = reading.model.as_ref().map_err(ToString::to_string);
        let edited = match tuned.and_then(|spec| reading.tune(&row.gpu, spec, Asked::default())) {
            Ok(edited) => edited,
            Err(error) => {
                check("is planned", "true".to_owned(), error, false);
                continue;
            }
        };
        let is_same = edited.after.as_ref() == Some(&edited.before);
        check("stays", "the text".to_owned(), edited.problem.clone().unwrap_or_else(|| "changes".to_owned()), is_same);
        let Some(peak) = row.peak else { continue };
        let facts = DeviceFacts::nominal(ProfileTable::builtin().get(&row.gpu).expect("a shipped profile"));
        let bytes = edited.memory.unwrap_or_default().0 as f64;
        let found = if row.on_device { bytes } else { (bytes - facts.context.0 as f64) / RESERVED };
        let found = found / f64::from(1 << 30);
        check("memory", format!("{peak} GiB"), format!("{found:.1} GiB"), (found / peak - 1.0).abs() <= 0.15);
    }
    checks.end("public configs");
}
