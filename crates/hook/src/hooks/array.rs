//! Arrays: memory with a shape instead of an address.

use core::ffi::c_void;

use crate::books::{self, Account, Block, Charge, Charged, Kind};
use crate::cuda::types::{
    ARRAY_CUBEMAP, ARRAY_DEFERRED, ARRAY_SPARSE, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_DESCRIPTOR_v2,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR_v2, CUresult, SUCCESS,
};
use crate::gate::{self, Wait};
use crate::process::of_container;

/// The shape of an array, whichever entry point it came by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    sides: [u64; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

impl From<&CUDA_ARRAY_DESCRIPTOR_v1> for Shape {
    fn from(a: &CUDA_ARRAY_DESCRIPTOR_v1) -> Self {
        Shape { sides: [a.width.into(), a.height.into(), 0], format: a.format, channels: a.channels, flags: 0 }
    }
}

impl From<&CUDA_ARRAY_DESCRIPTOR_v2> for Shape {
    fn from(a: &CUDA_ARRAY_DESCRIPTOR_v2) -> Self {
        Shape { sides: [a.width as u64, a.height as u64, 0], format: a.format, channels: a.channels, flags: 0 }
    }
}

impl From<&CUDA_ARRAY3D_DESCRIPTOR_v1> for Shape {
    fn from(a: &CUDA_ARRAY3D_DESCRIPTOR_v1) -> Self {
        let sides = [a.width.into(), a.height.into(), a.depth.into()];
        Shape { sides, format: a.format, channels: a.channels, flags: a.flags }
    }
}

impl From<&CUDA_ARRAY3D_DESCRIPTOR_v2> for Shape {
    fn from(a: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> Self {
        let sides = [a.width as u64, a.height as u64, a.depth as u64];
        Shape { sides, format: a.format, channels: a.channels, flags: a.flags }
    }
}

impl Shape {
    /// Bits of one element. The driver lays arrays out as it likes; what it takes beyond this is for the audit to find.
    fn bits(&self) -> u64 {
        let channels = u64::from(self.channels.max(1));
        match self.format {
            0x01 | 0x08 => 8 * channels,
            0x02 | 0x09 | 0x10 => 16 * channels,
            0x03 | 0x0a | 0x20 => 32 * channels,
            0xc0 | 0xc6 => 8,
            0xc1 | 0xc3 | 0xc7 | 0xc9 => 16,
            0xc2 | 0xc4 | 0xc8 | 0xca | 0x50 => 32,
            0xc5 | 0xcb => 64,
            0x91 | 0x92 | 0x97 | 0x98 => 4, // blocks of 16 in 8 bytes
            0x93..=0x96 | 0x99..=0x9e => 8, // blocks of 16 in 16 bytes
            0xb0 => 12,
            0x9f | 0xa1 => 24,
            _ => 32 * channels,
        }
    }

    /// Bytes of so many levels, each half as large as the one before. Nothing where memory is put behind the array later.
    fn bytes(&self, levels: u32) -> u64 {
        if self.flags & (ARRAY_SPARSE | ARRAY_DEFERRED) != 0 {
            return 0;
        }
        // Layers do not shrink from level to level; faces of a cube are layers.
        let layered = self.flags & 1 != 0 || self.flags & ARRAY_CUBEMAP != 0;
        (0..levels.clamp(1, 32)).fold(0, |sum, level| {
            let side = |i: usize| {
                let full = self.sides[i].max(1);
                if i == 2 && layered { full } else { (full >> level).max(1) }
            };
            let elements = side(0).saturating_mul(side(1)).saturating_mul(side(2));
            sum.saturating_add(elements.saturating_mul(self.bits()).div_ceil(8))
        })
    }
}

/// An array is made, of one level or several.
///
/// # Safety
/// `out` is null or where the driver puts the array; `shape` is null or its description.
pub(crate) unsafe fn create<D>(
    out: *const *mut c_void,
    shape: *const D,
    levels: u32,
    go: impl Fn() -> CUresult,
) -> CUresult
where
    for<'a> Shape: From<&'a D>,
{
    // SAFETY: by contract.
    let Some(shape) = (unsafe { shape.as_ref() }).map(Shape::from) else { return go() };
    let (member, device, context) = match books::current() {
        Account::Of(member, device, context) => (member, device, context),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    let charge = match Charge::make(member, device, Kind::Array, shape.bytes(levels)) {
        Ok(charge) => charge,
        Err(status) => return status,
    };
    let status = go();
    // SAFETY: null, or the driver has just written it.
    match unsafe { out.as_ref() } {
        Some(array) if status == SUCCESS => {
            let block = Block { bytes: charge.keep(), context, place: Charged::Device(device as u8, Kind::Array) };
            if let Some(stale) = member.process.arrays.insert(*array as u64, block) {
                books::settle(member, stale);
            }
        }
        _ => charge.cancel(),
    }
    status
}

/// An array goes.
pub(crate) fn destroy(array: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let Some(member) = of_container() else { return go() };
    gate::before_sync(Wait::Context);
    let known = member.process.arrays.remove(array as u64);
    let status = go();
    match known {
        Some(block) if status == SUCCESS => books::settle(member, block),
        Some(block) => drop(member.process.arrays.insert(array as u64, block)),
        None => {}
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sides: [u64; 3], format: u32, channels: u32, flags: u32) -> Shape {
        Shape { sides, format, channels, flags }
    }

    #[test]
    fn a_shape_takes_its_sides_times_its_elements() {
        assert_eq!(shape([100, 0, 0], 0x20, 4, 0).bytes(1), 1600);
        assert_eq!(shape([64, 64, 0], 0x01, 1, 0).bytes(1), 4096);
        assert_eq!(shape([64, 64, 16], 0x10, 2, 0).bytes(1), 64 * 64 * 16 * 4);
        assert_eq!(shape([64, 64, 0], 0x91, 4, 0).bytes(1), 2048);
        assert!(shape([u64::MAX, u64::MAX, 2], 0x20, 4, 0).bytes(1) > 1 << 60, "more than any card");
    }

    #[test]
    fn levels_halve_and_layers_do_not() {
        assert_eq!(shape([8, 8, 0], 0x01, 1, 0).bytes(4), 64 + 16 + 4 + 1);
        assert_eq!(shape([8, 8, 6], 0x01, 1, 1).bytes(2), 64 * 6 + 16 * 6);
        assert_eq!(shape([8, 8, 8], 0x01, 1, 0).bytes(2), 512 + 64);
    }

    #[test]
    fn arrays_whose_memory_comes_later_take_none() {
        assert_eq!(shape([1024, 1024, 0], 0x20, 4, ARRAY_SPARSE).bytes(1), 0);
        assert_eq!(shape([1024, 1024, 0], 0x20, 4, ARRAY_DEFERRED).bytes(1), 0);
    }
}
