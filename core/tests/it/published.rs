//! Parameters of models as published, exactly.
//!
//! Sources of the figures:
//!
//! - torchvision: `num_params` of the weights, <https://pytorch.org/vision/stable/models.html>.
//! - Hugging Face: `safetensors` metadata of the model card, or `num_parameters()` of the class in transformers without a
//!   task head: <https://huggingface.co> with the model's name.
//! - `KerasHub`: `params` of the presets, <https://keras.io/keras_hub/presets/>.
//! - `DeiT`: <https://github.com/facebookresearch/deit>, counted in "`DynamicViT`" and timm.

use gpu_tuned_core::workload::{EncoderDecoder, Matrix, ModelSpec, Norm, Positions, Transformer, Vit, WorkloadSpec};

pub(crate) fn assert_published<M: Into<ModelSpec>, const N: usize>(models: [(&str, M, u64); N]) {
    for (name, model, published) in models {
        let spec = WorkloadSpec::from(model.into());
        assert_eq!(spec.mistakes(), [], "{name}");
        assert_eq!(spec.parameters(), published, "{name}");
    }
}

fn llama(layers: u64, d_model: u64, vocab: u64, d_ff: u64, [heads, kv_heads]: [u64; 2]) -> Transformer {
    Transformer {
        heads: Some(heads),
        kv_heads: Some(kv_heads),
        d_ff: Some(d_ff),
        gated: true,
        bias: false,
        norm: Norm::Rms,
        positions: Positions::Rotary,
        tied_head: false,
        ..Transformer::new(layers, d_model, vocab, 2048)
    }
}

fn gpt2(layers: u64, d_model: u64, heads: u64) -> Transformer {
    Transformer { heads: Some(heads), ..Transformer::new(layers, d_model, 50257, 1024) }
}

fn bert(layers: u64, d_model: u64) -> Transformer {
    Transformer {
        causal: false,
        final_norm: false,
        embedding_norm: true,
        segments: 2,
        pooler: true,
        ..Transformer::new(layers, d_model, 30522, 512)
    }
}

#[test]
fn transformers() {
    // Hugging Face.
    assert_published([
        ("gpt2", gpt2(12, 768, 12), 124_439_808),
        ("gpt2-medium", gpt2(24, 1024, 16), 354_823_168),
        ("gpt2-large", gpt2(36, 1280, 20), 774_030_080),
        ("gpt2-xl", gpt2(48, 1600, 25), 1_557_611_200),
        ("bert-base-uncased", bert(12, 768), 109_482_240),
        ("bert-large-uncased", bert(24, 1024), 335_141_888),
        ("distilbert-base-uncased", Transformer { segments: 0, pooler: false, ..bert(6, 768) }, 66_362_880),
        (
            "facebook/opt-125m",
            Transformer { max_seq: Some(2050), ..Transformer::new(12, 768, 50272, 2048) },
            125_239_296,
        ),
        ("meta-llama/Llama-2-7b", llama(32, 4096, 32000, 11008, [32, 32]), 6_738_415_616),
        ("meta-llama/Llama-2-13b", llama(40, 5120, 32000, 13824, [40, 40]), 13_015_864_320),
        ("meta-llama/Meta-Llama-3-8B", llama(32, 4096, 128_256, 14336, [32, 8]), 8_030_261_248),
        ("mistralai/Mistral-7B-v0.1", llama(32, 4096, 32000, 14336, [32, 8]), 7_241_732_096),
        ("TinyLlama/TinyLlama-1.1B", llama(22, 2048, 32000, 5632, [32, 4]), 1_100_048_384),
    ]);
}

#[test]
fn transformers_with_heads_biases_and_norms_of_their_own() {
    use Matrix::{Down, Key, Output, Query, Up, Value};
    let qwen2 = |model| Transformer { biases: vec![Query, Key, Value], ..model };
    let qwen3 = |model| Transformer { qk_norm: true, head_dim: Some(128), ..model };
    let gemma = |model| Transformer { head_dim: Some(256), tied_head: true, ..model };
    let gemma2 = |model| Transformer { norms_per_layer: 4, ..gemma(model) };
    // GPT-NeoX has biases in every matrix but the head's.
    let pythia = Transformer {
        heads: Some(8),
        positions: Positions::Rotary,
        biases: vec![Query, Key, Value, Output, Up, Down],
        tied_head: false,
        ..Transformer::new(6, 512, 50304, 2048)
    };
    // One norm for attention and feed-forward layer.
    let phi2 = Transformer {
        heads: Some(32),
        norms_per_layer: 1,
        positions: Positions::Rotary,
        tied_head: false,
        ..Transformer::new(32, 2560, 51200, 2048)
    };
    // A dense layer, a norm and a bias beside the tied matrix predict masked tokens.
    let masked = Transformer {
        final_norm: true,
        biases: vec![Query, Key, Value, Output, Up, Down, Matrix::Head],
        ..bert(12, 768)
    };
    let olmo = Transformer { norm: Norm::Plain, tied_head: true, ..llama(16, 2048, 50304, 8192, [16, 16]) };
    let small_qwen2 = Transformer { tied_head: true, ..llama(24, 896, 151_936, 4864, [14, 2]) };
    let tied_qwen3 = Transformer { tied_head: true, ..llama(36, 2560, 151_936, 9728, [32, 8]) };
    let gemma3 = Transformer { qk_norm: true, ..llama(26, 1152, 262_144, 6912, [4, 1]) };
    // Hugging Face; KerasHub for Gemma.
    assert_published([
        ("Qwen/Qwen2-0.5B", qwen2(small_qwen2), 494_032_768),
        ("Qwen/Qwen2-7B", qwen2(llama(28, 3584, 152_064, 18944, [28, 4])), 7_615_616_512),
        ("Qwen/Qwen3-4B", qwen3(tied_qwen3), 4_022_468_096),
        ("google/gemma-7b", gemma(llama(28, 3072, 256_000, 24576, [16, 16])), 8_537_680_896),
        ("google/gemma-2-2b", gemma2(llama(26, 2304, 256_000, 9216, [8, 4])), 2_614_341_888),
        ("google/gemma-3-1b", gemma2(gemma3), 999_885_952),
        ("EleutherAI/pythia-70m", pythia, 70_426_624),
        ("microsoft/phi-2", phi2, 2_779_683_840),
        ("bert-base-uncased, for masked tokens", masked, 109_514_298),
        ("allenai/OLMo-1B-hf", olmo, 1_176_764_416),
    ]);
}

#[test]
fn mixtures_of_experts() {
    let mixtral = Transformer { experts: Some(8), ..llama(32, 4096, 32000, 14336, [32, 8]) };
    let qwen3 = Transformer {
        qk_norm: true,
        head_dim: Some(128),
        experts: Some(128),
        experts_per_token: 8,
        ..llama(48, 2048, 151_936, 768, [32, 4])
    };
    // Hugging Face; the reports have 12.9 and 3.3 billion active parameters ("Mixtral of Experts", "Qwen3").
    assert_published([
        ("mistralai/Mixtral-8x7B-v0.1", mixtral.clone(), 46_702_792_704),
        ("Qwen/Qwen3-30B-A3B", qwen3.clone(), 30_532_122_624),
    ]);
    let active = |model: &Transformer| Transformer { experts: Some(model.experts_per_token), ..model.clone() };
    let parameters = |model: &Transformer| format!("{:.2e}", active(model).parameters() as f64);
    assert_eq!([parameters(&mixtral), parameters(&qwen3)], ["1.29e10", "3.34e9"]);
    // A token's arithmetic is that of its experts, and of the matrix that scores all of them.
    for model in [mixtral, qwen3] {
        let idle = model.experts.unwrap_or_default() - model.experts_per_token;
        let scores = 6.0 * (model.layers * model.seq * model.d_model * idle) as f64;
        let [flops, active] = [&model, &active(&model)].map(|model| model.workload().sample.flops);
        assert!((flops / (active + scores) - 1.0).abs() < 1e-9, "{flops} against {active} and {scores}");
    }
}

#[test]
fn vision_transformers() {
    let vit = |patch, layers, d_model, heads| Vit {
        image: 224,
        patch,
        classes: 1000,
        layers,
        d_model,
        heads: Some(heads),
        ..Vit::default()
    };
    // torchvision; DeiT for the last two.
    assert_published([
        ("vit_b_16", vit(16, 12, 768, 12), 86_567_656),
        ("vit_b_32", vit(32, 12, 768, 12), 88_224_232),
        ("vit_l_16", vit(16, 24, 1024, 16), 304_326_632),
        ("vit_l_32", vit(32, 24, 1024, 16), 306_535_400),
        ("vit_h_14", Vit { image: 518, ..vit(14, 32, 1280, 16) }, 633_470_440),
        ("deit_tiny_patch16_224", vit(16, 12, 192, 3), 5_717_416),
        ("deit_small_patch16_224", vit(16, 12, 384, 6), 22_050_664),
    ]);
}

#[test]
fn encoder_decoders() {
    use Matrix::{Down, Output, Query, Up, Value};
    let t5 = |layers, d_model, heads, head_dim, d_ff| EncoderDecoder {
        layers,
        d_model,
        heads: Some(heads),
        head_dim: Some(head_dim),
        d_ff: Some(d_ff),
        vocab: 32128,
        seq: 512,
        bias: false,
        norm: Norm::Rms,
        positions: Positions::Relative,
        ..EncoderDecoder::default()
    };
    let flan = |model| EncoderDecoder { gated: true, tied_head: false, ..model };
    let bart = |layers, d_model, heads| EncoderDecoder {
        layers,
        d_model,
        heads: Some(heads),
        vocab: 50265,
        seq: 1024,
        max_seq: Some(1026),
        final_norm: false,
        embedding_norm: true,
        ..EncoderDecoder::default()
    };
    let whisper = |layers, d_model, heads| EncoderDecoder {
        layers,
        d_model,
        heads: Some(heads),
        vocab: 51865,
        seq: 448,
        source_seq: Some(1500),
        spectrogram: Some(80),
        biases: vec![Query, Value, Output, Up, Down],
        source_positions: Some(Positions::Sinusoidal),
        ..EncoderDecoder::default()
    };
    // KerasHub for T5, Hugging Face for BART. Whisper: parameters of openai/whisper, and below those of Hugging Face, which
    // adds the fixed positions of the encoder.
    assert_published([
        ("t5-small", t5(6, 512, 8, 64, 2048), 60_506_624),
        ("t5-base", t5(12, 768, 12, 64, 3072), 222_903_552),
        ("t5-large", t5(24, 1024, 16, 64, 4096), 737_668_096),
        ("google/flan-t5-small", flan(t5(8, 512, 6, 64, 1024)), 76_961_152),
        ("google/flan-t5-base", flan(t5(12, 768, 12, 64, 2048)), 247_577_856),
        ("facebook/bart-base", bart(6, 768, 12), 139_420_416),
        ("facebook/bart-large", bart(12, 1024, 16), 406_291_456),
        ("openai/whisper-tiny", whisper(4, 384, 6), 37_184_640),
        ("openai/whisper-base", whisper(6, 512, 8), 71_825_920),
        ("openai/whisper-small", whisper(12, 768, 12), 240_582_912),
    ]);
    let whisper = whisper(4, 384, 6).workload().parameters;
    assert_eq!(whisper.trained() + whisper.frozen, 37_760_640);
}
