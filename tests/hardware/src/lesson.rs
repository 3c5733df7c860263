//! Training data with structure, generated on the host from a seed: tokens, images, and series of numbers.

use burn::tensor::{DType, Device, Tensor, TensorData};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::network::{Batch, CLASSES, Dimensions, SEQUENCES, Samples};

/// Share of random targets, which keeps losses away from zero.
const NOISE: f64 = 0.1;
/// Topics of sequences.
const TOPICS: usize = 8;
/// Tokens that occur in them, if the vocabulary has as many.
const ACTIVE: usize = 512;
/// Side of the squares that images are made of.
const SQUARE: usize = 4;
/// Brightness of the squares, where that of noise has a deviation of one.
const CONTRAST: f32 = 0.5;
/// Size of a series' numbers, in the same unit: a few steps are not enough to recognise a class.
const FAINT: f32 = 0.1;

/// A source of samples.
#[derive(Clone)]
pub struct Lesson {
    seed: u64,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// Every sequence has a topic, visible in half of its tokens. A token's target is another token that depends on
    /// the topic, so the network must use the whole sequence.
    Sequences { length: usize, topics: Vec<Vec<u32>> },
    /// An image is the pattern of its class under noise, shifted by fewer than `shifts` pixels.
    Images { side: usize, shifts: usize, classes: Vec<Vec<f32>> },
    /// Every step of a series is the pattern of its class, under noise.
    Series { steps: usize, classes: Vec<Vec<f32>> },
    /// Squares of an image have a sign, under noise, which is the class of their pixels.
    Pixels { side: usize },
}

impl Lesson {
    /// The lesson for networks of these dimensions.
    pub fn new(dimensions: &Dimensions, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let kind = match dimensions {
            Dimensions::Encoder(encoder) => {
                let active = encoder.vocab.min(ACTIVE);
                let table = |random: &mut StdRng| (0..active).map(|_| below(active, random) as u32).collect();
                Kind::Sequences { length: encoder.tokens, topics: (0..TOPICS).map(|_| table(&mut random)).collect() }
            }
            Dimensions::Convnet(convnet) => {
                let squares = 3 * (convnet.image / SQUARE).pow(2);
                let (side, classes) = (convnet.image, patterns(convnet.classes, squares, &mut random));
                Kind::Images { side, shifts: side, classes }
            }
            Dimensions::Depthwise(convnet) => {
                let side = convnet.image as usize;
                let classes = patterns(convnet.classes as usize, 3 * (side / SQUARE).pow(2), &mut random);
                Kind::Images { side, shifts: side, classes }
            }
            // Patches have places, so that a pattern is learned where it is.
            Dimensions::Vit(vit) => {
                let classes = patterns(CLASSES, 3 * (vit.image / SQUARE).pow(2), &mut random);
                Kind::Images { side: vit.image, shifts: 1, classes }
            }
            Dimensions::Lstm => {
                Kind::Series { steps: SEQUENCES.seq, classes: patterns(CLASSES, SEQUENCES.input, &mut random) }
            }
            Dimensions::UNet(unet) => Kind::Pixels { side: unet.image },
        };
        Self { seed, kind }
    }

    /// The batch of this index, in the host's memory.
    pub fn batch(&self, index: u64, samples: usize) -> Batch {
        let random = &mut StdRng::seed_from_u64(self.seed.wrapping_mul(1 << 32).wrapping_add(index + 1));
        match &self.kind {
            Kind::Sequences { length, topics } => sequences(*length, topics, samples, random),
            Kind::Images { side, shifts, classes } => images(*side, *shifts, classes, samples, random),
            Kind::Series { steps, classes } => series(*steps, classes, samples, random),
            Kind::Pixels { side } => pixels(*side, samples, random),
        }
    }

    /// The mean loss of a perfect model: the entropy of a target.
    pub fn entropy(&self) -> f64 {
        let choices = match &self.kind {
            Kind::Sequences { topics, .. } => topics[0].len(),
            Kind::Images { classes, .. } | Kind::Series { classes, .. } => classes.len(),
            Kind::Pixels { .. } => 2,
        } as f64;
        let each = NOISE / choices;
        let right = 1.0 - NOISE + each;
        -(right * right.ln() + (choices - 1.0) * each * each.ln())
    }
}

/// Draws a pattern of so many signs for each class.
fn patterns(classes: usize, signs: usize, random: &mut StdRng) -> Vec<Vec<f32>> {
    let mut sign = || if random.random_range(0..2) == 0 { -1.0 } else { 1.0 };
    (0..classes).map(|_| (0..signs).map(|_| sign()).collect()).collect()
}

/// A value under noise of deviation one.
fn noised(value: f32, random: &mut StdRng) -> f32 {
    value + random.random_range(-1.0..1.0) * 3.0_f32.sqrt()
}

fn below(bound: usize, random: &mut StdRng) -> usize {
    random.random_range(0..bound)
}

/// The target, sometimes replaced by one of `choices`.
fn noisy(target: u32, choices: usize, random: &mut StdRng) -> u32 {
    if random.random_range(0.0..1.0) < NOISE { below(choices, random) as u32 } else { target }
}

fn sequences(length: usize, topics: &[Vec<u32>], samples: usize, random: &mut StdRng) -> Batch {
    let active = topics[0].len();
    let own = active / TOPICS;
    let (mut tokens, mut targets) = (Vec::with_capacity(samples * length), Vec::with_capacity(samples * length));
    for _ in 0..samples {
        let topic = below(TOPICS, random);
        for place in 0..length {
            let token = if place % 2 == 0 { topic * own + below(own, random) } else { below(active, random) };
            tokens.push(token as u32);
            targets.push(noisy(topics[topic][token], active, random));
        }
    }
    let tokens = TensorData::new(tokens, [samples, length]);
    batch(Samples::Tokens(Tensor::from_data(tokens, &Device::flex())), targets)
}

fn pixels(side: usize, samples: usize, random: &mut StdRng) -> Batch {
    let squares = side / SQUARE;
    let (mut values, mut targets) = (Vec::with_capacity(samples * 3 * side * side), Vec::new());
    for _ in 0..samples {
        let signs: Vec<u32> = (0..squares * squares).map(|_| below(2, random) as u32).collect();
        let sign = |pixel: usize| signs[pixel / side / SQUARE * squares + pixel % side / SQUARE];
        let all = 0..side * side;
        let value = |pixel: usize| CONTRAST * (2.0 * sign(pixel) as f32 - 1.0);
        (0..3).for_each(|_| values.extend(all.clone().map(|pixel| noised(value(pixel), random))));
        targets.extend(all.map(|pixel| noisy(sign(pixel), 2, random)));
    }
    batch(Samples::Images(floats(values, [samples, 3, side, side])), targets)
}

fn images(side: usize, shifts: usize, classes: &[Vec<f32>], samples: usize, random: &mut StdRng) -> Batch {
    let (mut pixels, mut targets) = (Vec::with_capacity(samples * 3 * side * side), Vec::with_capacity(samples));
    let squares = side / SQUARE;
    for _ in 0..samples {
        let class = below(classes.len(), random);
        let shift = [below(shifts, random), below(shifts, random)];
        for channel in 0..3 {
            for row in 0..side {
                let line = (channel * squares + (row + shift[0]) % side / SQUARE) * squares;
                pixels.extend((0..side).map(|column| {
                    noised(CONTRAST * classes[class][line + (column + shift[1]) % side / SQUARE], random)
                }));
            }
        }
        targets.push(noisy(class as u32, classes.len(), random));
    }
    batch(Samples::Images(floats(pixels, [samples, 3, side, side])), targets)
}

fn series(steps: usize, classes: &[Vec<f32>], samples: usize, random: &mut StdRng) -> Batch {
    let (mut values, mut targets) = (Vec::new(), Vec::with_capacity(samples));
    for _ in 0..samples {
        let class = below(classes.len(), random);
        for _ in 0..steps {
            values.extend(classes[class].iter().map(|sign| noised(FAINT * sign, random)));
        }
        targets.push(noisy(class as u32, classes.len(), random));
    }
    batch(Samples::Sequences(floats(values, [samples, steps, classes[0].len()])), targets)
}

/// A batch in the host's memory.
fn batch(samples: Samples, targets: Vec<u32>) -> Batch {
    let rows = targets.len();
    Batch { samples, targets: Tensor::from_data(TensorData::new(targets, [rows]), &Device::flex()) }
}

/// Values in f32, whatever the default type is.
fn floats<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (&Device::flex(), DType::F32))
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::{Lesson, NOISE, Samples};
    use crate::network::Model;

    #[test]
    fn a_batch_is_the_same_whenever_it_is_made() {
        for model in [Model::Transformer, Model::Convnet, Model::Lstm, Model::UNet, Model::Vit] {
            let lesson = |seed| Lesson::new(&model.small(), seed);
            let targets = |seed, index| lesson(seed).batch(index, 64).targets.into_data().iter().collect::<Vec<i64>>();
            assert_eq!(targets(1, 5), targets(1, 5));
            assert_ne!(targets(1, 5), targets(1, 6));
            assert_ne!(targets(1, 5), targets(2, 5));
        }
    }

    #[test]
    fn images_are_f32_whatever_the_default_is() {
        let batch = Lesson::new(&Model::Convnet.small(), 0).batch(0, 2);
        let Samples::Images(images) = batch.samples else { panic!("images") };
        assert_eq!((images.dims(), images.dtype()), ([2, 3, 16, 16], DType::F32));
    }

    /// The share of replaced targets, counted with the table, matches the entropy.
    #[test]
    fn targets_follow_the_topic_but_for_the_noise() {
        let lesson = Lesson::new(&Model::Transformer.small(), 3);
        let super::Kind::Sequences { length, topics } = &lesson.kind else { panic!("sequences") };
        let batch = lesson.batch(0, 256);
        let Samples::Tokens(tokens) = batch.samples else { panic!("tokens") };
        let (tokens, targets): (Vec<i64>, Vec<i64>) =
            (tokens.into_data().iter().collect(), batch.targets.into_data().iter().collect());
        let mut wrong = 0;
        for (tokens, targets) in tokens.chunks(*length).zip(targets.chunks(*length)) {
            let misses = |topic: &Vec<u32>| {
                let missed = |(token, target): &(&i64, &i64)| i64::from(topic[**token as usize]) != **target;
                tokens.iter().zip(targets).filter(missed).count()
            };
            wrong += topics.iter().map(misses).min().expect("a topic");
        }
        let active = topics[0].len() as f64;
        let share = wrong as f64 / targets.len() as f64;
        assert!((share - NOISE * (1.0 - 1.0 / active)).abs() < 0.02, "{share}");
        let entropy =
            -(0.9 + 0.1 / active) * (0.9 + 0.1 / active).ln() - 0.1 * (1.0 - 1.0 / active) * (0.1 / active).ln();
        assert!((lesson.entropy() - entropy).abs() < 1e-9);
    }
}
