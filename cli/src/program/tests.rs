use std::io;
use std::sync::mpsc::channel;

use serde::Deserialize;

use super::{LONGEST, forward};

#[derive(Deserialize)]
struct Line {
    workload: String,
    #[serde(rename = "lock")]
    _lock: String,
}

#[test]
fn reports_are_sent_and_other_lines_are_copied() {
    let printed = b"epoch 1\n{\"workload\":\"lm\",\"lock\":\"gpu-tuned.lock\",\"measured\":{\"parameters\":1}}\n\
        {\"workload\":\"lm\"}\nno newline \xff";
    let mut passed = Vec::new();
    let (sender, reports) = channel::<Line>();
    forward(&printed[..], &mut passed, &sender).expect("memory can be read");
    assert_eq!(reports.try_iter().map(|line| line.workload).collect::<Vec<_>>(), ["lm"]);
    assert_eq!(passed, b"epoch 1\n{\"workload\":\"lm\"}\nno newline \xff");
}

/// Notes the length of each write.
struct Parts(Vec<usize>);

impl io::Write for Parts {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.0.extend((!part.is_empty()).then_some(part.len()));
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn output_without_an_end_of_line_is_copied_as_it_comes() {
    let copied = |begin: &str| {
        let printed = [begin.as_bytes(), &vec![b'\r'; 3 * LONGEST]].concat();
        let mut parts = Parts(Vec::new());
        forward(&printed[..], &mut parts, &channel::<Line>().0).expect("memory can be read");
        assert_eq!(parts.0.iter().sum::<usize>(), printed.len());
        parts.0.into_iter().max()
    };
    assert!(copied("10%") <= Some(64 << 10));
    // It might be a report.
    assert!(copied("{") <= Some(LONGEST + (64 << 10)));
}
