//! Parameter count and shape hash of a model.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Shape, Tensor};

use crate::visit::visit_floats;

/// Hash of the names and shapes of a model's parameters, in hexadecimal; equal on every machine and in every run.
///
/// The hash identifies a measured model. It depends neither on weights nor on their number format.
pub fn shape<M: Module>(model: &M) -> String {
    let mut visitor = Shapes { path: Vec::new(), hash: Fnv::default() };
    model.visit(&mut visitor);
    format!("{:016x}", visitor.hash.0)
}

/// Number of trained values. `Module::num_params` also counts the statistics of a `BatchNorm`.
pub fn parameters<M: Module>(model: &M) -> u64 {
    visit_floats!(model, trained = 0, u64, |param| {
        if param.is_require_grad() {
            *trained += param.lazy_shape().num_elements() as u64;
        }
    })
}

/// FNV-1a with 64 bits. The standard library's hashes may change between releases.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

struct Shapes {
    path: Vec<String>,
    hash: Fnv,
}

impl Shapes {
    fn add(&mut self, kind: u8, shape: &Shape) {
        self.hash.add(&[kind]);
        for name in &self.path {
            self.hash.add(name.as_bytes());
            self.hash.add(b".");
        }
        for size in shape.iter() {
            self.hash.add(&(*size as u64).to_le_bytes());
        }
        // Names contain no zero byte, so different lists of parameters hash differently.
        self.hash.add(&[0]);
    }
}

impl ModuleVisitor for Shapes {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.add(b'f', &param.lazy_shape());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.add(b'i', &param.lazy_shape());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.add(b'b', &param.lazy_shape());
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
    use burn::tensor::Device;

    use super::{parameters, shape};

    #[derive(Module, Debug)]
    struct Pair {
        first: Linear,
        second: Linear,
    }

    #[derive(Module, Debug)]
    struct Renamed {
        first: Linear,
        third: Linear,
    }

    #[derive(Module, Debug)]
    struct Normed {
        norm: BatchNorm,
    }

    fn linear(input: usize, output: usize) -> Linear {
        LinearConfig::new(input, output).init(&Device::flex().autodiff())
    }

    #[test]
    fn the_shape_is_that_of_names_and_sizes() {
        let pair = || Pair { first: linear(3, 4), second: linear(4, 3) };
        assert_eq!(shape(&pair()), shape(&pair()));
        assert_ne!(shape(&pair()), shape(&Pair { first: linear(3, 4), second: linear(4, 2) }));
        assert_ne!(shape(&pair()), shape(&Pair { first: linear(4, 3), second: linear(3, 4) }));
        assert_ne!(shape(&pair()), shape(&Renamed { first: linear(3, 4), third: linear(4, 3) }));
    }

    // Worked out apart from this code, by FNV-1a over the same bytes.
    #[test]
    fn the_shape_is_the_same_in_every_release() {
        assert_eq!(shape(&linear(2, 3)), "af0f70a48603b0b0");
    }

    #[test]
    fn statistics_are_no_trained_parameters() {
        let device = Device::flex().autodiff();
        assert_eq!(parameters(&Normed { norm: BatchNormConfig::new(5).init(&device) }), 10);
        assert_eq!(parameters(&linear(3, 4)), 16);
        assert_eq!(parameters(&linear(3, 4).no_grad()), 0);
    }
}
