//! U-Nets of residual blocks with a time and attention, as in diffusers: DDPM, and Stable Diffusion 1 with a context.

use burn::{
    module::Module,
    tensor::{
        Device, Tensor,
        activation::{gelu, silu, softmax},
    },
};
use gpu_tuned::nn::{
    GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
    conv::Conv2d,
    interpolate::{Interpolate2d, Interpolate2dConfig},
    loss::{MseLoss, Reduction},
};
use gpu_tuned_core::workload::Unet;

use crate::{Network, conv, sizes};

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
    fn new(time: usize, [inputs, outputs]: [usize; 2], device: &Device) -> Self {
        Self {
            norms: [inputs, outputs].map(|channels| norm(channels, device)),
            convs: [inputs, outputs].map(|channels| conv([channels, outputs], 3, 1, device)),
            time: linear([time, outputs], true, device),
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
    fn new(context: Option<u64>, width: usize, device: &Device) -> Self {
        let contextual = |context: u64| Contextual {
            projections: [(); 2].map(|()| conv([width; 2], 1, 1, device)),
            norms: [(); 3].map(|()| LayerNormConfig::new(width).init(device)),
            cross: Attention::new([width, context as usize], false, device),
            gated: linear([width, 8 * width], true, device),
            down: linear([4 * width, width], true, device),
        };
        Self {
            norm: norm(width, device),
            attention: Attention::new([width; 2], context.is_none(), device),
            contextual: context.map(contextual),
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

impl Network for Diffusion {
    type Dimensions = Unet;

    fn new(dimensions: &Unet, device: &Device) -> Self {
        let blocks = dimensions.blocks.expect("BUG: a diffusion model has blocks");
        let [channels, blocks] = sizes([dimensions.channels, blocks]);
        let widths: Vec<_> = dimensions.widths.iter().map(|width| *width as usize).collect();
        let (first, time) = (widths[0], 4 * widths[0]);
        let (mut skips, mut width) = (vec![first], first);
        let mut level = |level: usize, outputs: usize, up: bool, skips: &mut Vec<usize>| {
            let mut block = || {
                let inputs = width + if up { skips.pop().expect("BUG: as many up as down") } else { 0 };
                width = outputs;
                if !up {
                    skips.push(outputs);
                }
                Residual::new(time, [inputs, outputs], device)
            };
            let residuals: Vec<_> = (0..blocks + usize::from(up)).map(|_| block()).collect();
            let attends = if dimensions.attention.contains(&(level as u64 + 1)) { residuals.len() } else { 0 };
            let resized = if up { level > 0 } else { level + 1 < widths.len() };
            if resized && !up {
                skips.push(outputs);
            }
            Level {
                residuals,
                attends: (0..attends).map(|_| Attend::new(dimensions.context, outputs, device)).collect(),
                resize: resized.then(|| conv([outputs; 2], 3, if up { 1 } else { 2 }, device)),
            }
        };
        let down = widths.iter().enumerate().map(|(index, width)| level(index, *width, false, &mut skips)).collect();
        let up = widths.iter().enumerate().rev().map(|(index, width)| level(index, *width, true, &mut skips)).collect();
        let lowest = widths[widths.len() - 1];
        Self {
            time: [first, time].map(|inputs| linear([inputs, time], true, device)),
            first: conv([channels, first], 3, 1, device),
            down,
            middle: [(); 2].map(|()| Residual::new(time, [lowest; 2], device)),
            attend: Attend::new(dimensions.context, lowest, device),
            enlarge: Interpolate2dConfig::new().with_scale_factor(Some([2.0; 2])).init(),
            up,
            norm: norm(first, device),
            last: conv([first, channels], 3, 1, device),
        }
    }

    /// The mean square error of the noise in some images.
    fn loss(&self, dimensions: &Unet, samples: usize, device: &Device) -> Tensor<1> {
        let Unet { heads, channels, image, context_tokens, .. } = *dimensions;
        let [heads, channels, image, tokens] = sizes([heads, channels, image, context_tokens]);
        let context = dimensions.context.map(|width| Tensor::zeros([samples, tokens, width as usize], device));
        let time = Tensor::<2>::zeros([samples, dimensions.widths[0] as usize], device);
        let time = self.time[1].forward(silu(self.time[0].forward(time)));
        let images = Tensor::<4>::zeros([samples, channels, image, image], device);
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
