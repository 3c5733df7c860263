//! The included text, and errors for unusable files.

use std::{fs, path::PathBuf};

use burn::tensor::Device;
use char_lm::{
    config::TrainingConfig,
    text::{Corpus, Fingerprint},
    windows::{Windows, adjacent},
};

#[test]
fn the_text_in_this_program_is_what_its_source_says() {
    let corpus = Corpus::austen().unwrap();
    // Computed with Python's zlib.crc32.
    assert_eq!(corpus.fingerprint, Fingerprint { bytes: 1_358_459, crc32: 0x7808_cf01 });
    assert_eq!((corpus.train.len(), corpus.validation.len()), (1_222_614, 135_845));
}

#[test]
fn the_build_plans_for_the_characters_of_this_text() {
    assert_eq!(TrainingConfig::new().vocabulary, Corpus::austen().unwrap().vocabulary.size());
}

#[test]
fn characters_are_numbered_in_order_and_unknown_ones_share_a_number() {
    let corpus = Corpus::new("cababacabéabcaxcabcby");
    let vocabulary = &corpus.vocabulary;
    assert_eq!(vocabulary.size(), 5 + 1, "a, b, c, x, é, and the unknown one: y is for validation");
    let known: Vec<u32> = "abcxé".chars().map(|character| vocabulary.id(character)).collect();
    assert_eq!(known, [0, 1, 2, 3, 4]);
    assert_eq!((vocabulary.id('y'), vocabulary.id('λ')), (5, 5));
    assert_eq!((vocabulary.character(4), vocabulary.character(5)), ('é', '\u{fffd}'));
}

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("novel.txt");
    let error = Corpus::read(&path).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read the text {}", path.display()));
    assert!(error.source().is_some(), "why is told as well");
}

#[test]
fn a_file_in_another_encoding_is_named_with_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("latin1.txt");
    fs::write(&path, b"caf\xe9 au lait").unwrap();
    let error = Corpus::read(&path).unwrap_err().to_string();
    assert!(error.contains("latin1.txt is not UTF-8 at byte 3"), "{error}");
}

#[test]
fn a_short_text_is_refused_with_the_length_that_would_do() {
    let needed = |error: anyhow::Error| -> usize {
        let message = error.to_string();
        let (_, number) = message.split_once("but needs ").unwrap();
        number.split(';').next().unwrap().parse().unwrap()
    };
    let (ids, device) = ([0; 200], Device::flex());
    let train = needed(Windows::new(&ids[..10], 4, 8, 1).unwrap_err());
    assert!(Windows::new(&ids[..train - 1], 4, 8, 1).is_err());
    assert_eq!(Windows::new(&ids[..train], 4, 8, 1).unwrap().steps_per_epoch(), 1);

    let validation = needed(adjacent(&ids[..1], 4, 8, &device).err().unwrap());
    assert!(adjacent(&ids[..validation - 1], 4, 8, &device).is_err());
    assert_eq!(adjacent(&ids[..validation], 4, 8, &device).unwrap().count(), 1);
    assert!(adjacent(&[], 4, 8, &device).is_err());
}
