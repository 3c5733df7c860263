//! The report, and the pictures of the README and of the proof, as people see them.

use std::path::{Path, PathBuf};

use gpu_tuned_observe::recording::{GpuSample, Record, Run, StepRecord, Writer};

use super::{Browser, View};
use crate::project::Project;
use crate::report::recorded;

pub(super) const LIGHT: View = View { medium: "screen", scheme: "light", width: 1280 };
pub(super) const DARK: View = View { scheme: "dark", ..LIGHT };
pub(super) const TELEPHONE: View = View { width: 400, ..LIGHT };
/// A4 at 96 dots per inch, with the browser's margins of a centimeter. The reader's screen is dark.
const PAPER: View = View { medium: "print", scheme: "dark", width: 718 };

/// Pixels of the smallest text.
const SMALLEST: &str = "8.5";

pub(super) fn problems(browser: &mut Browser, checks: &[&str]) -> Vec<String> {
    let expression = format!("[].concat({})", checks.join(", "));
    serde_json::from_value(browser.evaluate(&expression)).expect("a list of texts")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

/// A later run in the same file: two GPUs, a fallback, reasons, and steps that are skipped.
fn add_a_run_with_a_finding(project: &Project) {
    let mut file = Writer::append(project.path("run.jsonl")).unwrap();
    let mut run = Run::new(2000.0, 43);
    (run.workload, run.target) = ("lm".to_owned(), Some("rtx4090".to_owned()));
    run.device.name = "NVIDIA H100 80GB HBM3".into();
    run.fallbacks =
        vec!["built for `rtx4090`, found `NVIDIA H100 80GB HBM3`: another plan, with other samples".to_owned()];
    run.reasons = vec!["batch_size 256: the smallest within 2% of the fastest predicted (measured)".to_owned(); 3];
    file.write(&Record::Run(Box::new(run))).unwrap();
    for second in 0..90_u32 {
        let at = 2001.0 + f64::from(second);
        for index in 0..2 {
            let mut gpu = GpuSample::new(at, index);
            (gpu.utilisation_percent, gpu.memory_used_bytes) = (Some(95.0), Some((8 + u64::from(index)) << 30));
            file.write(&Record::Gpu(gpu)).unwrap();
        }
        let mut step = StepRecord::new(at, u64::from(second) + 1);
        (step.samples, step.seconds, step.loss, step.pid) = (512, 1.0, Some(f64::NAN), Some(43));
        file.write(&Record::Step(Box::new(step))).unwrap();
    }
}

#[test]
#[ignore = "needs a browser; `.ci/nightly` runs it"]
fn the_report_is_readable_on_screens_telephones_and_paper() {
    let Some(mut browser) = Browser::open() else { return };
    let project = Project::new("measured");
    recorded(&project);
    add_a_run_with_a_finding(&project);
    // The oldest GPU has no bf16, which fills its row with the reason.
    let targets = ["report", "h200", "rtx4090", "gtx1080", "--recording", "run.jsonl"];
    let cases =
        [("plans", &[][..], 0), ("refused", &["--precision", "bf16_params"], 1), ("misfit", &["--headroom", "0.9"], 1)];
    for (name, options, code) in cases {
        project.run(&[&targets, options].concat()).ended(code);
        let page = project.path("gpu-tuned.report.html");
        let pictures = format!("unreadablePictures({SMALLEST})");
        let screens = [("1280", LIGHT), ("dark", DARK), ("400", TELEPHONE), ("700", View { width: 700, ..LIGHT })];
        for (view_name, view) in screens {
            browser.show(&page, view);
            browser.photograph(&format!("report-{name}-{view_name}"));
            let found = problems(&mut browser, &["clipped()", &pictures, "faint()"]);
            assert!(found.is_empty(), "{name}, {view:?}: {found:#?}");
            let ground = browser.evaluate("groundLuminance()").as_f64().expect("a number");
            assert_eq!(ground < 0.5, view.scheme == "dark", "{name}, {view:?}: {ground}");
        }
        browser.show(&page, PAPER);
        browser.photograph(&format!("report-{name}-print"));
        let found = problems(&mut browser, &["clipped()", &pictures, "faint()", "missingOnPaper()"]);
        assert!(found.is_empty(), "{name} on paper: {found:#?}");
        let ground = browser.evaluate("groundLuminance()").as_f64();
        assert_eq!(ground, Some(1.0), "{name} on paper");
    }
}

#[test]
#[ignore = "needs a browser; `.ci/nightly` runs it"]
fn the_pictures_of_the_documentation_are_readable_in_light_and_dark() {
    let Some(mut browser) = Browser::open() else { return };
    let files = ["pictures/throughput", "pictures/init", "pictures/monitor", "proof/lstm", "proof/transformer"];
    for file in files.iter().chain(&["proof/convnet", "proof/resnet"]) {
        for view in [LIGHT, DARK] {
            browser.show(&repository().join("docs").join(file).with_extension("svg"), view);
            browser.photograph(&format!("{}-{}", file.replace('/', "-"), view.scheme));
            let found = problems(&mut browser, &["unreadablePictures(11)", "faint()"]);
            assert!(found.is_empty(), "{file}, {view:?}: {found:#?}");
            let ground = browser.evaluate("groundLuminance()").as_f64().expect("a number");
            assert_eq!(ground < 0.5, view.scheme == "dark", "{file}, {view:?}: {ground}");
        }
    }
}
