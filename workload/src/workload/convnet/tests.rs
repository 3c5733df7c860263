use crate::workload::{Block, Convnet, Stage};

fn resnet(block: Block, channels: [u64; 4], blocks: [u64; 4]) -> Convnet {
    Convnet {
        image: 224,
        classes: 1000,
        stages: channels.into_iter().zip(blocks).map(|(channels, blocks)| Stage { channels, blocks }).collect(),
        block,
        stem_kernel: 7,
        stem_stride: 4,
        batch_statistics: true,
        ..Convnet::default()
    }
}

/// Each with the published multiplications of a forward pass: torchvision's model table.
fn published() -> [(Convnet, f64); 5] {
    let basic = |blocks| resnet(Block::Basic, [64, 128, 256, 512], blocks);
    let bottleneck = |blocks| resnet(Block::Bottleneck, [256, 512, 1024, 2048], blocks);
    [
        (basic([2, 2, 2, 2]), 1.814e9),
        (basic([3, 4, 6, 3]), 3.664e9),
        (bottleneck([3, 4, 6, 3]), 4.089e9),
        (bottleneck([3, 4, 23, 3]), 7.801e9),
        (bottleneck([3, 8, 36, 3]), 11.514e9),
    ]
}

#[test]
fn resnets_have_their_published_multiplications() {
    for (model, multiplications) in published() {
        let forward = model.workload().sample.flops / 6.0;
        assert!((forward / multiplications - 1.0).abs() < 0.01, "{forward:e} against {multiplications:e}");
    }
}

#[test]
fn kept_bytes_are_near_those_burn_held_on_an_h200() {
    let stages = vec![Stage { channels: 96, blocks: 8 }];
    let model = Convnet { image: 64, classes: 10, stages, batch_statistics: true, ..Convnet::default() };
    let ours = model.workload().sample.activations.mib();
    // Burn 0.22.1, bytes in use after the forward pass, for each sample.
    assert!((ours / 40.0 - 1.0).abs() < 0.01, "{ours} against 40.0 MiB");
}
