//! Arrays: memory with a shape. Inside they are plain rows, one after the other.

use super::{Kind, Memory, On};
use crate::abi::{CUDA_ARRAY3D_DESCRIPTOR_v2, Error};

#[derive(Clone, Copy)]
pub(crate) struct Array {
    pub(crate) shape: CUDA_ARRAY3D_DESCRIPTOR_v2,
    pub(crate) context: u64,
    /// Where its bytes are.
    pub(crate) base: u64,
    /// The mipmapped array it is a level of.
    pub(crate) level_of: Option<u64>,
}

pub(crate) struct Mipmap {
    pub(crate) shape: CUDA_ARRAY3D_DESCRIPTOR_v2,
    pub(crate) context: u64,
    pub(crate) base: u64,
    pub(crate) levels: Vec<u64>,
}

/// Bytes of one channel of a format.
fn channel_bytes(format: u32) -> Option<u64> {
    Some(match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    })
}

impl Array {
    /// Bytes of one element.
    pub(crate) fn element(&self) -> u64 {
        channel_bytes(self.shape.format).unwrap_or(1) * u64::from(self.shape.channels)
    }

    /// Bytes from one row to the next.
    pub(crate) fn row(&self) -> u64 {
        self.shape.width as u64 * self.element()
    }

    /// Rows of one layer.
    pub(crate) fn rows(&self) -> u64 {
        (self.shape.height as u64).max(1)
    }
}

/// Bytes an array of this shape takes, or what is wrong with the shape.
pub(crate) fn bytes(shape: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> Result<u64, Error> {
    let channel = channel_bytes(shape.format).ok_or(Error::INVALID_VALUE)?;
    let wrong = shape.width == 0
        || !matches!(shape.channels, 1 | 2 | 4)
        || (shape.height == 0 && shape.depth != 0 && shape.flags & 1 == 0);
    if wrong || shape.width > 131_072 || shape.height > 65_536 || shape.depth > 16_384 {
        return Err(Error::INVALID_VALUE);
    }
    let row = shape.width as u64 * channel * u64::from(shape.channels);
    let rows = (shape.height.max(1) * shape.depth.max(1)) as u64;
    row.checked_mul(rows).map(|b| b.next_multiple_of(512)).ok_or(Error::INVALID_VALUE)
}

impl Memory {
    pub(crate) fn create_array(&mut self, on: &On, id: u64, shape: CUDA_ARRAY3D_DESCRIPTOR_v2) -> Result<(), Error> {
        let base = self.allocate_inner(on, bytes(&shape)?)?;
        self.arrays.insert(id, Array { shape, context: on.context, base, level_of: None });
        Ok(())
    }

    pub(crate) fn destroy_array(&mut self, on: &On, id: u64) -> Result<(), Error> {
        let array = *self.arrays.get(&id).ok_or(Error::INVALID_HANDLE)?;
        if array.level_of.is_some() {
            return Err(Error::INVALID_HANDLE);
        }
        self.arrays.remove(&id);
        self.free(on.machine, on.seat, array.base)
    }

    pub(crate) fn create_mipmap(
        &mut self,
        on: &On,
        id: u64,
        shape: CUDA_ARRAY3D_DESCRIPTOR_v2,
        levels: u32,
        ids: &[u64],
    ) -> Result<(), Error> {
        let longest = shape.width.max(shape.height).max(shape.depth).max(1);
        let most = usize::BITS - longest.leading_zeros();
        if levels == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let shapes: Vec<_> = (0..levels.min(most))
            .map(|level| {
                let half = |n: usize| if n == 0 { 0 } else { (n >> level).max(1) };
                CUDA_ARRAY3D_DESCRIPTOR_v2 {
                    width: half(shape.width),
                    height: half(shape.height),
                    depth: half(shape.depth),
                    ..shape
                }
            })
            .collect();
        let sizes = shapes.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
        let base = self.allocate_inner(on, sizes.iter().sum())?;
        let mut at = base;
        for ((shape, size), &level) in shapes.iter().zip(&sizes).zip(ids) {
            self.arrays.insert(level, Array { shape: *shape, context: on.context, base: at, level_of: Some(id) });
            at += size;
        }
        let levels = ids[..shapes.len()].to_vec();
        self.mipmaps.insert(id, Mipmap { shape, context: on.context, base, levels });
        Ok(())
    }

    pub(crate) fn destroy_mipmap(&mut self, on: &On, id: u64) -> Result<(), Error> {
        let mipmap = self.mipmaps.remove(&id).ok_or(Error::INVALID_HANDLE)?;
        self.arrays.retain(|level, _| !mipmap.levels.contains(level));
        self.free(on.machine, on.seat, mipmap.base)
    }

    /// Device memory that the program has no pointer to.
    fn allocate_inner(&mut self, on: &On, size: u64) -> Result<u64, Error> {
        let region = self.allocate(on, size)?;
        if let Some(region) = self.regions.get_mut(&region.base) {
            region.kind = Kind::Array;
        }
        Ok(region.base)
    }
}
