use burn::tensor::FloatDType;
use gpu_tuned_core::Precision;

/// A 16-bit float type that the step of mixed precision computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The range of f32 with 8 bits of mantissa.
    Bf16,
    /// 11 bits of mantissa, no value above 65504: needs [`LossScale`](super::LossScale).
    F16,
}

impl Half {
    /// The 16-bit type of a mixed precision; `None` for other precisions.
    pub const fn of(precision: Precision) -> Option<Self> {
        match precision {
            Precision::MixedBf16 => Some(Self::Bf16),
            Precision::MixedF16 => Some(Self::F16),
            Precision::F32 | Precision::Bf16Params => None,
        }
    }

    /// Its type in Burn: the default float type of the device that trains, see
    /// [`default_float`](crate::device::default_float).
    pub const fn float(self) -> FloatDType {
        match self {
            Self::Bf16 => FloatDType::BF16,
            Self::F16 => FloatDType::F16,
        }
    }
}
