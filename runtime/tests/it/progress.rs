//! Progress lines of sessions, on a terminal and elsewhere.

use std::env;
use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use burn::nn::LinearConfig;
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use gpu_tuned::{Options, StartError};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

config! { Config, mlp(widths = [4, 4]), global_batch = 32, target = "generic" }

/// What the program is, as its variable names it.
const KIND: &str = "PROGRESS_KIND";

/// Takes three steps of so many.
fn train(options: &Options, steps: u64) -> Result<(), StartError> {
    let session = options.start(Config::default())?;
    let device = session.device();
    let mut trainer = session.trainer(LinearConfig::new(4, 4).init(&device), SgdConfig::new().init()).expect("a model");
    let mut progress = session.progress(steps);
    for _ in 0..3 {
        let batch = Tensor::<2>::ones([session.schedule().samples_per_rank() as usize, 4], &device);
        let loss = |model: &burn::nn::Linear, rows| model.forward(rows).powi_scalar(2).mean();
        progress.step(&trainer.step(0.01, batch, loss).expect("it fits"));
        progress.suspend(|| eprintln!("the program's line"));
    }
    Ok(())
}

#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let options = Options::default().cpu();
    let result = match env::var(KIND).as_deref() {
        Ok("hidden") => train(&options.progress(false), 3),
        #[cfg(feature = "distributed")]
        Ok("ranks") => {
            let run = |rank: usize, as_rank: &dyn Fn(Options) -> Options| {
                let options = Options::default().cpu();
                train(&as_rank(options), 3 + rank as u64)
            };
            crate::launched::launched(2, run).into_iter().collect()
        }
        _ => train(&options, 3),
    };
    own_process::give(result.map_or_else(|error| error.to_string(), |()| "trained".to_owned()));
}

/// Output of the program on a terminal.
fn on_terminal(kind: &str, variable: &str) -> String {
    let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&user).and_then(|()| unlockpt(&user)).expect("a terminal");
    let name = ptsname(&user, Vec::new()).expect("a name").into_string().expect("UTF-8");
    let terminal = File::options().read(true).write(true).open(name).expect("a terminal");
    let mut command = own_process::command(program);
    command.env(KIND, kind).env("TERM", "xterm").env(Options::PROGRESS_VARIABLE, variable);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::from(terminal)).spawn().expect("it starts");
    drop(command);
    // Reading fails once nobody has the terminal.
    let mut output = Vec::new();
    let _ = File::from(user).read_to_end(&mut output);
    assert!(child.wait().expect("it ends").success());
    String::from_utf8_lossy(&output).into_owned()
}

#[test]
fn the_first_rank_shows_a_line_on_a_terminal_unless_the_option_or_the_variable_hides_it() {
    let has_line = |kind, variable| {
        let output = on_terminal(kind, variable);
        assert!(output.contains("the program's line"), "{output}");
        assert!(!output.contains("/4"), "the second rank shows a line: {output}");
        let line = output.contains("step 3/3");
        assert_eq!(line, output.contains(", loss "), "{output}");
        // The line is taken away before the program prints.
        assert_eq!(line, output.contains("\u{1b}[2K"), "{output:?}");
        line
    };
    assert!(has_line("shown", ""));
    assert!(!has_line("shown", "0"));
    assert!(!has_line("hidden", ""));
    assert!(has_line("hidden", "1"));
    #[cfg(feature = "distributed")]
    assert!(has_line("ranks", ""));
}

#[test]
fn a_short_run_prints_nothing_to_a_file_and_a_wrong_variable_is_refused() {
    let mut command = own_process::command(program);
    let output = own_process::run(command.env(Options::PROGRESS_VARIABLE, "true"));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("the program's line") && !printed.contains("step"), "{printed}");
    let refused = own_process::result(own_process::command(program).env(Options::PROGRESS_VARIABLE, "plain"));
    assert_eq!(refused, "GPU_TUNED_PROGRESS is `plain`: expected 1 or 0");
}
