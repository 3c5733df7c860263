//! Weights that are brought to a device, and read back.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{DType, Device, Tensor, TensorData},
};

use crate::network::{Dimensions, Network};

/// A network with weights drawn on the host from a seed, equal for every device. The weights have type `float`, else
/// the device's own type.
pub fn seeded(dimensions: &Dimensions, seed: u64, float: Option<DType>, device: &Device) -> Network {
    dimensions.network(device).map(&mut Given { values: drawn(dimensions, seed), float })
}

/// No other thread draws this often between two equal draws, unless it does nothing else.
const ATTEMPTS: usize = 100;

/// Draws the values of all parameters. Burn has one random source for all threads, and another thread may draw
/// between seeding and drawing. Two equal draws in a row are those of the seed. The values are cached for this
/// process.
fn drawn(dimensions: &Dimensions, seed: u64) -> VecDeque<TensorData> {
    static KNOWN: Mutex<BTreeMap<(String, u64), VecDeque<TensorData>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let once = || {
        let host = Device::flex();
        host.seed(seed);
        let mut drawn = Drawn(VecDeque::new());
        dimensions.network(&host).visit(&mut drawn);
        drawn.0
    };
    let draw = || {
        let mut last = once();
        for _ in 0..ATTEMPTS {
            let next = once();
            if next == last {
                break;
            }
            last = next;
        }
        last
    };
    known.entry((format!("{dimensions:?}"), seed)).or_insert_with(draw).clone()
}

struct Drawn(VecDeque<TensorData>);

impl ModuleVisitor for Drawn {
    /// Burn draws parameters at the first access.
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push_back(param.val().into_data());
    }
}

struct Given {
    values: VecDeque<TensorData>,
    float: Option<DType>,
}

impl ModuleMapper for Given {
    /// Running statistics keep their initial values, which are the same everywhere.
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let values = self.values.pop_front().expect("BUG: the networks have the same parameters");
        if !param.is_require_grad() {
            return param;
        }
        param.map(|old| {
            let float = self.float.unwrap_or_else(|| old.dtype());
            let new = Tensor::from_data(values.convert_dtype(float), (&old.device(), float));
            new.detach().require_grad()
        })
    }
}

/// The trained parameters of a network as one vector.
pub fn trained(network: &Network) -> Vec<f64> {
    let mut values = Values(Vec::new());
    network.visit(&mut values);
    values.0
}

struct Values(Vec<f64>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            self.0.extend(param.base().without_autodiff().into_data().iter::<f64>());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use burn::tensor::{DType, Device, Distribution, Tensor};

    use super::{seeded, trained};
    use crate::network::Model;

    #[test]
    fn a_seed_draws_the_same_weights_in_every_type() {
        let device = Device::flex().autodiff();
        let dimensions = Model::Convnet.small();
        let drawn = |seed, float| trained(&seeded(&dimensions, seed, Some(float), &device));
        let (single, double, other) = (drawn(1, DType::F32), drawn(1, DType::F64), drawn(2, DType::F32));
        assert_eq!(single, double);
        assert_ne!(single, other);
    }

    #[test]
    fn other_threads_may_draw_meanwhile() {
        let device = Device::flex().autodiff();
        let dimensions = Model::Transformer.small();
        // A separate seed, because the test draws in parallel to a thread that does nothing else.
        let drawn = || trained(&seeded(&dimensions, 0xD15_7A2B, Some(DType::F32), &device));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    Tensor::<1>::random([8], Distribution::Default, &Device::flex());
                }
            });
            let networks: Vec<_> = (0..20).map(|_| drawn()).collect();
            done.store(true, Ordering::Relaxed);
            assert!(networks.iter().all(|network| *network == networks[0]));
        });
    }
}
