//! `cargo gpu-tuned warm`.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::args::{Common, WarmArgs};
use crate::error::Error;
use crate::program::{Program, Run};
use crate::project::Project;
use crate::table::{FAINT, styled};
use crate::{Answer, Code};

/// The folder of bundles, beside `Cargo.toml`; programs look for it there.
const FOLDER: &str = "gpu-tuned.warm";
/// Asks a program for a bundle, and says where.
const ASK: &str = "GPU_TUNED_WARM";
/// Asks it for a line of JSON on standard output when it has made one.
const ASK_JSON: (&str, &str) = ("GPU_TUNED_WARM_JSON", "1");
/// Where the driver keeps what it makes of kernels.
const DRIVER_CACHE: &str = "CUDA_CACHE_PATH";
/// Says that it is this run's own, for the bundle.
const DRIVER_CACHE_IS_OWN: (&str, &str) = ("GPU_TUNED_WARM_DRIVER", "1");

/// The line that a program prints when it has made a bundle.
#[derive(Deserialize, Serialize)]
struct Warmed {
    #[serde(rename(deserialize = "warmed"))]
    workload: String,
    bundle: Bundle,
    /// The micro-batches whose steps were taken.
    micro_batches: Vec<u64>,
}

#[derive(Deserialize, Serialize)]
struct Bundle {
    path: PathBuf,
    bytes: u64,
    entries: u64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    warmed: &'a [Warmed],
    seconds: f64,
}

/// Runs the program so that it makes a bundle.
pub(crate) fn run(common: &Common, args: &WarmArgs) -> Result<Answer, Error> {
    let project = Project::read(common)?;
    let begin = Instant::now();
    // No feature beside those asked for: with another one it would be another build, and kernels are for one build.
    let program = Program::new(&project, common.color, Run { args: &args.program, feature: None })?;
    let folder = project.root().join(FOLDER);
    prepare(&folder).map_err(|source| Error::Write { path: folder.clone(), source })?;
    let driver_cache = tempfile::tempdir().map_err(|source| Error::Write { path: env::temp_dir(), source })?;
    let warmed: Vec<Warmed> = program
        .with((ASK, &folder))
        .with(ASK_JSON)
        .with((DRIVER_CACHE, driver_cache.path()))
        .with(DRIVER_CACHE_IS_OWN)
        .run()
        .map_err(|error| error.leaving("; bundles are as they were"))?;
    if warmed.is_empty() {
        return Err(Error::NothingWarmed { package: project.name().to_owned() });
    }
    let seconds = begin.elapsed().as_secs_f64();
    let text = if common.json {
        let report = Report { warmed: &warmed, seconds };
        format!("{}\n", serde_json::to_string_pretty(&report).expect("BUG: a report is always JSON"))
    } else {
        let lines = warmed.iter().map(|warmed| line(warmed, project.root())).collect::<String>();
        format!("{lines}{}\n", styled(FAINT, format!("in {seconds:.0} s, building included")))
    };
    Ok(Answer { text, notes: Vec::new(), code: Code::Fine })
}

/// Makes the folder where it is missing, and keeps it out of version control: bundles are large, and made for machines.
fn prepare(folder: &Path) -> std::io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => fs::write(folder.join(".gitignore"), "*\n"),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn line(Warmed { workload, bundle, micro_batches }: &Warmed, root: &Path) -> String {
    let Bundle { path, bytes, entries } = bundle;
    let sizes: Vec<_> = micro_batches.iter().map(u64::to_string).collect();
    let path = path.strip_prefix(root).unwrap_or(path).display();
    let mib = *bytes as f64 / f64::from(1 << 20);
    format!("{workload}: {path}, {entries} entries, {mib:.1} MiB, micro-batches of {}\n", sizes.join(", "))
}
