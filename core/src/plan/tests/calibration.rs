//! Derived speeds against measured ones.

use crate::device::DeviceFacts;
use crate::profile::ProfileTable;
use crate::workload::{Block, Convnet, Recurrent, Stage, Workload};
use crate::{Goal, Pins, plan};

fn convnet(image: u64, block: Block, stages: &[(u64, u64)]) -> Workload {
    let stages = stages.iter().map(|&(channels, blocks)| Stage { channels, blocks }).collect();
    Convnet { image, classes: 10, block, stages, batch_statistics: true, ..Convnet::default() }.workload()
}

/// Micro-batches on an H200 with their samples per second in f32, from the raw data of this repository.
fn measured() -> [(&'static str, Workload, u64, f64); 6] {
    let lstm = |inputs, hidden, layers, seq| {
        Recurrent { inputs, hidden, layers, seq, outputs: 1, ..Recurrent::default() }.workload()
    };
    let resnet = [(64, 2), (128, 2), (256, 2), (512, 2)];
    [
        ("four convolutions of 32 channels", convnet(128, Block::Plain, &[(32, 4)]), 16, 1561.0),
        ("the same, more samples", convnet(128, Block::Plain, &[(32, 4)]), 512, 1381.0),
        ("eight of 96", convnet(64, Block::Plain, &[(96, 8)]), 64, 844.0),
        ("a ResNet-18", convnet(32, Block::Basic, &resnet), 256, 5118.0),
        ("an LSTM", lstm(8, 64, 2, 30), 128, 1760.0),
        ("a larger one", lstm(64, 256, 3, 60), 512, 1824.0),
    ]
}

#[test]
fn derived_speeds_are_within_a_quarter_of_measured_ones() {
    let h200 = DeviceFacts::nominal(&ProfileTable::builtin_profile("h200").expect("a shipped profile"));
    for (name, workload, batch, samples_per_s) in measured() {
        let pins = Pins { batch_size: Some(batch), gradient_checkpointing: Some(false), ..Pins::default() };
        let plan = plan(&h200, &workload, &Goal { pins, ..Goal::default() }).expect("it fits");
        let off = plan.samples_per_s / samples_per_s;
        assert!((0.75..1.25).contains(&off), "{name}: {off:.2} times what was measured");
    }
}
