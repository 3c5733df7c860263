//! U-Nets of residual blocks with a time and attention, as in diffusers: DDPM, and Stable Diffusion 1 with a context.

use burn::{
    module::Module,
    nn::{
        GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        interpolate::{Interpolate2d, Interpolate2dConfig},
        loss::{MseLoss, Reduction},
    },
    tensor::{
        Device, Tensor,
        activation::{gelu, silu, softmax},
    },
};
use gpu_tuned_core::workload;

/// The dimensions of a diffusion model's U-Net.
#[derive(Clone, Debug)]
pub struct Dimensions {
    /// Side of the square image in pixels.
    pub image: usize,
    /// Channels of the image and of the predicted noise.
    pub channels: usize,
    /// Channels of each level.
    pub widths: Vec<usize>,
    /// Residual blocks of each level on the way down.
    pub blocks: usize,
    /// Levels with attention, from 1.
    pub attention: Vec<usize>,
    /// Attention heads.
    pub heads: usize,
    /// Width and tokens of the context.
    pub context: Option<[usize; 2]>,
}

impl Dimensions {
    /// The model's spec in core.
    pub fn spec(&self) -> workload::Unet {
        let count = |number: usize| number as u64;
        let default = workload::Unet::default();
        workload::Unet {
            image: count(self.image),
            channels: count(self.channels),
            classes: count(self.channels),
            widths: self.widths.iter().copied().map(count).collect(),
            blocks: Some(count(self.blocks)),
            attention: self.attention.iter().copied().map(count).collect(),
            heads: count(self.heads),
            context: self.context.map(|[width, _]| count(width)),
            context_tokens: self.context.map_or(default.context_tokens, |[_, tokens]| count(tokens)),
            ..default
        }
    }

    fn time(&self) -> usize {
        4 * self.widths[0]
    }
}

fn conv(channels: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Conv2d {
    let padding = PaddingConfig2d::Explicit(kernel / 2, kernel / 2, kernel / 2, kernel / 2);
    Conv2dConfig::new(channels, [kernel; 2]).with_stride([stride; 2]).with_padding(padding).init(device)
}

fn norm(channels: usize, device: &Device) -> GroupNorm {
    GroupNormConfig::new(4, channels).init(device)
}

fn linear([inputs, outputs]: [usize; 2], bias: bool, device: &Device) -> Linear {
    LinearConfig::new(inputs, outputs).with_bias(bias).init(device)
}

#[derive(Module, Debug)]
struct Residual {
    norms: [GroupNorm; 2],
    convs: [Conv2d; 2],
    time: Linear,
    shortcut: Option<Conv2d>,
}

impl Residual {
    fn new(dimensions: &Dimensions, [inputs, outputs]: [usize; 2], device: &Device) -> Self {
        Self {
            norms: [inputs, outputs].map(|channels| norm(channels, device)),
            convs: [inputs, outputs].map(|channels| conv([channels, outputs], 3, 1, device)),
            time: linear([dimensions.time(), outputs], true, device),
            shortcut: (inputs != outputs).then(|| conv([inputs, outputs], 1, 1, device)),
        }
    }

    fn forward(&self, input: Tensor<4>, time: Tensor<2>) -> Tensor<4> {
        let hidden = self.convs[0].forward(silu(self.norms[0].forward(input.clone())));
        let hidden = hidden + self.time.forward(silu(time)).unsqueeze_dims(&[2, 3]);
        let hidden = self.convs[1].forward(silu(self.norms[1].forward(hidden)));
        match &self.shortcut {
            Some(shortcut) => shortcut.forward(input) + hidden,
            None => input + hidden,
        }
    }
}

#[derive(Module, Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
}

impl Attention {
    fn new([width, context]: [usize; 2], bias: bool, device: &Device) -> Self {
        Self {
            query: linear([width, width], bias, device),
            key: linear([context, width], bias, device),
            value: linear([context, width], bias, device),
            output: linear([width, width], true, device),
        }
    }

    fn forward(&self, tokens: Tensor<3>, context: &Tensor<3>, heads: usize) -> Tensor<3> {
        let [samples, pixels, width] = tokens.dims();
        let split = |tokens: Tensor<3>| {
            let [_, rows, _] = tokens.dims();
            tokens.reshape([samples, rows, heads, width / heads]).swap_dims(1, 2)
        };
        let query = split(self.query.forward(tokens));
        let [key, value] = [&self.key, &self.value].map(|matrix| split(matrix.forward(context.clone())));
        let scores = query.matmul(key.transpose()) / ((width / heads) as f64).sqrt();
        let attended = softmax(scores, 3).matmul(value).swap_dims(1, 2).reshape([samples, pixels, width]);
        self.output.forward(attended)
    }
}

/// A transformer block that also attends to a context.
#[derive(Module, Debug)]
struct Contextual {
    projections: [Conv2d; 2],
    norms: [LayerNorm; 3],
    cross: Attention,
    gated: Linear,
    down: Linear,
}

#[derive(Module, Debug)]
struct Attend {
    norm: GroupNorm,
    attention: Attention,
    contextual: Option<Contextual>,
}

impl Attend {
    fn new(dimensions: &Dimensions, width: usize, device: &Device) -> Self {
        let contextual = |[context, _]: [usize; 2]| Contextual {
            projections: [(); 2].map(|()| conv([width; 2], 1, 1, device)),
            norms: [(); 3].map(|()| LayerNormConfig::new(width).init(device)),
            cross: Attention::new([width, context], false, device),
            gated: linear([width, 8 * width], true, device),
            down: linear([4 * width, width], true, device),
        };
        Self {
            norm: norm(width, device),
            attention: Attention::new([width; 2], dimensions.context.is_none(), device),
            contextual: dimensions.context.map(contextual),
        }
    }

    fn forward(&self, input: Tensor<4>, context: Option<Tensor<3>>, heads: usize) -> Tensor<4> {
        let shape = input.shape();
        let to_tokens = |image: Tensor<4>| image.flatten::<3>(2, 3).swap_dims(1, 2);
        let to_image = |tokens: Tensor<3>| tokens.swap_dims(1, 2).reshape(shape);
        let normed = self.norm.forward(input.clone());
        let (Some(block), Some(context)) = (&self.contextual, context) else {
            let tokens = to_tokens(normed);
            return input + to_image(self.attention.forward(tokens.clone(), &tokens, heads));
        };
        let tokens = to_tokens(block.projections[0].forward(normed));
        let normed = block.norms[0].forward(tokens.clone());
        let tokens = tokens + self.attention.forward(normed.clone(), &normed, heads);
        let tokens = tokens.clone() + block.cross.forward(block.norms[1].forward(tokens), &context, heads);
        let halves = block.gated.forward(block.norms[2].forward(tokens.clone())).chunk(2, 2);
        let tokens = tokens + block.down.forward(halves[0].clone() * gelu(halves[1].clone()));
        input + block.projections[1].forward(to_image(tokens))
    }
}

#[derive(Module, Debug)]
struct Level {
    residuals: Vec<Residual>,
    attends: Vec<Attend>,
    resize: Option<Conv2d>,
}

/// A U-Net that predicts the noise in an image.
#[derive(Module, Debug)]
pub struct Diffusion {
    time: [Linear; 2],
    first: Conv2d,
    down: Vec<Level>,
    middle: [Residual; 2],
    attend: Attend,
    enlarge: Interpolate2d,
    up: Vec<Level>,
    norm: GroupNorm,
    last: Conv2d,
}

impl Diffusion {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let (widths, first) = (&dimensions.widths, dimensions.widths[0]);
        let (mut skips, mut width) = (vec![first], first);
        let mut level = |level: usize, outputs: usize, up: bool, skips: &mut Vec<usize>| {
            let mut block = || {
                let inputs = width + if up { skips.pop().expect("BUG: as many up as down") } else { 0 };
                width = outputs;
                if !up {
                    skips.push(outputs);
                }
                Residual::new(dimensions, [inputs, outputs], device)
            };
            let residuals: Vec<_> = (0..dimensions.blocks + usize::from(up)).map(|_| block()).collect();
            let attends = if dimensions.attention.contains(&(level + 1)) { residuals.len() } else { 0 };
            let resized = if up { level > 0 } else { level + 1 < widths.len() };
            if resized && !up {
                skips.push(outputs);
            }
            Level {
                residuals,
                attends: (0..attends).map(|_| Attend::new(dimensions, outputs, device)).collect(),
                resize: resized.then(|| conv([outputs; 2], 3, if up { 1 } else { 2 }, device)),
            }
        };
        let down = widths.iter().enumerate().map(|(index, width)| level(index, *width, false, &mut skips)).collect();
        let up = widths.iter().enumerate().rev().map(|(index, width)| level(index, *width, true, &mut skips)).collect();
        let lowest = widths[widths.len() - 1];
        let time = dimensions.time();
        Self {
            time: [first, time].map(|inputs| linear([inputs, time], true, device)),
            first: conv([dimensions.channels, first], 3, 1, device),
            down,
            middle: [(); 2].map(|()| Residual::new(dimensions, [lowest; 2], device)),
            attend: Attend::new(dimensions, lowest, device),
            enlarge: Interpolate2dConfig::new().with_scale_factor(Some([2.0; 2])).init(),
            up,
            norm: norm(first, device),
            last: conv([first, dimensions.channels], 3, 1, device),
        }
    }

    /// The loss over some images: the mean square error of the noise.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let heads = dimensions.heads;
        let context = dimensions.context.map(|[width, tokens]| Tensor::zeros([samples, tokens, width], device));
        let time = Tensor::<2>::zeros([samples, dimensions.widths[0]], device);
        let time = self.time[1].forward(silu(self.time[0].forward(time)));
        let images = Tensor::<4>::zeros([samples, dimensions.channels, dimensions.image, dimensions.image], device);
        let noise = images.zeros_like();
        let mut hidden = self.first.forward(images);
        let mut skips = vec![hidden.clone()];
        for level in &self.down {
            for (index, residual) in level.residuals.iter().enumerate() {
                hidden = residual.forward(hidden, time.clone());
                if let Some(attend) = level.attends.get(index) {
                    hidden = attend.forward(hidden, context.clone(), heads);
                }
                skips.push(hidden.clone());
            }
            if let Some(resize) = &level.resize {
                hidden = resize.forward(hidden);
                skips.push(hidden.clone());
            }
        }
        hidden = self.middle[0].forward(hidden, time.clone());
        hidden = self.middle[1].forward(self.attend.forward(hidden, context.clone(), heads), time.clone());
        for level in &self.up {
            for (index, residual) in level.residuals.iter().enumerate() {
                let skip = skips.pop().expect("BUG: as many up as down");
                hidden = residual.forward(Tensor::cat(vec![hidden, skip], 1), time.clone());
                if let Some(attend) = level.attends.get(index) {
                    hidden = attend.forward(hidden, context.clone(), heads);
                }
            }
            if let Some(resize) = &level.resize {
                hidden = resize.forward(self.enlarge.forward(hidden));
            }
        }
        let predicted = self.last.forward(silu(self.norm.forward(hidden)));
        MseLoss::new().forward(predicted, noise, Reduction::Mean)
    }
}
