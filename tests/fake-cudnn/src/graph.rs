//! Graphs of operations, computed one after the other in f64 on host memory.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::objects::{self, BAD_PARAM, NOT_SUPPORTED, Object, WORKSPACE_BYTES};
use crate::passes::{BF16, F32, read, write};

// `cudnnBackendDescriptorType_t`
pub(crate) const HEURISTIC: c_int = 4;
pub(crate) const PLAN: c_int = 5;
const GRAPH: c_int = 15;
const TENSOR: c_int = 17;

// `cudnnBackendAttributeType_t`
const HANDLE: c_int = 0;
const DATA_TYPE: c_int = 1;
const BOOLEAN: c_int = 2;
const INT64: c_int = 3;
const ADDRESS: c_int = 6;
const MODE: c_int = 14;
const PART: c_int = 15;
const REDUCTION: c_int = 18;

// `cudnnDataType_t`, within kernels only.
const INT32: c_int = 4;
const TRUTH: c_int = 11;

/// A description: numbers by the names of attributes, with their types.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) kind: c_int,
    attributes: HashMap<c_int, (c_int, Vec<i64>)>,
    is_final: bool,
}

/// Bytes of a value of a type.
pub(crate) fn bytes_of(of: c_int) -> usize {
    match of {
        BOOLEAN => 1,
        HANDLE | INT64 | ADDRESS | PART => 8,
        _ => 4,
    }
}

impl Part {
    pub(crate) fn new(kind: c_int) -> Self {
        Self { kind, ..Self::default() }
    }

    pub(crate) fn set(&mut self, name: c_int, of: c_int, values: Vec<i64>) -> Result<(), c_int> {
        if self.is_final || values.is_empty() {
            return Err(BAD_PARAM);
        }
        self.attributes.insert(name, (of, values));
        Ok(())
    }

    fn all(&self, name: c_int, of: c_int) -> Result<&[i64], c_int> {
        let found = self.attributes.get(&name).filter(|(known, _)| *known == of).ok_or(BAD_PARAM)?;
        Ok(&found.1)
    }

    fn one(&self, name: c_int, of: c_int) -> Result<i64, c_int> {
        self.all(name, of).map(|values| values[0])
    }

    fn part(&self, name: c_int) -> Result<Self, c_int> {
        finished(self.one(name, PART)?)
    }

    fn tensor(&self, name: c_int) -> Result<Tensor, c_int> {
        Tensor::new(self.one(name, PART)?)
    }

    /// Checks the parts of a description, and finishes it.
    pub(crate) fn finalize(&mut self) -> Result<(), c_int> {
        match self.kind {
            GRAPH | PLAN => {
                let handle = self.one(if self.kind == GRAPH { 800 } else { 400 }, HANDLE)?;
                if !matches!(objects::get(handle as usize)?, Object::Handle) {
                    return Err(BAD_PARAM);
                }
            }
            HEURISTIC => drop(self.part(201)?),
            _ => {}
        }
        self.is_final = true;
        if self.kind == PLAN { self.operations().map(drop) } else { Ok(()) }
    }

    /// The one engine of a heuristic: an engine's description gets the graph.
    pub(crate) fn recommend(&self, engine: i64) -> Result<(), c_int> {
        let mut found = Self::new(3);
        found.set(300, PART, vec![self.one(201, PART)?])?;
        found.is_final = true;
        objects::set(engine as usize, Object::Part(found))
    }

    fn operations(&self) -> Result<Vec<Self>, c_int> {
        let graph = self.part(401)?.part(300)?;
        graph.all(801, PART)?.iter().map(|operation| finished(*operation)).collect()
    }

    /// Computes a plan with the addresses of another description.
    ///
    /// # Safety
    ///
    /// The addresses are those of the graph's tensors, and the workspace's.
    pub(crate) unsafe fn execute(&self, pack: &Self) -> Result<(), c_int> {
        let (ids, addresses) = (pack.all(1000, INT64)?, pack.all(1001, ADDRESS)?);
        let workspace = pack.one(1003, ADDRESS)? as usize as *mut u8;
        if ids.len() != addresses.len() || workspace.is_null() {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller's promise.
        unsafe { workspace.write_bytes(0xff, WORKSPACE_BYTES) };
        let memory = ids.iter().copied().zip(addresses.iter().map(|address| *address as usize as *mut c_void));
        let mut run = Run { memory: memory.collect(), within: HashMap::new() };
        for operation in self.operations()? {
            // SAFETY: the caller's promise.
            unsafe { run.compute(&operation)? };
        }
        Ok(())
    }
}

fn finished(address: i64) -> Result<Part, c_int> {
    match objects::get(address as usize)? {
        Object::Part(part) if part.is_final => Ok(part),
        _ => Err(BAD_PARAM),
    }
}

#[derive(Clone, Debug)]
struct Tensor {
    id: i64,
    data_type: c_int,
    shape: Vec<usize>,
    strides: Vec<usize>,
    is_within: bool,
}

impl Tensor {
    fn new(address: i64) -> Result<Self, c_int> {
        let part = finished(address)?;
        let sizes = |name| part.all(name, INT64).map(|all| all.iter().map(|size| *size as usize).collect::<Vec<_>>());
        let (shape, strides) = (sizes(902)?, sizes(903)?);
        let data_type = part.one(901, DATA_TYPE)? as c_int;
        if part.kind != TENSOR || shape.len() != 4 || strides.len() != 4 || part.one(900, INT64)? != 16 {
            return Err(BAD_PARAM);
        }
        if ![F32, BF16, INT32, TRUTH].contains(&data_type) {
            return Err(NOT_SUPPORTED);
        }
        let is_within = part.one(907, BOOLEAN) == Ok(1);
        Ok(Self { id: part.one(906, INT64)?, data_type, shape, strides, is_within })
    }

    /// All places, in order.
    fn places(&self) -> impl Iterator<Item = [usize; 4]> + use<> {
        let [a, b, c, d] = [0, 1, 2, 3].map(|dimension| self.shape[dimension]);
        (0..a * b * c * d).map(move |index| [index / (b * c * d), index / (c * d) % b, index / d % c, index % d])
    }

    fn offset(&self, place: [usize; 4]) -> usize {
        place.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum()
    }
}

/// Numbers of a tensor. A size of 1 is repeated.
struct Numbers {
    shape: Vec<usize>,
    numbers: Vec<f64>,
}

impl Numbers {
    fn at(&self, place: [usize; 4]) -> f64 {
        let indices = self.shape.iter().zip(place).map(|(size, index)| if *size == 1 { 0 } else { index });
        self.numbers[indices.zip(&self.shape).fold(0, |all, (index, size)| all * size + index)]
    }
}

struct Run {
    memory: HashMap<i64, *mut c_void>,
    within: HashMap<i64, Vec<f64>>,
}

impl Run {
    fn address(&self, tensor: &Tensor) -> Result<*mut c_void, c_int> {
        self.memory.get(&tensor.id).copied().filter(|address| !address.is_null()).ok_or(BAD_PARAM)
    }

    unsafe fn read(&self, tensor: &Tensor) -> Result<Numbers, c_int> {
        let numbers = if tensor.is_within {
            self.within.get(&tensor.id).cloned().ok_or(BAD_PARAM)?
        } else {
            let address = self.address(tensor)?;
            // SAFETY: the caller's promise.
            let number = |place| f64::from(unsafe { read(tensor.data_type, address, tensor.offset(place)) });
            tensor.places().map(number).collect()
        };
        Ok(Numbers { shape: tensor.shape.clone(), numbers })
    }

    unsafe fn write(&mut self, tensor: &Tensor, numbers: Vec<f64>) -> Result<(), c_int> {
        if tensor.is_within {
            let rounded = |number: f64| {
                let mut memory = 0_u32;
                let address = (&raw mut memory).cast();
                // SAFETY: the memory has a number of either type.
                unsafe {
                    write(tensor.data_type, address, 0, number as f32);
                    f64::from(read(tensor.data_type, address, 0))
                }
            };
            let rounds = tensor.data_type == BF16;
            let numbers = numbers.into_iter().map(|number| if rounds { rounded(number) } else { number });
            self.within.insert(tensor.id, numbers.collect());
            return Ok(());
        }
        let address = self.address(tensor)?;
        for (place, number) in tensor.places().zip(numbers) {
            // SAFETY: the caller's promise.
            unsafe { write(tensor.data_type, address, tensor.offset(place), number as f32) };
        }
        Ok(())
    }

    unsafe fn compute(&mut self, operation: &Part) -> Result<(), c_int> {
        let (output, numbers) = match operation.kind {
            13 => {
                let output = operation.tensor(753)?;
                let inputs = [751, 752, 758].into_iter().filter(|name| operation.one(*name, PART).is_ok());
                // SAFETY: the caller's promise.
                let inputs = inputs.map(|name| unsafe { self.read(&operation.tensor(name)?) });
                let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
                let function = operation.part(750)?;
                let (mode, axis) = (function.one(0, MODE)?, function.one(9, INT64).unwrap_or(0) as usize);
                let numbers = output.places().map(|place| {
                    let at = |which: usize| inputs.get(which).map(|it| it.at(place)).ok_or(BAD_PARAM);
                    Ok(match mode {
                        0 => at(0)? + at(1)?,
                        1 => at(0)? * at(1)?,
                        6 => at(0)? / at(1)?,
                        9 => at(0)? - at(1)?,
                        13 => at(0)?.exp(),
                        15 => at(0)?.ln(),
                        21 => at(0)?,
                        303 => f64::from(u8::from(at(0)? >= at(1)?)),
                        501 => place[axis] as f64,
                        601 => at(usize::from(at(2)? == 0.0))?,
                        _ => return Err(NOT_SUPPORTED),
                    })
                });
                (output.clone(), numbers.collect::<Result<Vec<_>, _>>()?)
            }
            19 => {
                let [left, right, output] = [1520, 1521, 1522].map(|name| operation.tensor(name));
                let (left, right, output) = (left?, right?, output?);
                let inner = left.shape[3];
                if operation.part(1523)?.one(1500, DATA_TYPE)? != i64::from(F32) || right.shape[2] != inner {
                    return Err(BAD_PARAM);
                }
                // SAFETY: the caller's promise.
                let (left, right) = unsafe { (self.read(&left)?, self.read(&right)?) };
                let number = |[a, b, row, column]: [usize; 4]| {
                    (0..inner).map(|it| left.at([a, b, row, it]) * right.at([a, b, it, column])).sum()
                };
                (output.clone(), output.places().map(number).collect())
            }
            22 => {
                let (input, output) = (operation.tensor(1610)?, operation.tensor(1611)?);
                let is_largest = match operation.part(1612)?.one(1600, REDUCTION)? {
                    0 => false,
                    3 => true,
                    _ => return Err(NOT_SUPPORTED),
                };
                // SAFETY: the caller's promise.
                let read = unsafe { self.read(&input)? };
                let row = |[a, b, c, _]: [usize; 4]| (0..input.shape[3]).map(move |it| [a, b, c, it]);
                let number = |place| {
                    let numbers = row(place).map(|place| read.at(place));
                    if is_largest { numbers.fold(f64::NEG_INFINITY, f64::max) } else { numbers.sum() }
                };
                (output.clone(), output.places().map(number).collect())
            }
            31 => {
                let (input, output) = (operation.tensor(2200)?, operation.tensor(2201)?);
                // SAFETY: the caller's promise.
                let read = unsafe { self.read(&input)? };
                let by_offset: HashMap<_, _> =
                    input.places().map(|place| input.offset(place)).zip(read.numbers).collect();
                let number = |place| by_offset.get(&output.offset(place)).copied().ok_or(BAD_PARAM);
                (output.clone(), output.places().map(number).collect::<Result<Vec<_>, _>>()?)
            }
            _ => return Err(NOT_SUPPORTED),
        };
        // SAFETY: the caller's promise.
        unsafe { self.write(&output, numbers) }
    }
}
