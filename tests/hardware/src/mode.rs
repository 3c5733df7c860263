//! The model, precision and checkpointing of a run.

use burn::tensor::{Device, FloatDType};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::network::Model;

/// The model, precision and checkpointing of a run; repeated in every line of output.
#[derive(Args, Clone, Copy, Debug, Serialize)]
pub struct Mode {
    /// The model
    #[arg(long)]
    pub model: Model,
    /// Format of parameters and activations
    #[arg(long, default_value = "f32")]
    pub precision: Precision,
    /// Recomputes activations in the backward pass
    #[arg(long)]
    pub checkpointing: bool,
    /// Micro-batches of an optimizer step
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub accumulate: u32,
}

/// A format of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 16 bits, eight of them exponent.
    Bf16,
}

impl Precision {
    /// The default float of the device.
    pub fn float(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::Bf16 => FloatDType::BF16,
        }
    }
}

impl From<Precision> for gpu_tuned::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::Bf16Params,
        }
    }
}

impl Mode {
    /// The device to train on.
    pub fn training(self, device: &Device) -> Device {
        let device = device.clone().autodiff();
        if self.checkpointing { device.gradient_checkpointing() } else { device }
    }
}
