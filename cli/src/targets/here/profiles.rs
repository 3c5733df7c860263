//! The GPUs of this machine as profiles for `gpu-tuned.toml`.

use gpu_tuned_core::matching::Match;
use gpu_tuned_project::profile_text::{DescribedGpu, describe};

use super::super::catalogue::Catalogue;
use crate::output::{Answer, Code, Form};

const HEADING: &str = "\
# Printed by `cargo gpu-tuned targets --here --toml`. Figures without a comment are reported by NVML and CUDA.
# Correct the estimated ones by the data sheet, then append the text to gpu-tuned.toml.
";

/// Profiles of the machine's GPUs, each model once, and reasons why others have none. Without a profile, the answer is no.
pub(in super::super) fn profiles(catalogue: &Catalogue, mut notes: Vec<String>) -> Answer {
    notes.extend(super::trouble(&catalogue.here));
    let mut readings = catalogue.here.machine.gpus.clone();
    gpu_tuned_nvml::add_cuda_figures(&mut readings);
    let mut described: Vec<DescribedGpu> = Vec::new();
    let mut models = Vec::new();
    for (number, (reading, found)) in readings.iter().zip(&catalogue.recognised).enumerate() {
        let exact = if let Match::Exact { profile } = found { Some(&**profile) } else { None };
        if let Some(profile) = exact {
            notes.push(format!(
                "GPU {number} is exactly `{0}`: feature `{0}` builds for it without this text",
                profile.id
            ));
        }
        match describe(reading, exact, |_| false) {
            Ok(model) if models.contains(&model) => {}
            Ok(model) => {
                let is_printed = |id: &str| described.iter().any(|profile| profile.id.as_str() == id);
                let is_taken = |id: &str| is_printed(id) || catalogue.table.get(id).is_some();
                let profile = describe(reading, exact, is_taken).ok();
                described.extend(profile.filter(|profile| !is_printed(profile.id.as_str())));
                models.push(model);
            }
            Err(because) => {
                notes.push(format!("{} gets no profile: {because}", reading.numbered_name(number)));
            }
        }
    }
    let text = described.iter().map(|profile| format!("\n{}", profile.text)).collect::<String>();
    let (text, code) = if described.is_empty() { (text, Code::No) } else { (HEADING.to_owned() + &text, Code::Ok) };
    Answer { text, form: Form::Data, notes, code }
}
