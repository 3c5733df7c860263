//! Functions of graphs.

use std::ffi::{c_int, c_void};

use super::{Opaque, call, check_handle};
use crate::behaviour;
use crate::graph::{HEURISTIC, PLAN, Part, bytes_of};
use crate::objects::{self, BAD_PARAM, Object, WORKSPACE_BYTES};

fn part(object: Opaque) -> Result<Part, c_int> {
    match objects::get(object.addr())? {
        Object::Part(part) => Ok(part),
        _ => Err(BAD_PARAM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, out: *mut Opaque) -> c_int {
    call("cudnnBackendCreateDescriptor", || {
        let object = objects::create(Object::Part(Part::new(kind)));
        // SAFETY: by cuDNN's contract.
        unsafe { out.write(std::ptr::without_provenance_mut(object)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(object: Opaque) -> c_int {
    call("cudnnBackendDestroyDescriptor", || objects::destroy(object.addr(), &Object::Part(Part::default())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendSetAttribute(
    object: Opaque,
    name: c_int,
    of: c_int,
    count: i64,
    values: *const c_void,
) -> c_int {
    call("cudnnBackendSetAttribute", || {
        let bytes = bytes_of(of);
        // SAFETY: by cuDNN's contract.
        let value = |index: usize| unsafe {
            let value = values.cast::<u8>().add(index * bytes);
            match bytes {
                1 => i64::from(value.read()),
                4 => i64::from(value.cast::<i32>().read_unaligned()),
                _ => value.cast::<i64>().read_unaligned(),
            }
        };
        let mut part = part(object)?;
        part.set(name, of, (0..count as usize).map(value).collect())?;
        objects::set(object.addr(), Object::Part(part))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(object: Opaque) -> c_int {
    call("cudnnBackendFinalize", || {
        let mut part = part(object)?;
        part.finalize()?;
        objects::set(object.addr(), Object::Part(part))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendGetAttribute(
    object: Opaque,
    name: c_int,
    _of: c_int,
    requested: i64,
    count: *mut i64,
    values: *mut c_void,
) -> c_int {
    call("cudnnBackendGetAttribute", || {
        let part = part(object)?;
        let values = values.cast::<i64>();
        let mut found = 1;
        if requested < 1 {
            return Err(BAD_PARAM);
        }
        match (part.kind, name) {
            (HEURISTIC, 202) if !behaviour::current().has_algorithms => found = 0,
            // SAFETY: by cuDNN's contract.
            (HEURISTIC, 202) => part.recommend(unsafe { values.read() })?,
            // SAFETY: as above.
            (PLAN, 402) => unsafe { values.write(WORKSPACE_BYTES.cast_signed() as i64) },
            _ => return Err(BAD_PARAM),
        }
        // SAFETY: as above.
        unsafe { count.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendExecute(handle: Opaque, plan: Opaque, pack: Opaque) -> c_int {
    call("cudnnBackendExecute", || {
        check_handle(handle)?;
        // SAFETY: by cuDNN's contract.
        unsafe { part(plan)?.execute(&part(pack)?) }
    })
}
