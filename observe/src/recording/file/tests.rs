use std::fs::OpenOptions;
use std::io::Write;

use super::{Record, Tail};

#[test]
fn lines_are_read_once_and_when_they_are_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let mut tail = Tail::new(&path, 0.0);
    assert!(tail.news().is_empty());
    let append = |text: &str| {
        let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("a file");
        file.write_all(text.as_bytes()).expect("it is written");
    };
    append("{\"kind\":\"step\",\"at\":1.0,\"step\":1}\n{\"kind\":\"host\",\"at\":1.0}\nnonsense\n{\"kind\":\"va");
    assert_eq!(tail.news().len(), 1);
    assert_eq!(tail.news().len(), 0);
    append("lue\",\"at\":2.0,\"name\":\"loss\",\"value\":1.0}\n");
    assert_eq!(tail.news().len(), 1);
}

#[test]
fn a_file_without_lines_is_not_kept_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(super::LONGEST_LINE as u64 * 3 + 5).expect("a size");
    let mut tail = Tail::new(&path, 0.0);
    assert_eq!(tail.news().len(), 0);
    assert!(tail.begun.len() <= super::LONGEST_LINE, "{}", tail.begun.len());
    let mut file = OpenOptions::new().append(true).open(&path).expect("a file");
    file.write_all(b"\n{\"kind\":\"step\",\"at\":1.0,\"step\":1}\n").expect("it is written");
    assert_eq!(tail.news().len(), 1);
}

#[test]
fn of_what_was_before_only_the_last_run_is_news() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let line = |kind: &str, at: f64| format!("{{\"kind\":\"{kind}\",\"at\":{at}}}\n");
    let text =
        [("run", 1.0), ("step", 2.0), ("run", 3.0), ("step", 4.0), ("value", 9.0), ("step", 10.0), ("run", 11.0)];
    std::fs::write(&path, text.map(|(kind, at)| line(kind, at)).concat()).expect("it is written");
    let times: Vec<_> = Tail::new(&path, 10.0).news().iter().filter_map(Record::at).collect();
    assert_eq!(times, [3.0, 10.0, 11.0]);
}
