use super::*;
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
