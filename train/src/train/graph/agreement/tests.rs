use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::activation::relu;
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};

use super::{Agreement, Comparison, Difference, Outcome, Outcomes, Pending, ROW, Values, with_rounding_errors};
use crate::mixed::{Half, Master};
use crate::train::accumulation::MicroBatchGradients;
use crate::train::buffers::Buffers;
use crate::train::tests::{Weights, parameters, values};

/// Largest value, and differences: between plain micro-steps, to replays, between replays, and with other rounding.
type Figures = [f32; 5];

fn difference([largest, plain, apart, replays, rounded]: Figures) -> Difference {
    let (values, path, epsilon) = (Values::Gradient, "head.weight".to_owned(), super::epsilon(DType::F32));
    Difference { values, path, largest, plain, apart, replays, rounded, epsilon }
}

fn agreement_of(differences: impl Into<Vec<Difference>>) -> Agreement {
    Comparison { differences: differences.into(), incomplete: None }.agreement()
}

fn reason(agreement: Agreement) -> String {
    match agreement {
        Agreement::No(because) => because,
        other => panic!("{other:?}"),
    }
}

#[test]
fn differences_are_explained_by_rounding_or_have_a_reason() {
    const HOST: &str = "values of the host that change";
    const RANDOM: &str = "random operations such as dropout";
    let cases: [(Figures, Option<&str>); 15] = [
        ([1.0, 0.0, 0.0, 0.0, 0.0], None),
        ([1.0, 0.0, 1e-6, 0.0, 0.0], None),
        ([0.0; 5], None),
        // Kernels with other rounding in recordings only.
        ([1.0, 0.0, 5.4e-5, 0.0, 0.0], None),
        // Kernels that add in another order, in both, or in plain micro-steps only.
        ([1.0, 1e-3, 1e-3, 0.0, 0.0], None),
        ([1.0, 1e-4, 2e-4, 1e-4, 0.0], None),
        ([1.0, 1e-5, 1e-3, 1e-5, 0.0], Some(HOST)),
        ([1.0, 1e-5, f32::NAN, 1e-5, 0.0], Some(HOST)),
        ([1.0, 1e-5, f32::INFINITY, 1e-5, 0.0], Some(HOST)),
        ([1.0, 0.3, 0.3, 0.0, 0.0], Some(RANDOM)),
        // Gradients of a deep network of norms and `relu` on an H100, whose replays ran other kernels for convolutions.
        ([1.0, 0.0, 6.7e-2, 0.0, 3e-2], None),
        ([1.0, 0.0, 6.7e-2, 0.0, 1e-3], Some(HOST)),
        // Two plain micro-steps that ran different kernels; and dropout, whose replays repeat their numbers.
        ([1.0, 2.2e-2, 2.2e-2, 0.0, 1e-2], None),
        ([1.0, 0.3, 0.3, 0.0, 1e-3], Some(RANDOM)),
        // No rounding explains other gradients.
        ([1.0, 0.0, 0.6, 0.0, 0.6], Some(HOST)),
    ];
    for (figures, expected) in cases {
        let found = agreement_of([difference(figures)]);
        let Some(expected) = expected else {
            assert_eq!(found, Agreement::Yes, "{figures:?}");
            continue;
        };
        let because = reason(found);
        assert!(because.starts_with("the gradient of `head.weight` differs"), "{figures:?}: {because}");
        assert!(because.contains(expected), "{figures:?}: {because}");
    }
    let because = reason(agreement_of(vec![difference([1.0, 0.0, 0.5, 0.0, 0.0]); 3]));
    assert!(because.ends_with("(2 further values differ, too)"), "{because}");
    // Steps that are not finite decide nothing.
    for figures in [[f32::NAN, f32::NAN, f32::NAN, 0.0, 0.0], [f32::INFINITY, f32::NAN, 1.0, 0.0, 0.0]] {
        assert_eq!(agreement_of([difference(figures)]), Agreement::Unknown);
    }
}

#[test]
fn gradients_that_are_rounding_errors_agree() {
    let agreement = |values: Values, apart: f32| {
        let small = Difference { values, ..difference([1e-6, 0.0, apart, 0.0, 0.0]) };
        agreement_of([difference([1.0, 0.0, 0.0, 0.0, 0.0]), small])
    };
    assert_eq!(agreement(Values::Gradient, 2e-6), Agreement::Yes);
    assert!(matches!(agreement(Values::Gradient, 1e-4), Agreement::No(_)));
    // Other values than gradients.
    assert!(matches!(agreement(Values::Loss, 2e-6), Agreement::No(_)));
}

#[test]
fn gradients_and_statistics_are_compared() {
    let model = LinearConfig::new(2, 2).init(&Device::flex());
    let agreement = |weight: [Option<f32>; 2], bias: [f32; 2]| {
        let outcomes = [0, 1].map(|at| {
            let (mut gradients, mut statistics) = (GradientsParams::new(), Buffers::default());
            if let Some(value) = weight[at] {
                gradients.register(model.weight.id, Tensor::<2>::full([2, 2], value, &Device::flex()));
            }
            let id = model.bias.as_ref().expect("a layer with a bias").id;
            statistics.0.register(id, Tensor::<1>::full([2], bias[at], &Device::flex()));
            let loss = Some(Tensor::ones([1], &Device::flex()));
            Outcome { result: MicroBatchGradients { gradients, loss, weight: None, output: () }, statistics }
        });
        let [plain, replay] = &outcomes;
        let outcomes = Outcomes { plain: [plain; 2], replayed: [replay; 2], rounded: replay };
        Comparison::read(&model, &outcomes).ok().expect("values").agreement()
    };
    assert_eq!(agreement([Some(1.0), Some(1.0)], [0.5, 0.5]), Agreement::Yes);
    let other_statistics = reason(agreement([Some(1.0), Some(1.0)], [0.5, 0.45]));
    assert!(other_statistics.starts_with("the running statistic `bias` differs by 5.0e-2"), "{other_statistics}");
    let other_gradients = reason(agreement([Some(1.0), Some(0.9)], [0.5, 0.5]));
    assert!(other_gradients.starts_with("the gradient of `weight` differs by 1.0e-1"), "{other_gradients}");
    let missing = reason(agreement([Some(1.0), None], [0.5, 0.5]));
    assert!(missing.starts_with("some micro-steps on the same samples have a gradient of `weight`"), "{missing}");
    assert_eq!(agreement([Some(1.0), Some(1.0)], [f32::NAN, 0.5]), Agreement::Unknown);
}

#[test]
fn each_tensor_has_the_largest_values_of_its_own_rows() {
    let device = Device::flex();
    // Of the second tensor, the last number of the second row; the third is a number, and the fourth empty.
    let lengths = [ROW, 2 * ROW, 1, 0, ROW + 1];
    let mut pending = Pending::default();
    for (at, length) in lengths.into_iter().enumerate() {
        let tensors = [0.5, 0.25, -1.0, 2.0, f32::NAN].map(|last| {
            let mut numbers = vec![0.125 * at as f32; length];
            if let Some(number) = numbers.last_mut() {
                *number = last;
            }
            Some(Tensor::<1>::from_data(TensorData::new(numbers, [length]), &device))
        });
        pending.push(Values::Gradient, at.to_string(), tensors);
        // As before the memory of the rows grows large.
        if at == 1 {
            (0..Pending::COUNT).for_each(|list| pending.close(list));
        }
    }
    let differences = pending.read().ok().expect("values").differences;
    for (difference, length) in differences.iter().zip(lengths) {
        let Difference { largest, plain, apart, replays, rounded, .. } = *difference;
        let expected = if length == 0 { [0.0; 4] } else { [0.5_f32, 0.25, 1.5, 3.0] };
        assert_eq!([largest, plain, apart, replays].map(f32::to_bits), expected.map(f32::to_bits), "{length} numbers");
        assert_eq!(rounded.is_nan(), length > 0);
    }
    assert_eq!(differences.len(), lengths.len());
}

/// Layers with norms, whose activations are rounded to the places of TF32 or not at all.
#[derive(Module, Debug)]
struct Deep {
    layers: Vec<(Linear, BatchNorm)>,
}

impl Deep {
    const WIDTH: usize = 32;

    fn outcome(&self, rows: Tensor<2>, is_rounded: bool) -> Outcome<()> {
        let round =
            |value: Tensor<2>| if is_rounded { value.cast(FloatDType::F16).cast(FloatDType::F32) } else { value };
        let forward = |value, (layer, norm): &(Linear, BatchNorm)| relu(norm.forward(layer.forward(round(value))));
        let loss = self.layers.iter().fold(rows, forward).slice_dim(1, 0..1).mean();
        let result = MicroBatchGradients {
            gradients: GradientsParams::from_grads(loss.backward(), self),
            loss: Some(loss.without_autodiff()),
            weight: None,
            output: (),
        };
        Outcome { result, statistics: Buffers::default() }
    }
}

#[test]
fn kernels_with_other_rounding_agree_in_a_deep_model_and_other_samples_do_not() {
    let device = Device::flex().autodiff();
    let width = Deep::WIDTH;
    let layer = || (LinearConfig::new(width, width).init(&device), BatchNormConfig::new(width).init(&device));
    let model = Deep { layers: (0..8).map(|_| layer()).collect() }.map(&mut Weights(33));
    let rows = |seed| {
        let data = TensorData::new(values(seed, 256 * width), [256, width]);
        Tensor::<2>::from_data(data, &device)
    };
    let (rows, others) = (rows(1), rows(2));
    let plain = model.outcome(rows.clone(), false);
    let agreement = |replayed: &dyn Fn(&Deep) -> Outcome<()>, rounded: &Deep| {
        let (replay, rounded) = (replayed(&model), replayed(rounded));
        let outcomes = Outcomes { plain: [&plain; 2], replayed: [&replay; 2], rounded: &rounded };
        Comparison::read(&model, &outcomes).ok().expect("values").agreement()
    };
    let rounded = with_rounding_errors(&model);
    let other_kernels = |model: &Deep| model.outcome(rows.clone(), true);
    assert_eq!(agreement(&other_kernels, &rounded), Agreement::Yes);
    let without_errors = reason(agreement(&other_kernels, &model));
    assert!(without_errors.starts_with("the gradient of `layers.0.0.weight` differs"), "{without_errors}");
    for share in [1.0, 0.1] {
        let others = rows.clone() + others.clone() * share;
        reason(agreement(&|model| model.outcome(others.clone(), false), &rounded));
    }
}

#[test]
fn trained_parameters_get_small_errors_and_nothing_else_changes() {
    let device = Device::flex().autodiff().gradient_checkpointing();
    let layer = || LinearConfig::new(8, 8).init(&device);
    let model = (layer(), layer().no_grad(), BatchNormConfig::new(8).init(&device));
    let before = parameters(&model);
    let rounded = with_rounding_errors(&model);
    assert_eq!(parameters(&model), before);
    assert_eq!(parameters(&rounded.1), parameters(&model.1));
    assert_eq!(rounded.0.weight.id, model.0.weight.id);
    let weight = rounded.0.weight.val();
    assert_eq!(weight.gradient_checkpointing_strategy(), device.gradient_checkpointing_strategy());
    // Statistics are shared.
    rounded.2.forward(Tensor::<2>::full([4, 8], 3.0, &device));
    assert_ne!(parameters(&model.2.valid()), parameters(&BatchNormConfig::new(8).init(&device).valid()));

    let pairs: Vec<_> = parameters(&rounded.0).into_iter().zip(parameters(&model.0)).collect();
    let errors = pairs.iter().map(|(rounded, value)| (rounded - value) / value);
    let (ups, downs): (Vec<f32>, Vec<f32>) = errors.filter(|error| error.abs() > 1e-5).partition(|error| *error > 0.0);
    assert!(ups.len() > pairs.len() / 4 && downs.len() > pairs.len() / 4, "{pairs:?}");
    assert!(ups.iter().chain(&downs).all(|error| error.abs() < 1.01 / 1024.0), "{pairs:?}");
}

#[test]
fn sixteen_bit_parameters_keep_their_type_and_change() {
    let device = Device::flex().autodiff();
    let master = Master::new(LinearConfig::new(8, 8).init(&device), Half::Bf16).expect("no statistics");
    let copy = master.compute_copy();
    let rounded = with_rounding_errors(&copy);
    assert_eq!(rounded.weight.dtype(), DType::BF16);
    assert_ne!(parameters(&rounded), parameters(&copy));
}
