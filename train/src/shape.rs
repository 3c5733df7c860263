//! Parameters of a model: visits, number, shape hash, and memory that is rewritten in place.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::kind::{Autodiff, Basic};
use burn::tensor::{Bool, Device, Int, Shape, Tensor};

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

/// Runs code for each float parameter of a model, of any rank `D`, with a state that the code changes. Returns the state.
///
/// `visit_floats!(model, STATE = INITIAL, TYPE, |param| CODE)`: the pattern binds references; references in the type have the
/// lifetime `'v`.
macro_rules! visit_floats {
    ($model:expr, $state:pat = $initial:expr, $type:ty, |$param:ident| $visit:expr) => {{
        struct Visitor<'v> {
            state: $type,
            lifetime: std::marker::PhantomData<&'v ()>,
        }
        impl burn::module::ModuleVisitor for Visitor<'_> {
            fn visit_float<const D: usize>(&mut self, $param: &burn::module::Param<burn::tensor::Tensor<D>>) {
                let $state = &mut self.state;
                $visit
            }
        }
        let mut visitor = Visitor { state: $initial, lifetime: std::marker::PhantomData };
        $model.visit(&mut visitor);
        visitor.state
    }};
}
pub(crate) use visit_floats;

/// Copies `value` into the memory of `kept`, or into memory that nothing else uses. Neither has autodiff.
///
/// `None` if the memory of `kept` is shared, or if it has another shape or type.
pub(crate) fn store<const D: usize, K: Basic>(value: Tensor<D, K>, kept: Option<Tensor<D, K>>) -> Option<Tensor<D, K>> {
    let shape = value.dims();
    let kept = kept.unwrap_or_else(|| Tensor::empty(shape, (&value.device(), value.dtype())));
    let fits = kept.can_mut() && kept.dims() == shape && kept.dtype() == value.dtype();
    if value.shape().num_elements() == 0 {
        return fits.then_some(kept);
    }
    fits.then(|| kept.slice_assign(shape.map(|size| 0..size), value))
}

/// The tensor in the autodiff context of `device`.
pub(crate) fn with_autodiff_of<const D: usize, K: Autodiff>(tensor: Tensor<D, K>, device: &Device) -> Tensor<D, K> {
    match device.gradient_checkpointing_strategy() {
        Some(strategy) => tensor.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}

#[cfg(test)]
mod tests;
