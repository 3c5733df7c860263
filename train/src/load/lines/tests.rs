use std::fs;
use std::path::PathBuf;

use burn::data::dataset::Dataset;
use proptest::prelude::*;
use tempfile::TempDir;

use super::{LineDataset, LineError, LineFault};

/// A text file in a folder of its own.
fn file(text: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn lines(dataset: &LineDataset) -> Vec<String> {
    dataset.iter().map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn lines_are_those_of_the_standard_library(text in "[aé\r\n]{0,40}") {
        let (_folder, path) = file(&text);
        let expected: Vec<_> = text.lines().map(str::to_owned).collect();
        let (made, mapped) = (LineDataset::open(&path).unwrap(), LineDataset::open(&path).unwrap());
        prop_assert_eq!(lines(&made), &expected[..]);
        prop_assert_eq!(lines(&mapped), &expected[..]);
    }
}

#[test]
fn an_index_is_used_again_until_the_text_changes() {
    let (folder, path) = file("one\ntwo\n");
    let index = folder.path().join("text.lines");
    LineDataset::open(&path).unwrap();
    let written = fs::metadata(&index).unwrap().modified().unwrap();
    assert_eq!(LineDataset::open(&path).unwrap().len(), 2);
    assert_eq!(fs::metadata(&index).unwrap().modified().unwrap(), written);

    // As many bytes, and other lines.
    fs::write(&path, "one two\n").unwrap();
    let later = written + std::time::Duration::from_secs(2);
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    assert_eq!(lines(&LineDataset::open(&path).unwrap()), ["one two"]);
}

#[test]
fn a_damaged_index_is_made_anew() {
    let (folder, path) = file("one\ntwo\nthree");
    let index = folder.path().join("text.lines");
    LineDataset::open(&path).unwrap();
    let whole = fs::read(&index).unwrap();
    for damage in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[damage] ^= 0x10;
        for broken in [&flipped[..], &whole[..damage]] {
            fs::write(&index, broken).unwrap();
            assert_eq!(lines(&LineDataset::open(&path).unwrap()), ["one", "two", "three"]);
            assert_eq!(fs::read(&index).unwrap(), whole);
        }
    }
}

#[test]
fn an_index_that_cannot_be_kept_is_not_needed() {
    let (folder, path) = file("one\ntwo");
    // No file can take the name of a folder with something in it.
    fs::create_dir_all(folder.path().join("text.lines/in the way")).unwrap();
    assert_eq!(lines(&LineDataset::open(&path).unwrap()), ["one", "two"]);
}

#[test]
fn a_line_that_is_no_text_is_named() {
    let (_folder, path) = file(b"one\ntw\xff\nthree");
    let dataset = LineDataset::open(&path).unwrap();
    let error = dataset.get(1).unwrap_err();
    let error = std::error::Error::source(&error).and_then(|error| error.downcast_ref::<LineError>()).unwrap();
    let LineFault::NotUtf8(source) = &error.fault else { panic!("{error}") };
    assert_eq!((error.line, source.valid_up_to()), (2, 2));
    assert_eq!(dataset.get(2).unwrap(), "three");
}

/// A mapped file that is cut short ends the process.
#[test]
fn a_file_that_is_changed_in_place_gives_errors_and_no_other_lines() {
    let (_folder, path) = file("one\ntwo\nthree\n");
    let fault = |dataset: &LineDataset, line: usize| dataset.get(line).map_err(|error| format!("{error:?}"));
    let dataset = LineDataset::open(&path).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "one").unwrap();
    assert!(fault(&dataset, 2).unwrap_err().contains("Read"));

    // As many bytes at the same time: the index is taken for that of the text.
    fs::write(&path, "on\netwo\nthree\n").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let dataset = LineDataset::open(&path).unwrap();
    assert!(fault(&dataset, 0).unwrap_err().contains("Moved"));
    assert!(fault(&dataset, 1).unwrap_err().contains("Moved"));
    assert_eq!(fault(&dataset, 2).as_deref(), Ok("three"));
}

#[test]
fn an_index_that_leads_elsewhere_gives_errors() {
    let (folder, path) = file("one\ntwo\nthree");
    LineDataset::open(&path).unwrap();
    let index = fs::read(folder.path().join("text.lines")).unwrap();
    // Beginnings of the first and the second line, with a valid checksum.
    for (at, start) in [(32, 4), (32, 8), (40, 1), (40, 5), (40, 9), (40, 1 << 40), (40, u64::MAX)] {
        let mut forged = index[..index.len() - 4].to_vec();
        forged[at..at + 8].copy_from_slice(&start.to_le_bytes());
        forged.extend(crc32fast::hash(&forged).to_le_bytes());
        fs::write(folder.path().join("text.lines"), forged).unwrap();
        let dataset = LineDataset::open(&path).unwrap();
        assert!(dataset.get(0).is_err(), "{start} at {at}: {:?}", dataset.get(0));
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = LineDataset::open("/nowhere/text").unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/text cannot be read");
}
