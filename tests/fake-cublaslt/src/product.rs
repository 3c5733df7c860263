//! Products on host memory.

use std::ffi::{c_int, c_void};

use crate::objects::{Description, INVALID_VALUE, Layout, NOT_SUPPORTED};

const F32: c_int = 0;
const BF16: c_int = 14;
const BIAS: u32 = 4;
const GELU_AUX_BIAS: u32 = 164;
/// Sums of the rows of the library's A.
const BIAS_GRADIENT_A: u32 = 256;

/// A product of the library: `D = alpha · op(A) · op(B) + beta · C`.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    description: Description,
    a: Layout,
    b: Layout,
    output: Layout,
    inner: i64,
}

impl Product {
    /// Checks that shapes, types and the epilogue match.
    pub(crate) fn new(description: Description, [a, b, c, d]: [Layout; 4]) -> Result<Self, c_int> {
        let turned = |layout: Layout, transposed| {
            if transposed { (layout.columns, layout.rows) } else { (layout.rows, layout.columns) }
        };
        let (rows, inner) = turned(a, description.transposed[0]);
        let (other_inner, columns) = turned(b, description.transposed[1]);
        let is_valid = [a, b, d].iter().all(|it| {
            it.rows > 0 && it.columns > 0 && it.leading >= it.rows && it.batches > 0 && it.batches == d.batches
        });
        if !is_valid || c != d || inner != other_inner || (d.rows, d.columns) != (rows, columns) {
            return Err(INVALID_VALUE);
        }
        let is_one_type = [F32, BF16].contains(&d.data_type) && [a, b].iter().all(|it| it.data_type == d.data_type);
        let has_epilogue = match description.epilogue {
            1 => true,
            BIAS => description.vector != 0,
            GELU_AUX_BIAS => {
                let leading = description.auxiliary_leading;
                if leading < d.rows || leading % 8 != 0 {
                    return Err(INVALID_VALUE);
                }
                description.vector != 0 && description.auxiliary != 0 && d.batches == 1
            }
            BIAS_GRADIENT_A => description.vector != 0 && d.batches == 1,
            _ => false,
        };
        if !is_one_type || !has_epilogue || (description.tf32 && d.data_type != F32) {
            return Err(NOT_SUPPORTED);
        }
        Ok(Self { description, a, b, output: d, inner })
    }

    /// # Safety
    ///
    /// The memory of the layouts, of the vector and of the auxiliary is valid, and C is D.
    pub(crate) unsafe fn compute(&self, [alpha, beta]: [f32; 2], [a, b]: [*const c_void; 2], output: *mut c_void) {
        let Self { description, output: layout, .. } = self;
        let data_type = layout.data_type;
        let round = |number| if description.tf32 { to_tf32(number) } else { number };
        let at = |layout: &Layout, transposed, batch, row, column| {
            let (row, column) = if transposed { (column, row) } else { (row, column) };
            (batch * layout.batch_stride + column * layout.leading + row) as usize
        };
        let [a_transposed, b_transposed] = description.transposed;
        let vector = description.vector as *mut c_void;
        for batch in 0..i64::from(layout.batches) {
            for row in 0..layout.rows {
                if description.epilogue == BIAS_GRADIENT_A {
                    // SAFETY: by this function's contract.
                    let terms = (0..self.inner)
                        .map(|inner| unsafe { read(data_type, a, at(&self.a, a_transposed, batch, row, inner)) });
                    let sum = terms.sum();
                    // SAFETY: as above.
                    unsafe { write(data_type, vector, row as usize, sum) };
                }
                for column in 0..layout.columns {
                    let place = at(layout, false, batch, row, column);
                    let mut sum = 0.0;
                    for inner in 0..self.inner {
                        // SAFETY: as above.
                        let factors = unsafe {
                            [
                                read(data_type, a, at(&self.a, a_transposed, batch, row, inner)),
                                read(data_type, b, at(&self.b, b_transposed, batch, inner, column)),
                            ]
                        };
                        sum += round(factors[0]) * round(factors[1]);
                    }
                    sum *= alpha;
                    if beta != 0.0 {
                        // SAFETY: as above.
                        sum += beta * unsafe { read(data_type, output, place) };
                    }
                    if [BIAS, GELU_AUX_BIAS].contains(&description.epilogue) {
                        // SAFETY: as above.
                        sum += unsafe { read(data_type, vector, row as usize) };
                    }
                    if description.epilogue == GELU_AUX_BIAS {
                        let place = (column * description.auxiliary_leading + row) as usize;
                        // SAFETY: as above.
                        unsafe { write(data_type, description.auxiliary as *mut c_void, place, sum) };
                        sum = gelu(sum);
                    }
                    // SAFETY: as above.
                    unsafe { write(data_type, output, place, sum) };
                }
            }
        }
    }

    /// Address of the vector, if the epilogue reads or writes one.
    pub(crate) fn vector(&self) -> Option<u64> {
        (self.description.epilogue != 1).then_some(self.description.vector)
    }

    /// Address of GELU's input, if the epilogue writes one.
    pub(crate) fn auxiliary(&self) -> Option<u64> {
        (self.description.epilogue == GELU_AUX_BIAS).then_some(self.description.auxiliary)
    }

    /// Bytes of a number.
    pub(crate) fn bytes(&self) -> u64 {
        if self.output.data_type == F32 { 4 } else { 2 }
    }
}

/// # Safety
///
/// The memory has a number of this type there.
unsafe fn read(data_type: c_int, memory: *const c_void, index: usize) -> f32 {
    // SAFETY: by this function's contract.
    unsafe {
        if data_type == F32 {
            memory.cast::<f32>().add(index).read_unaligned()
        } else {
            f32::from_bits(u32::from(memory.cast::<u16>().add(index).read_unaligned()) << 16)
        }
    }
}

/// # Safety
///
/// The memory has a number of this type there.
unsafe fn write(data_type: c_int, memory: *mut c_void, index: usize, number: f32) {
    // SAFETY: by this function's contract.
    unsafe {
        if data_type == F32 {
            memory.cast::<f32>().add(index).write_unaligned(number);
        } else {
            memory.cast::<u16>().add(index).write_unaligned(to_bf16(number));
        }
    }
}

/// GELU by its tanh approximation.
fn gelu(number: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (number + 0.044_715 * number.powi(3));
    0.5 * number * (1.0 + inner.tanh())
}

/// Rounds half to even.
fn to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Rounds to 10 bits of fraction.
fn to_tf32(number: f32) -> f32 {
    f32::from_bits((number.to_bits() + 0x1000) & !0x1fff)
}
