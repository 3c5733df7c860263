//! Rounded measurements of a transformer of 27 M parameters on an H200, and access to their page.

use crate::proof::data::{Results, parsed};
use crate::proof::generated;
use crate::results::lines;

pub(super) const LOCK: &str = "\
format = 2

[workload.transformer]
parameters = 27_300_000
shape = \"9c1f\"

[workload.transformer.described.transformer]
d_model = 512
heads = 8
layers = 6
seq = 256
vocab = 8192

[workload.transformer.on.h200]
burn = \"0.22.1\"
context_bytes = 563_085_312 # 537 MiB
cubecl = \"0.11.3\"
device = \"NVIDIA H200\"
driver = \"580.95.05\"
kernels_bytes = 34_603_008 # 33 MiB
kind = \"gpu\"
memory_bytes = 150_754_820_096
sm_count = 132

[workload.transformer.on.h200.mode.f32]
method = \"executed\"

[workload.transformer.on.h200.mode.f32.batch]
8 = { micro_step_ms = 14.27, optimizer_ms = 1.0, reserved_bytes = 1_548_746_752 }
32 = { micro_step_ms = 38.22, optimizer_ms = 1.0, reserved_bytes = 4_968_153_088 }
256 = { micro_step_ms = 290.2, optimizer_ms = 1.0, reserved_bytes = 33_420_214_272 }

# end of gpu-tuned.lock
";

pub(super) fn line(batch: u64, rest: &str) -> String {
    format!(
        "{{\"model\":\"transformer\",\"precision\":\"f32\",\"checkpointing\":false,\"accumulate\":1,\
         \"batch\":{batch},{rest}}}\n"
    )
}

/// Three repeats of three batches; 64 samples reserve 8833 MiB, and run with 9400 MiB free but not with 9000.
pub(super) fn results() -> Results {
    let mut sweep = String::new();
    for (batch, rates) in [(16, [690, 700, 720]), (64, [832, 810, 835]), (128, [861, 859, 850])] {
        for rate in rates {
            sweep += &line(batch, &format!("\"way\":\"sweep\",\"samples_per_second\":{rate}"));
        }
    }
    let trace = line(64, "\"way\":\"trace\",\"queue\":0,\"reserved_bytes\":[2267213824,9262071808,8715956224]");
    let boundary = [
        line(64, "\"way\":\"boundary\",\"free_mib\":9400,\"ok\":true,\"samples_per_second\":830.0"),
        line(64, "\"way\":\"boundary\",\"free_mib\":12000,\"ok\":true,\"samples_per_second\":832.0"),
        line(64, "\"way\":\"boundary\",\"free_mib\":9000,\"ok\":false"),
    ];
    let confirmed = [
        line(16, "\"way\":\"confirmed\",\"free_mib\":8192,\"reserved_bytes\":[2684354560]"),
        line(64, "\"way\":\"confirmed\",\"free_mib\":9000,\"out_of_memory\":true,\"message\":\"none left\""),
    ];
    Results {
        lock: parsed(LOCK).expect("it is valid"),
        devices: [("transformer".to_owned(), "h200".to_owned())].into(),
        sweep: lines("sweep.jsonl", &sweep).expect("they are valid"),
        trace: lines("trace.jsonl", &trace).expect("it is valid"),
        pairs: Vec::new(),
        boundary: lines("boundary.jsonl", &boundary.concat()).expect("they are valid"),
        confirmed: lines("confirmed.jsonl", &confirmed.concat()).expect("they are valid"),
    }
}

pub(super) fn page() -> String {
    page_of(&results())
}

pub(super) fn page_of(results: &Results) -> String {
    let files = generated(results).expect("it can be generated");
    let (_, page) = files.into_iter().find(|(file, _)| file == "docs/proof.md").expect("there is a page");
    page
}

/// Returns the cells of the row that begins with `begin`.
pub(super) fn row(page: &str, begin: &str) -> Vec<String> {
    let line = page.lines().find(|line| line.starts_with(begin)).expect("there is such a row");
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Results with steps of 512 samples, confirmed with these micro-batches and MiB reserved by the pools.
pub(super) fn in_steps_of_512(confirmed: &[(u64, u64)]) -> Results {
    let goal = "[workload.transformer.goal]\nglobal_batch = 512\n\n[workload.transformer.on.h200]\n";
    let lock = LOCK.replacen("[workload.transformer.on.h200]\n", goal, 1);
    let confirmed = confirmed.iter().map(|(batch, mib)| {
        let rest = format!("\"way\":\"confirmed\",\"free_mib\":8192,\"reserved_bytes\":[{}]", mib << 20);
        line(*batch, &rest).replace("\"accumulate\":1", &format!("\"accumulate\":{}", 512_u64.div_ceil(*batch)))
    });
    let confirmed: String = confirmed.collect();
    Results {
        lock: parsed(&lock).expect("it is valid"),
        confirmed: lines("confirmed.jsonl", &confirmed).expect("they are valid"),
        ..results()
    }
}
