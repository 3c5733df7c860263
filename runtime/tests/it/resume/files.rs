//! Files of every kind: whole, damaged, of another release, half-written.

use std::fs;
use std::path::Path;

use gpu_tuned::{LoadError, Options, ResumeError, SaveError, SavedRun, StartError};
use serde_json::json;
use tempfile::tempdir;

use super::{Lm, begin, edit, file, machine, refused, resume, saved_there};

#[test]
fn what_is_read_is_what_was_written() {
    for config in [Lm::default(), Lm { layers: 7, batch_size: 3, ..Lm::default() }] {
        let run = SavedRun::new(&config, &begin(&config, "two-gpus"));
        let directory = tempdir().expect("a directory");
        run.save(directory.path()).expect("it can be written");
        assert_eq!(SavedRun::load(directory.path()).expect("it is whole"), Some(run));
    }
}

#[test]
fn a_damaged_file_is_named_with_the_place_and_the_remedy() {
    let (config, _, directory) = saved_there::<Lm>();
    let text = fs::read_to_string(file(&directory)).expect("it was saved");
    for (damaged, place) in [
        (String::new(), ":1:0: "),
        ("{}".to_owned(), ":1:2: not a saved run: missing field `format`"),
        (text.replace("\"schedule\": {", "\"schedule\": 7, \"x\": {"), ": not a saved run: invalid type"),
        (text.replace("\"world_size\": 1", "\"world_size\": 0"), "world_size = 0 is out of range"),
        (text.replace("\"batch_size\": ", "\"batch_size\": 9"), "contradict each other"),
    ] {
        fs::write(file(&directory), damaged).expect("it can be written");
        let error = refused(&config, "rtx4090", &directory);
        assert!(matches!(&error, ResumeError::Load(LoadError::Damaged { .. })), "{error}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("{}:", file(&directory).display())), "{message}");
        assert!(message.contains(place) && message.contains("or delete it and start a new run"), "{message}");
    }
}

#[test]
fn a_file_cut_anywhere_is_damaged_and_never_a_panic() {
    let (_, _, directory) = saved_there::<Lm>();
    let text = fs::read(file(&directory)).expect("it was saved");
    // The last byte is a newline.
    for length in 0..text.len() - 1 {
        fs::write(file(&directory), &text[..length]).expect("it can be written");
        let loaded = SavedRun::load(directory.path());
        assert!(matches!(loaded, Err(LoadError::Damaged { .. })), "{length}: {loaded:?}");
    }
}

#[test]
fn fields_of_a_newer_release_are_passed_over_and_a_newer_format_is_refused() {
    let (config, first, directory) = saved_there::<Lm>();
    edit(&directory, |run| {
        run["gpu_tuned"] = "0.9.0".into();
        for part in ["goal", "schedule", "settings"] {
            run[part]["of_tomorrow"] = json!([1, 2]);
        }
        run["of_tomorrow"] = json!({ "more": true });
    });
    let again = resume(&config, "rtx4090", &directory).expect("it is understood");
    assert_eq!(again.plan.schedule, first.plan.schedule);
    edit(&directory, |run| *run = json!({ "format": 2, "gpu_tuned": "2.0.0", "all": "new" }));
    let message = refused(&config, "rtx4090", &directory).to_string();
    let expected = "has format 2 (gpu-tuned 2.0.0), this program reads format 1; build it with the version of gpu-tuned \
                    that wrote the file";
    assert!(message.ends_with(expected), "{message}");
}

#[test]
fn nothing_saved_is_told_apart_from_something_unreadable() {
    let directory = tempdir().expect("a directory");
    for missing in [directory.path().to_owned(), directory.path().join("not/there")] {
        let options = Options::default().machine(machine("rtx4090")).resume(&missing);
        let error = options.decide(&Lm::default()).expect_err("nothing is there");
        assert!(matches!(error, StartError::Resume(ResumeError::Nothing { .. })), "{error}");
        assert!(matches!(SavedRun::load(&missing), Ok(None)));
    }
    fs::create_dir(file(&directory)).expect("a directory where the file should be");
    let unread = SavedRun::load(directory.path()).expect_err("it is a directory");
    assert!(matches!(&unread, LoadError::Read { .. }));
    // An error's own text is not repeated in its chain of sources.
    assert!(unread.to_string().contains("directory") && std::error::Error::source(&unread).is_none(), "{unread}");
}

#[test]
fn a_save_that_was_killed_leaves_the_run_as_it_was() {
    let (config, first, directory) = saved_there::<Lm>();
    let draft = directory.path().join(format!(".{}.1-0.tmp", SavedRun::FILE_NAME));
    fs::write(&draft, "{\"format\": 1, \"gpu_tu").expect("it can be written");
    let again = resume(&config, "rtx4090", &directory).expect("the file itself is whole");
    assert_eq!(again.plan.schedule, first.plan.schedule);
    SavedRun::new(&config, &first).save(directory.path()).expect("it can be saved over");
    let names = |path: &Path| fs::read_dir(path).expect("a directory").count();
    // On other systems the file of the killed process stays.
    assert_eq!(names(directory.path()), if cfg!(unix) { 1 } else { 2 }, "no temporary file is left");
}

#[test]
fn a_directory_that_takes_no_file_is_an_error_that_names_it() {
    let config = Lm::default();
    let run = SavedRun::new(&config, &begin(&config, "rtx4090"));
    let directory = tempdir().expect("a directory");
    let nested = directory.path().join("run/7");
    assert_eq!(run.save(&nested).expect("it is created"), nested.join(SavedRun::FILE_NAME));
    let blocked = nested.join(SavedRun::FILE_NAME);
    let error = run.save(&blocked).expect_err("a file stands where the directory should be");
    assert!(matches!(&error, SaveError::Directory { path, .. } if *path == blocked), "{error}");
}

#[cfg(unix)]
#[test]
fn a_read_only_directory_keeps_the_run_that_is_in_it() {
    use std::os::unix::fs::PermissionsExt;
    let (config, first, directory) = saved_there::<Lm>();
    let permit = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).expect("it is ours");
    permit(0o555);
    // To root nothing is read-only.
    let is_root = fs::write(directory.path().join("probe"), "").is_ok();
    let result = SavedRun::new(&config, &first).save(directory.path());
    let read = SavedRun::load(directory.path());
    permit(0o755);
    assert!(is_root || matches!(result, Err(SaveError::Write { .. })), "{result:?}");
    assert_eq!(read.expect("it is whole").expect("it is there").schedule, first.plan.schedule);
}
