//! The convolutions of a classifier, from the image to the pooling.

use super::{Activation, Block, Convnet, Convolution, Stage};

/// Convolutions, and what lies between them.
#[derive(Default)]
pub(super) struct Layout {
    pub convolutions: Vec<Convolution>,
    /// Values of the results of max poolings, each with an index.
    pub pooled: u64,
    /// `[channels, squeezed channels]` of each squeeze-and-excitation.
    pub squeezes: Vec<[u64; 2]>,
    /// Values that squeeze-and-excitation multiplies.
    pub excited: u64,
    /// Channels after the last convolution.
    pub width: u64,
    side: u64,
}

impl Layout {
    fn pool(&mut self, stride: u64) {
        if stride > 1 {
            self.side = self.side.div_ceil(stride);
            self.pooled += 2 * self.width * self.side * self.side;
        }
    }
}

impl Convnet {
    /// The number that a list has for a stage.
    fn for_stage(list: &[u64], index: usize) -> Option<u64> {
        list.get(index).or(list.first().filter(|_| list.len() == 1)).copied()
    }

    /// Channels of the 3x3 convolutions of a block.
    const fn inner(&self, channels: u64) -> u64 {
        if matches!(self.block, Block::Bottleneck) { channels.div_ceil(4) } else { channels }
    }

    /// A convolution with an activation.
    const fn convolution(&self, inputs: u64, outputs: u64, kernel: u64, side: u64) -> Convolution {
        let after = match self.activation {
            Activation::Relu => 2,
            Activation::Silu => 3,
        };
        Convolution { inputs, outputs, kernel, pixels: side * side, after, bias: self.bias, depthwise: false }
    }

    /// Side of an image after a convolution.
    const fn convolved(&self, side: u64, kernel: u64, stride: u64) -> u64 {
        let side = if self.padding { side } else { side.saturating_sub(kernel - 1) };
        if side == 0 { 1 } else { side.div_ceil(stride) }
    }

    pub(super) fn layout(&self) -> Layout {
        let mut layout = Layout { width: self.channels, side: self.image, ..Layout::default() };
        if self.stem_kernel > 0 {
            self.add_stem(&mut layout);
        }
        for (index, stage) in self.stages.iter().enumerate() {
            self.add_stage(index, *stage, &mut layout);
        }
        if let Some(outputs) = self.last_channels {
            layout.convolutions.push(self.convolution(layout.width, outputs, 1, layout.side));
            layout.width = outputs;
        }
        layout
    }

    fn add_stem(&self, layout: &mut Layout) {
        let first = self.stages.first().map_or(self.channels, |stage| self.inner(stage.channels));
        let outputs = self.stem_channels.unwrap_or(first);
        // A stem with pooling splits its stride: ResNet has 2 for the convolution and 2 for the pooling. An odd stride is
        // the convolution's.
        let pooling = if self.stem_stride >= 4 && self.stem_stride.is_multiple_of(2) { 2 } else { 1 };
        layout.side = self.convolved(layout.side, self.stem_kernel, self.stem_stride / pooling);
        layout.convolutions.push(self.convolution(layout.width, outputs, self.stem_kernel, layout.side));
        layout.width = outputs;
        layout.pool(pooling);
    }

    fn add_stage(&self, index: usize, stage: Stage, layout: &mut Layout) {
        let usual = if index > 0 || self.max_pooling { 2 } else { 1 };
        let stride = Self::for_stage(&self.strides, index).unwrap_or(usual);
        for block in 0..stage.blocks {
            let stride = if block == 0 && !self.max_pooling { stride } else { 1 };
            self.add_block(index, stage.channels, stride, layout);
            layout.width = stage.channels;
        }
        layout.pool(if self.max_pooling { stride } else { 1 });
    }

    fn add_block(&self, index: usize, outputs: u64, stride: u64, layout: &mut Layout) {
        let kernel = Self::for_stage(&self.kernels, index).unwrap_or(3);
        let (inputs, before, inner) = (layout.width, layout.side, self.inner(outputs));
        let side = self.convolved(before, kernel, stride);
        layout.side = side;
        let main = |inputs, outputs, kernel, side| self.convolution(inputs, outputs, kernel, side);
        let depthwise = |channels| Convolution { depthwise: true, ..main(1, channels, kernel, side) };
        let all = &mut layout.convolutions;
        match self.block {
            Block::Plain => return all.push(main(inputs, outputs, kernel, side)),
            Block::Separable => return all.extend([depthwise(inputs), main(inputs, outputs, 1, side)]),
            Block::Inverted => {
                let expand = Self::for_stage(&self.expand, index).unwrap_or(6);
                let wide = inputs * expand;
                all.extend((expand > 1).then(|| main(inputs, wide, 1, before)));
                all.push(depthwise(wide));
                all.push(Convolution { after: 1, ..main(wide, outputs, 1, side) });
                if let Some(squeeze) = self.squeeze {
                    layout.squeezes.push([wide, (inputs / squeeze).max(1)]);
                    layout.excited = layout.excited.saturating_add(wide * side * side);
                }
                return;
            }
            Block::Basic => all.extend([main(inputs, outputs, kernel, side), main(outputs, outputs, kernel, side)]),
            // The 3x3 convolution is the one that halves the image, as in torchvision.
            Block::Bottleneck => all.extend([
                main(inputs, inner, 1, before),
                main(inner, inner, kernel, side),
                main(inner, outputs, 1, side),
            ]),
        }
        if before != side || inputs != outputs {
            all.push(Convolution { after: 0, ..main(inputs, outputs, 1, side) });
        }
    }
}
