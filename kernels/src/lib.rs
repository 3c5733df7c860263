//! Products of NVIDIA's cuBLASLt and convolutions of its cuDNN in Burn, and Burn's modules with them.
//!
//! On an H200, products of transformers took cuBLASLt an eighth to two thirds of the time of Burn 0.22's kernels, without
//! autotune. The modules in `nn` have Burn's names, configs and records. On a CUDA device with the library they compute
//! with it; elsewhere they are Burn's. Programs use them as `gpu_tuned::nn`, and a session selects the kernels.
//!
//! ```
//! # #[cfg(feature = "nn")]
//! # {
//! use burn::tensor::{Device, Distribution, Tensor};
//! use gpu_tuned_kernels::nn::{Linear, LinearConfig}; // instead of burn::nn
//! use gpu_tuned_kernels::selection::{SelectError, select_library};
//!
//! let device = Device::flex();
//! let layer: Linear = LinearConfig::new(4, 2).init(&device);
//! let output = layer.forward(Tensor::<2>::random([3, 4], Distribution::Default, &device));
//! assert_eq!(output.dims(), [3, 2]);
//! // The library computes on CUDA devices only. Elsewhere Burn's kernels stay selected.
//! assert!(matches!(select_library(&device, true), Err(SelectError::NoCuda { .. })));
//! # }
//! ```
//!
//! | module | content | feature |
//! |---|---|---|
//! | [`find`] | search for the libraries | |
//! | [`cublaslt`] | functions of cuBLASLt, without Burn | |
//! | [`cudnn`] | functions of cuDNN, without Burn | |
//! | [`nccl`] | functions of NCCL, without Burn | |
//! | [`matrix`] | layouts of matrices in tensors | |
//! | [`convolution`] | sizes and layouts of convolutions | |
//! | [`attention`] | sizes and layouts of attention | |
//! | [`recurrence`] | sizes and weights of recurrent layers | |
//! | `nn` | Burn's modules | `nn` |
//! | `optim` | Burn's optimizers | `nn` |
//! | `product` | operations on tensors | `nn` |
//! | `selection` | kernels of this process: Burn's or the library's | `nn` |
//! | `operations` | operations of Burn's backends | `cuda` |
//! | `collectives` | sums of tensors over processes | `cuda` |
//!
//! Feature `nn` compiles on every machine. `cuda` adds the library's operations, and Burn's CUDA backend.

pub mod attention;
#[cfg(feature = "cuda")]
pub mod collectives;
pub mod convolution;
pub mod cublaslt;
pub mod cudnn;
pub mod find;
mod functions;
pub mod matrix;
pub mod nccl;
#[cfg(feature = "nn")]
pub mod nn;
#[cfg(feature = "cuda")]
pub mod operations;
#[cfg(feature = "nn")]
pub mod optim;
#[cfg(feature = "nn")]
pub mod product;
pub mod recurrence;
#[cfg(feature = "nn")]
pub mod selection;
