//! Screens, as people see them.

use std::time::Duration;

use gpu_tuned_observe::monitor::{Options, Sampler, Timeline};
use gpu_tuned_observe::recording::{HostSample, ProcessSample, Record, Run, StepRecord};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Act, Screen};

/// This many samples of a scenario, a second apart, with a fixed host.
fn watched(name: &str, looks: usize) -> Timeline {
    let mut timeline = Timeline::default();
    fake_nvml::play(&format!("watch/{name}"), |library| {
        let mut sampler = Sampler::open(&Options::default().no_program().library(library));
        let mut start = sampler.start();
        (start.at, start.cores, start.memory_bytes) = (0.0, 16, 128 << 30);
        timeline.observe(&Record::Start(start));
        for look in 0..looks {
            for record in sampler.sample() {
                timeline.observe(&moved(record, look as f64));
            }
        }
    });
    timeline
}

/// The record as of another moment, and on another host.
fn moved(record: Record, at: f64) -> Record {
    match record {
        Record::Gpu(mut sample) => {
            sample.at = at;
            // Whether a process of this machine has the number, and how long the test takes, is not shown.
            for process in sample.processes.iter_mut().flatten() {
                process.name = Some("train".to_owned());
                process.user = Some("ada".to_owned());
                process.cpu_percent = Some(340.0);
                process.command = Some("target/release/train --epochs 10".to_owned());
            }
            if at > 0.0 && sample.sm_activity_percent.is_none() {
                (sample.pcie_to_gpu_bytes_per_s, sample.pcie_from_gpu_bytes_per_s) = (None, None);
            }
            Record::Gpu(sample)
        }
        Record::Host(_) => {
            let mut host = HostSample::new(at);
            (host.cpu_percent, host.memory_used_bytes) = (Some(22.0 + (at * 0.9).sin() * 5.0), Some(31 << 30));
            let mut process = ProcessSample::new(5120);
            process.cpu_percent = Some(340.0);
            process.memory_bytes = Some(9 << 30);
            process.busiest_thread_percent = Some(98.0);
            host.process = Some(process);
            Record::Host(host)
        }
        other => other,
    }
}

fn screen() -> Screen {
    Screen::new(false, None, Duration::from_secs(1))
}

fn drawn(screen: &Screen, timeline: &Timeline, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| screen.draw(frame, timeline)).expect("it is drawn");
    terminal.backend().to_string()
}

fn with_steps(mut timeline: Timeline) -> Timeline {
    let mut run = Run::new(6.0, 5120);
    run.workload = "digits".to_owned();
    timeline.observe(&Record::Run(Box::new(run)));
    for step in 1..=160u32 {
        let mut record = StepRecord::new(7.0 + f64::from(step) * 0.25, step.into());
        (record.seconds, record.samples) = (0.25, 256);
        (record.loss, record.waited_s) = (Some(2.3 / f64::from(step).sqrt()), Some(0.01));
        timeline.observe(&Record::Step(Box::new(record)));
    }
    timeline
}

#[test]
fn a_training_run_at_both_sizes() {
    let timeline = with_steps(watched("training", 48));
    insta::assert_snapshot!("training_80", drawn(&screen(), &timeline, 80, 24));
    insta::assert_snapshot!("training_200", drawn(&screen(), &timeline, 200, 50));
}

#[test]
fn a_line_that_is_too_long_goes_on_below() {
    let text = drawn(&screen(), &with_steps(watched("training", 48)), 60, 24);
    let lines: Vec<_> = text.lines().map(|line| line.trim_matches('"').trim_end()).collect();
    let step = lines.iter().position(|line| line.starts_with("Step ")).expect("a line of steps");
    assert_eq!(lines[step + 1], "             4 % waiting for data", "{text}");
    assert!(lines[step + 3].starts_with("             busiest thread 98 %"), "{text}");
}

#[test]
fn clocks_that_are_held_down() {
    insta::assert_snapshot!("thermal_80", drawn(&screen(), &watched("thermal", 33), 80, 24));
    insta::assert_snapshot!("power_cap_80", drawn(&screen(), &watched("power-cap", 20), 80, 24));
    insta::assert_snapshot!("pcie_reduced_80", drawn(&screen(), &watched("pcie-reduced", 20), 80, 24));
}

#[test]
fn several_gpus_are_a_list_and_one_in_full() {
    let timeline = watched("eight-h200", 30);
    let mut screen = screen();
    insta::assert_snapshot!("eight_80", drawn(&screen, &timeline, 80, 24));
    screen.press(KeyEvent::new(KeyCode::Up, KeyModifiers::NONE), &timeline);
    insta::assert_snapshot!("eight_200", drawn(&screen, &timeline, 200, 50));
}

#[test]
fn a_lost_gpu_and_slices() {
    let mut screen = screen();
    screen.chosen = 1;
    insta::assert_snapshot!("lost_80", drawn(&screen, &watched("lost-between", 12), 80, 24));
    insta::assert_snapshot!("mig_80", drawn(&screen, &watched("mig", 5), 80, 24));
}

#[test]
fn gpus_that_cannot_be_watched_are_told() {
    let text = drawn(&screen(), &watched("../gpu-lost", 2), 80, 24);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].starts_with("\"GPU 0: the GPU is lost; see the kernel's log"), "{text}");
    assert!(lines[2].starts_with("\"GPU 1 NVIDIA GeForce RTX 4090 (rtx4090)"), "{text}");
}

#[test]
fn without_a_driver_the_host_is_shown_and_why() {
    let mut timeline = Timeline::default();
    let mut sampler = Sampler::open(&Options::default().no_program().library("/nonexistent/libnvidia-ml.so.1"));
    let mut start = sampler.start();
    (start.at, start.cores, start.memory_bytes) = (0.0, 16, 128 << 30);
    timeline.observe(&Record::Start(start));
    for look in 0..20 {
        sampler.sample().into_iter().for_each(|record| timeline.observe(&moved(record, f64::from(look))));
    }
    insta::assert_snapshot!("no_driver_80", drawn(&screen(), &timeline, 80, 24));
}

#[test]
fn a_recording_is_shown_whole() {
    let timeline = watched("neighbour-comes", 80);
    let mut screen = Screen { replayed: Some("run.jsonl".to_owned()), ..screen() };
    screen.until = timeline.last;
    screen.fit(&timeline);
    assert_eq!(super::interval_of(&timeline), Duration::from_secs(1));
    insta::assert_snapshot!("replayed_80", drawn(&screen, &timeline, 80, 24));
}

#[test]
fn help_explains_keys_and_figures() {
    let timeline = watched("idle", 3);
    let mut screen = screen();
    assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE), &timeline), Act::Draw);
    insta::assert_snapshot!("help_80", drawn(&screen, &timeline, 80, 24));
}

#[test]
fn every_size_and_machine_can_be_drawn() {
    for name in ["training", "no-counters", "mig", "lost-between", "eight-h200", "idle"] {
        let timeline = with_steps(watched(name, 20));
        for (width, height) in [(1, 1), (20, 3), (30, 8), (60, 12), (69, 60), (80, 10), (300, 100)] {
            for chosen in [0, 7] {
                let screen = Screen { chosen, is_help_open: height == 8, ..screen() };
                let text = drawn(&screen, &timeline, width, height);
                assert_eq!(text.lines().count(), usize::from(height), "{name} at {width}x{height}");
            }
        }
    }
    drawn(&screen(), &Timeline::default(), 80, 24);
}

#[test]
fn keys_choose_pause_and_quit() {
    let timeline = watched("lost-between", 40);
    let mut screen = screen();
    let mut press = |code| {
        let act = screen.press(KeyEvent::new(code, KeyModifiers::NONE), &timeline);
        (act, screen.chosen, screen.until)
    };
    assert_eq!(press(KeyCode::Tab), (Act::Draw, 1, None));
    assert_eq!(press(KeyCode::Down), (Act::Draw, 0, None));
    assert_eq!(press(KeyCode::Up), (Act::Draw, 1, None));
    assert_eq!(press(KeyCode::Char('p')), (Act::Draw, 1, Some(39.0)));
    assert_eq!(press(KeyCode::PageUp), (Act::Draw, 1, Some(19.0)));
    assert_eq!(press(KeyCode::PageUp), (Act::Draw, 1, Some(0.0)));
    assert_eq!(press(KeyCode::End), (Act::Draw, 1, None));
    assert_eq!(press(KeyCode::Char('x')), (Act::Nothing, 1, None));
    assert_eq!(press(KeyCode::Char('q')).0, Act::Quit);
    let mut zoomed = |key| {
        screen.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE), &timeline);
        format!("{}", screen.seconds_per_cell)
    };
    assert_eq!(['-', '-', '+', '+', '+'].map(&mut zoomed), ["2", "4", "2", "1", "1"]);
    assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &timeline), Act::Quit);
}

#[test]
fn colors_are_left_out_when_they_are_not_wanted() {
    let timeline = watched("thermal", 33);
    let colors = |screen: &Screen| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|frame| screen.draw(frame, &timeline)).expect("it is drawn");
        let cells = &terminal.backend().buffer().content;
        cells.iter().filter(|cell| cell.fg != ratatui::style::Color::Reset).count()
    };
    assert_eq!(colors(&screen()), 0);
    assert!(colors(&Screen { has_colors: true, ..screen() }) > 100);
}
