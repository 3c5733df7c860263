//! Names of models that a kind describes.

use super::ModelKind;
use crate::suggest;

/// Beginnings of models' names, and the description of such a model.
const DESCRIPTIONS: &[(&str, &str)] = &[
    ("bert distilbert roberta electra", "transformer(causal = false, …)"),
    ("gpt opt decoder causal_lm lm nanogpt phi pythia", "transformer(…)"),
    ("llama mistral qwen gemma tinyllama smollm falcon", "transformer(gated = true, norm = \"rms\", …)"),
    ("moe mixtral mixture switch", "transformer(experts = …, …)"),
    ("vision_transformer deit clip image_transformer", "vit(…)"),
    ("t5 flan bart mbart marian seq2seq translation whisper", "encoder_decoder(…)"),
    ("resnet50 resnet101 resnet152", "convnet(block = \"bottleneck\", …)"),
    ("resnet", "convnet(block = \"basic\", …)"),
    ("vgg alexnet lenet", "convnet(max_pooling = true, …)"),
    ("mobilenet efficientnet mnasnet", "convnet(block = \"inverted\", …)"),
    ("cnn conv2d convolutional", "convnet(…)"),
    ("lstm bilstm", "recurrent(cell = \"lstm\", …)"),
    ("gru bigru", "recurrent(cell = \"gru\", …)"),
    ("rnn", "recurrent(…)"),
    ("perceptron dense linear feed_forward feedforward fnn", "mlp(…)"),
    ("ddpm ddim diffusion stable_diffusion latent_diffusion", "unet(blocks = …, attention = …, …)"),
    ("u_net segmentation", "unet(…)"),
];

impl ModelKind {
    /// Describes how a model of this name is written, such as `recurrent(cell = "lstm", …)` for `lstm`; `None` if no kind is
    /// known to describe it.
    pub fn description_of(name: &str) -> Option<&'static str> {
        let begins = |words: &str| words.split(' ').any(|word| is_variant(name, word));
        DESCRIPTIONS.iter().find(|(words, _)| begins(words)).map(|(_, description)| *description)
    }

    /// Formats `; did you mean …?` for a misspelt kind, or `; … describes it` for a model that a kind describes.
    pub fn suggest(name: &str) -> String {
        let near = suggest(name, Self::requestable());
        let kind = Self::description_of(name).and_then(|description| description.split('(').next());
        kind.filter(|_| near.is_empty()).map_or(near, |kind| format!("; `{kind}` describes it"))
    }

    /// Lists the kinds: `transformer(…), …; declared(…) takes costs`.
    pub fn list() -> String {
        let described: Vec<_> = Self::ALL.iter().skip(1).map(|kind| format!("`{}(…)`", kind.name)).collect();
        format!("{}; `{}(…)` takes costs", described.join(", "), Self::ALL[0].name)
    }
}

/// Returns true for the word itself, and for variants that add a number, a version or another word: `resnet18`, `mobilenetv2`,
/// `LSTMClassifier`. A word that only begins alike is another model: `densenet`.
fn is_variant(name: &str, word: &str) -> bool {
    let Some((start, rest)) = name.split_at_checked(word.len()).filter(|(start, _)| start.eq_ignore_ascii_case(word))
    else {
        return false;
    };
    let mut letters = rest.chars();
    match (letters.next(), letters.next()) {
        (Some('v' | 'V'), Some('0'..='9')) => true,
        (Some(first), next) if first.is_ascii_uppercase() => {
            start.ends_with(|last: char| last.is_ascii_lowercase())
                || next.is_some_and(|next| next.is_ascii_lowercase())
        }
        (first, _) => !first.is_some_and(char::is_alphabetic),
    }
}

#[cfg(test)]
mod tests {
    use super::{DESCRIPTIONS, ModelKind};
    use crate::dims::named;

    #[test]
    fn descriptions_have_kinds_and_keys_that_exist() {
        for (_, description) in DESCRIPTIONS {
            let (kind, keys) = description.split_once('(').expect("a kind with keys");
            let kind = ModelKind::named(kind).expect("a kind that exists");
            let keys = keys.split(", ").filter_map(|part| part.split_once(" = "));
            for (key, _) in keys {
                assert!(named(kind.dims, key).is_some(), "{description}");
            }
        }
    }

    #[test]
    fn well_known_models_are_described() {
        assert_eq!(ModelKind::description_of("resnet50"), Some("convnet(block = \"bottleneck\", …)"));
        assert_eq!(ModelKind::description_of("LSTM"), Some("recurrent(cell = \"lstm\", …)"));
        assert_eq!(ModelKind::description_of("moe"), Some("transformer(experts = …, …)"));
        assert_eq!(ModelKind::description_of("ddpm"), Some("unet(blocks = …, attention = …, …)"));
        for name in ["mobilenet_v2", "mobilenetv2", "MobileNetV2", "RESNETV2", "LSTMClassifier", "GPTNeoX", "vgg16"] {
            assert!(ModelKind::description_of(name).is_some(), "{name}");
        }
        for name in ["mamba", "densenet121", "convlstm", "ConvLSTM", "convnext", "lmdb", "LMDB", "grus", "rnnt", ""] {
            assert_eq!(ModelKind::description_of(name), None, "{name}");
        }
        assert_eq!(ModelKind::suggest("resnet50"), "; `convnet` describes it");
        assert_eq!(ModelKind::suggest("transfomer"), "; did you mean `transformer`?");
    }
}
