//! The setting `kernels`: pinned, saved, and without the library.

use gpu_tuned::{Decision, Fallback, Kernels, Options, Pins, SavedRun, Setting, StartError, Tuned};

use super::played::on;

config! {
    InBurn { #[tuned] kernels: Kernels },
    mlp(widths = [8, 8]), global_batch = 64, target = "rtx4090"
}

config! {
    InLibrary { #[tuned] kernels: String },
    mlp(widths = [8, 8]), global_batch = 64, kernels = "library", target = "rtx4090"
}

config! {
    Repeated { #[tuned] kernels: Kernels },
    mlp(widths = [8, 8]), global_batch = 64, kernels = "library", deterministic = true, target = "rtx4090"
}

const ON_A_CPU: &str = "kernels burn in place of library, which changes the results by rounding: ";

fn library() -> Pins {
    "kernels=library".parse().expect("a pin")
}

fn why(decision: &Decision) -> &str {
    let reason = decision.plan.reasons.iter().find(|reason| reason.setting == Setting::Kernels);
    &reason.expect("a reason").why
}

/// The lines on kernels that cannot be used.
fn fallbacks(decision: &Decision) -> Vec<String> {
    let fallbacks = decision.selection.fallbacks.iter();
    fallbacks.filter(|fallback| matches!(fallback, Fallback::Kernels { .. })).map(ToString::to_string).collect()
}

#[test]
fn a_gpu_gets_the_kernels_that_are_asked_for() {
    let decide = |options: Options| options.decide(&InBurn::default()).expect("it fits");
    let burn = decide(on("rtx4090"));
    assert_eq!(burn.plan.settings.kernels, Kernels::Burn);
    assert_eq!(why(&burn), "the default; `library` was not timed here by `cargo gpu-tuned measure`");
    let pinned = decide(on("rtx4090").set(library()));
    assert_eq!((pinned.plan.settings.kernels, why(&pinned)), (Kernels::Library, "set for this start"));
    let line = "kernels burn -> library (set by you, changes results)";
    assert!(pinned.to_string().contains(line), "{pinned}");
    let field = InBurn { kernels: Kernels::Library };
    let set = on("rtx4090").decide(&field).expect("it fits");
    assert_eq!((set.plan.settings.kernels, why(&set)), (Kernels::Library, "set in the config"));
    let built = on("rtx4090").decide(&InLibrary::default()).expect("it fits");
    assert_eq!((built.plan.settings.kernels, why(&built)), (Kernels::Library, "asked for"));
    assert!(built.selection.is_confirmed() && InLibrary::default().kernels == "library", "{built}");
    assert!([burn, pinned, set].iter().all(|decision| fallbacks(decision).is_empty()));
}

#[test]
fn a_text_that_names_no_kernels_is_an_error() {
    let error = on("rtx4090").decide(&InLibrary { kernels: "cublas".to_owned() }).expect_err("no kernels");
    assert_eq!(error.to_string(), "the config's `kernels` names no kernels: expected burn or library");
}

#[test]
fn a_cpu_computes_with_burns_kernels_and_a_line() {
    let mut built = InLibrary::default();
    let decisions = [
        Options::default().cpu().set(library()).decide(&InBurn::default()).expect("it fits"),
        Options::default().cpu().decide(&InBurn { kernels: Kernels::Library }).expect("it fits"),
        Options::default().cpu().decide(&built).expect("it fits"),
    ];
    for decision in &decisions {
        assert_eq!((decision.plan.settings.kernels, why(decision)), (Kernels::Burn, "the library cannot be used here"));
        let lines = fallbacks(decision);
        assert!(lines.len() == 1 && lines[0].starts_with(ON_A_CPU) && lines[0].contains("; "), "{lines:?}");
        assert!(decision.selection.fallbacks.iter().any(Fallback::changes_meaning));
        assert!(decision.to_string().contains(&format!("\n  fallback: {ON_A_CPU}")), "{decision}");
    }
    assert!(decisions[2].to_string().contains("kernels library -> burn (changes results)"), "{}", decisions[2]);
    built.apply(&decisions[2].plan.settings);
    assert_eq!(built.kernels, "burn");
    let strict = Options::default().cpu().strict(true).set(library()).decide(&InBurn::default());
    let Err(StartError::Strict { fallbacks, .. }) = strict else { panic!("{strict:?}") };
    assert!(fallbacks.iter().any(|fallback| matches!(fallback, Fallback::Kernels { .. })));
}

#[test]
fn a_resumed_run_keeps_its_kernels_where_they_can_be_used() {
    let decision = on("rtx4090").set(library()).decide(&InBurn::default()).expect("it fits");
    let directory = tempfile::tempdir().expect("a folder");
    SavedRun::new(&InBurn::default(), &decision).save(directory.path()).expect("it can be written");
    let resume = |options: Options| options.resume(directory.path()).decide(&InBurn::default()).expect("it fits");
    let same = resume(on("rtx4090"));
    assert_eq!((same.plan.settings.kernels, why(&same)), (Kernels::Library, "as in the saved run"));
    let burn = resume(on("rtx4090").set("kernels=burn".parse().expect("a pin")));
    assert_eq!((burn.plan.settings.kernels, fallbacks(&burn)), (Kernels::Burn, vec![]));
    let on_cpu = resume(Options::default().cpu());
    assert_eq!((on_cpu.plan.settings.kernels, fallbacks(&on_cpu).len()), (Kernels::Burn, 1), "{on_cpu}");
}

/// The kernels of a process belong to its last session.
#[cfg(feature = "burn")]
#[test]
fn a_session_on_the_cpu_selects_burns_kernels() {
    let session = Options::default().cpu().set(library()).start(InBurn::default()).expect("it starts");
    assert_eq!(session.config().kernels, Kernels::Burn);
    assert!(!gpu_tuned::kernels::is_library_selected());
    let report = session.to_string();
    assert!(report.contains(&format!("\n  fallback: {ON_A_CPU}")), "{report}");
    let strict = Options::default().cpu().strict(true).set(library()).start(InBurn::default());
    assert!(matches!(strict, Err(StartError::Strict { .. })));
}

/// Whether sums have a fixed order is a state of the process, too.
#[cfg(feature = "burn")]
#[test]
fn sums_have_a_fixed_order_in_the_sessions_that_ask_for_it() {
    fn sessions() {
        use gpu_tuned::kernels::is_deterministic;

        let options = || Options::default().cpu();
        let of_sessions = [
            options().start(Repeated::default()).map(|_| is_deterministic()),
            options().start(InBurn::default()).map(|_| is_deterministic()),
        ];
        assert_eq!(of_sessions.map(|started| started.expect("it starts")), [true, false]);
    }
    own_process::alone(sums_have_a_fixed_order_in_the_sessions_that_ask_for_it, sessions);
}
