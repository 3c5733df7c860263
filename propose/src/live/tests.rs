use super::*;
use crate::training_loop::training_loops;

#[test]
fn a_model_is_found_behind_an_implementation_in_the_file_of_the_loop() {
    let loop_ = "use crate::model::Cnn; impl TrainStep for Cnn {} struct Other;
        fn train() { let model = Cnn::new(); SupervisedTraining::new(); }";
    let sources = [
        Source::of_text("src/model.rs", "pub struct Cnn { conv: Conv2d } struct Unused;"),
        Source::of_text("src/other.rs", "pub struct Other { layer: Linear }"),
        Source::of_text("src/training.rs", loop_),
    ];
    let loops = training_loops(&sources);
    let used = used(&sources.iter().collect::<Vec<_>>(), None, loops.first(), None).expect("a program");
    let counts: Vec<_> = used.iter().map(|source| source.file.items.len()).collect();
    assert_eq!(counts, [1, 0, 3]);
}
