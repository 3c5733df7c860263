//! Workloads from the words of a command line.

use gpu_tuned_core::workload::{Norm, Optimizer, Training, Transformer, WorkloadSpec};

use super::workload_from_words;

fn parse(model: &str, pairs: &[(&str, &str)]) -> Result<WorkloadSpec, String> {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let parsed = workload_from_words(model, &pairs).map(|(_, spec)| spec);
    parsed.map_err(|error| error.to_string())
}

#[test]
fn a_model_is_parsed_in_the_words_of_an_attribute() {
    let gpt = "transformer(layers = 6, d_model = 512, vocab = 8_192, seq = 256, norm = \"rms\",)";
    let pairs = [("layers", "6"), ("d_model", "512"), ("vocab", "8192"), ("seq", "256"), ("norm", "rms")];
    assert_eq!(parse(gpt, &[]), parse("transformer", &pairs));
    assert_eq!(
        parse(&format!("{gpt}, optimizer = \"sgd\""), &[]),
        parse("transformer", &[&pairs[..], &[("optimizer", "sgd")]].concat())
    );
    assert_eq!(parse("mlp( widths=[784, 512, 10] )", &[]), parse("mlp", &[("widths", "[784, 512, 10]")]));
    for (model, expected) in [
        ("mlp(widths = [8, 8]", "the list of dimensions has no `)` at its end; expected mlp(NAME = VALUE, …)"),
        ("mlp(8, 8)", "`8` is no dimension with a value; expected mlp(NAME = VALUE, …)"),
        ("mlp(widths =)", "`widths =` is no dimension with a value"),
        ("(widths = [8, 8])", "there is no model ``"),
        ("mlp(widths = [8, 8], global_batch = 8)", "`global_batch` is no dimension of a model, but of the goal"),
    ] {
        assert!(parse(model, &[]).is_err_and(|error| error.starts_with(expected)), "{model}");
    }
}

#[test]
fn dimensions_and_training_are_parsed_as_in_a_file() {
    let pairs = [("layers", "6"), ("d_model", "512"), ("vocab", "8_192"), ("seq", "256"), ("norm", "rms")];
    let model = Transformer { norm: Norm::Rms, ..Transformer::new(6, 512, 8192, 256) };
    let training = Training { optimizer: Optimizer::Sgd, ..Training::default() };
    let spec = parse("transformer", &[&pairs[..], &[("optimizer", "sgd")]].concat()).unwrap();
    assert_eq!(spec, WorkloadSpec { model: model.into(), training });
    let dims = [("inputs", "8"), ("hidden", "64"), ("layers", "2"), ("seq", "30"), ("outputs", "1")];
    let gru = [&dims[..], &[("cell", "gru")]].concat();
    assert_eq!(parse("gru", &dims), parse("recurrent", &gru));
    assert_eq!(parse("lstm", &dims), parse("recurrent", &dims));
    assert!(parse("gru", &gru).is_err_and(|error| error.contains("`cell` is given twice")));
    assert!(parse("convnet", &[("image", "28"), ("classes", "10"), ("stages", "[[8, 1]]")]).is_ok());
}

#[test]
fn mistakes_name_what_would_do() {
    let dims = [("layers", "6"), ("d_model", "512")];
    for (model, pairs, expected) in [
        (
            "transfromer",
            &dims[..],
            "there is no model `transfromer`; did you mean `transformer`?; models are declared, ",
        ),
        ("resnet50", &dims, "there is no model `resnet50`; `convnet` describes it; models are declared, "),
        (
            "transformer",
            &[("hidden_size", "6")],
            "unknown key `hidden_size`; did you mean `d_model`?; transformer takes",
        ),
        (
            "transformer",
            &dims,
            "transformer needs vocab (tokens in the vocabulary), seq (tokens in a sequence; one sample is one sequence)",
        ),
        ("transformer", &[("layer", "6")], "unknown key `layer`; did you mean `layers`?; transformer takes layers, "),
        ("mlp", &[("widths", "8")], "widths: expected a list of whole numbers, such as [784, 512, 10]"),
        ("mlp", &[("widths", "[8, 8]"), ("widths", "[8]")], "`widths` is given twice: keep one of them"),
        ("mlp", &[("widths", "[8, 8]"), ("optimizer", "adamv")], "optimizer: expected one of"),
        ("mlp", &[("widths", "[8, 8]\nx = 1")], "widths: expected a list of whole numbers"),
        ("transformer", &[&dims[..], &[("vocab", "0"), ("seq", "8")]].concat(), "vocab = 0 is out of range, "),
    ] {
        let error = parse(model, pairs).unwrap_err();
        assert!(error.contains(expected), "{model} {pairs:?}: {error}");
    }
}
