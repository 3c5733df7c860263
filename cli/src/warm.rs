//! `cargo gpu-tuned warm`.

use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use gpu_tuned_core::atomic_file;
use serde::{Deserialize, Serialize};

use crate::args::{Common, GpuNames, ProgramArgs};
use crate::error::Error;
use crate::output::{Answer, Code, FAINT, styled};
use crate::program::{Program, Run};
use crate::project::Project;

/// Run the program so that it makes an archive of the kernels that its planned steps compile and autotune
///
/// The program is built in release mode and run with `GPU_TUNED_WARM` set. Where it calls `session.measure_if_asked`, it
/// takes the planned steps, writes the archive into `gpu-tuned.warm`, and exits. Without that call, the first step of a
/// session's trainer ends the program, and there is no archive. The archive works with the same GPU, driver, releases and
/// build: enable the features that the program will run with. A named GPU is a feature to build with, as in `-F h200`.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("warm/help.txt"))]
pub(crate) struct WarmArgs {
    #[command(flatten)]
    targets: GpuNames,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Folder of archives, beside `Cargo.toml`.
const FOLDER: &str = "gpu-tuned.warm";
/// Variable with the folder in which a program makes an archive.
const WARM: &str = "GPU_TUNED_WARM";
/// Variable that makes the program print a line of JSON for an archive.
const WARM_JSON: (&str, &str) = ("GPU_TUNED_WARM_JSON", "1");
/// Variable with the folder of the driver's kernel cache.
const DRIVER_CACHE: &str = "CUDA_CACHE_PATH";
/// Variable that marks that folder as this run's own.
const DRIVER_CACHE_IS_OWN: (&str, &str) = ("GPU_TUNED_WARM_DRIVER", "1");

#[derive(Deserialize, Serialize)]
struct Warmed {
    #[serde(rename(deserialize = "warmed"))]
    workload: String,
    bundle: Bundle,
    micro_batches: Vec<u64>,
}

#[derive(Deserialize, Serialize)]
struct Bundle {
    path: PathBuf,
    bytes: u64,
    entries: u64,
    sha256: String,
}

#[derive(Serialize)]
struct Report<'a> {
    warmed: &'a [Warmed],
    seconds: f64,
}

pub(crate) fn run(common: &Common, args: &WarmArgs) -> Result<Answer, Error> {
    let project = Project::read(common)?;
    let begin = Instant::now();
    // Kernels are for one build, so that no feature is added.
    let program = Program::new(
        &project,
        common.color,
        Run { args: &args.program, features: project.features_of(&args.targets)? },
    )?;
    let folder = project.root.join(FOLDER);
    let failed = |source| Error::Write { path: folder.clone(), source };
    let is_new = !folder.exists();
    fs::create_dir_all(&folder).map_err(failed)?;
    let driver_cache = tempfile::tempdir().map_err(|source| Error::Write { path: env::temp_dir(), source })?;
    let ran = program
        .with([(WARM, &*folder), (DRIVER_CACHE, driver_cache.path())])
        .with([WARM_JSON, DRIVER_CACHE_IS_OWN])
        .run();
    // A new folder without an archive is removed. Archives are large and specific to a machine: version control ignores them.
    if is_new && fs::remove_dir(&folder).is_err() {
        atomic_file::replace(&folder.join(".gitignore"), "*\n").map_err(failed)?;
    }
    let warmed: Vec<Warmed> = ran.map_err(|error| error.leaving("; archives are unchanged"))?;
    if warmed.is_empty() {
        return Err(Error::NothingWarmed { package: project.name().to_owned() });
    }
    let seconds = begin.elapsed().as_secs_f64();
    let text = || {
        let lines = warmed.iter().map(|warmed| line(warmed, &project.root)).collect::<String>();
        format!("{lines}{}\n", styled(FAINT, format!("in {seconds:.0} s, building included")))
    };
    let report = Report { warmed: &warmed, seconds };
    Ok(Answer::new(("warm", common.json), &report, text, Vec::new(), Code::Ok))
}

fn line(Warmed { workload, bundle, micro_batches }: &Warmed, root: &Path) -> String {
    let Bundle { path, bytes, entries, sha256 } = bundle;
    let sizes: Vec<_> = micro_batches.iter().map(u64::to_string).collect();
    let path = path.strip_prefix(root).unwrap_or(path).display();
    let mib = *bytes as f64 / f64::from(1 << 20);
    let sizes = sizes.join(", ");
    format!("{workload}: {path}, {entries} entries, {mib:.1} MiB, micro-batches of {sizes}\n  SHA-256 {sha256}\n")
}
