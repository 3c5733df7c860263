//! The included digits, and parser errors for other texts.

use burn::data::dataset::Dataset;
use digits::data::Digits;

#[test]
fn every_fifth_image_is_validation() {
    let digits = Digits::load().unwrap();
    assert_eq!((digits.train.len(), digits.validation.len()), (1437, 360));
}

#[test]
fn a_short_row_is_named_by_its_line() {
    let csv = format!("{}\n1,2,3", row("0", "9"));
    assert_eq!(error(&csv), "line 2: expected 65 values, found 3");
}

#[test]
fn a_pixel_that_is_not_a_number_is_named_by_its_position() {
    assert_eq!(error(&row("x", "9")), "line 1: value 1: not a number from 0 to 255");
}

#[test]
fn pixels_above_16_and_labels_above_9_are_refused() {
    assert_eq!(error(&row("17", "9")), "line 1: value 1: 17 is above 16");
    assert_eq!(error(&row("16", "10")), "line 1: value 65: 10 is above 9");
}

fn row(first: &str, label: &str) -> String {
    format!("{first}{},{label}", ",0".repeat(63))
}

fn error(csv: &str) -> String {
    format!("{:#}", Digits::parse(csv).err().expect("the text is damaged"))
}
