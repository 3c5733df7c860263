//! The network's context, its costs, and the scores of its predictions.

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Device, Int, Tensor, TensorData},
};
use char_lm::{config::TrainingConfig, model::Model, perplexity, sampling::sample, text::Corpus};
use gpu_tuned::Tuned;

#[test]
fn the_network_has_as_many_parameters_as_are_planned() {
    let _drawing = super::drawing();
    for config in [TrainingConfig::new(), tiny(7), TrainingConfig::new().with_n_layers(1).with_window(100)] {
        assert_eq!(Model::new(&config, &Device::flex()).num_params() as u64, config.workload().parameters());
    }
}

#[test]
fn a_prediction_does_not_see_what_comes_after() {
    let model = network(&tiny(7));
    let (one, other) = (scores(&model, [1, 2, 3, 4, 5]), scores(&model, [1, 2, 3, 6, 0]));
    let (same, changed) = (3 * 7, 4 * 7);
    assert_eq!(one[..same], other[..same], "the first three characters are the same");
    assert_ne!(one[same..changed], other[same..changed], "the fourth is another");
}

#[test]
fn a_network_that_knows_nothing_has_the_perplexity_of_the_vocabulary() {
    let config = tiny(7);
    let model = network(&config).map(&mut Zeros);
    let perplexity = perplexity::network(&model, &text(), &config, &Device::flex()).unwrap();
    assert!((perplexity - 7.0).abs() < 1e-4, "{perplexity}");
}

#[test]
fn perplexity_does_not_depend_on_the_evaluation_batch() {
    let model = network(&tiny(7));
    let measure = |batch| {
        let config = tiny(7).with_eval_batch_size(batch);
        perplexity::network(&model, &text(), &config, &Device::flex()).unwrap()
    };
    let whole = measure(1000);
    for batch in [1, 7, 64] {
        assert!((measure(batch) / whole - 1.0).abs() < 1e-5, "{batch}: {} against {whole}", measure(batch));
    }
}

#[test]
fn bigram_perplexity_is_what_counting_by_hand_gives() {
    // Without counts, add-one smoothing gives the uniform model.
    assert!((perplexity::bigram(&[], &[0, 1, 2, 3, 4], 5) - 5.0).abs() < 1e-12);
    // 0 is followed by 1 twice, so 1 after 0 has probability (2 + 1) / (2 + 2). 0 after 1 has (1 + 1) / (1 + 2).
    let expected = (4.0_f64 / 3.0 * 3.0 / 2.0).sqrt();
    assert!((perplexity::bigram(&[0, 1, 0, 1], &[0, 1, 0], 2) - expected).abs() < 1e-12);
}

#[test]
fn a_sample_has_the_characters_asked_for_also_beyond_a_window() {
    let corpus = Corpus::new(&"to be or not to be\n".repeat(5));
    let config = tiny(corpus.vocabulary.size());
    let model = network(&config);
    let write =
        |seed| sample(&model, &corpus.vocabulary, &config.clone().with_seed(seed), 50, &Device::flex()).unwrap();
    assert_eq!(write(1).chars().count(), 50);
    assert_eq!(write(1), write(1));
    assert_ne!(write(1), write(2));
}

/// A network whose parameters are drawn: Burn draws a parameter when it is first read.
fn network(config: &TrainingConfig) -> Model {
    let _drawing = super::drawing();
    let model = Model::new(config, &Device::flex());
    super::resume::parameters(&model);
    model
}

fn tiny(vocabulary: usize) -> TrainingConfig {
    TrainingConfig::new().with_vocabulary(vocabulary).with_window(16).with_n_layers(2).with_d_model(16).with_n_heads(2)
}

fn text() -> Vec<u32> {
    (0..500).map(|place| place * place % 7).collect()
}

fn scores(model: &Model, ids: [u32; 5]) -> Vec<f32> {
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids.to_vec(), [1, 5]), &Device::flex());
    model.forward(ids).into_data().iter::<f32>().collect()
}

struct Zeros;

impl ModuleMapper for Zeros {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.zeros_like())
    }
}
