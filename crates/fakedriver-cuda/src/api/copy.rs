//! Copies and sets.

use std::ffi::c_void;

use crate::abi::{
    Answer, CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_BATCH_OP_v1, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1,
    CUmemcpyAttributes_v1, Error, Operand,
};
use crate::api::stream::synchronize;
use crate::call::{array, get, offer};
use crate::op::{Op, row_copy};
use crate::process::{Locked, enter};

/// A copy in a stream; waits for it if `blocking`, or if the program's memory may not stay as it is.
fn copy(what: &CUDA_MEMCPY3D_v2, stream: u64, blocking: bool) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    if blocking {
        process.guard_wait(id)?;
    }
    process.enqueue(id, Op::Copy(*what))?;
    let captured = process.graphs.capture_of(id).is_some();
    if !captured && (blocking || process.touches_pageable(what)) {
        drop(synchronize(process, id)?);
    }
    Ok(())
}

/// Checks that a device address is one.
fn check_device(process: &mut Locked, address: u64, size: usize) -> Answer {
    process.current()?;
    let wrong = size > 0 && process.memory.find_range(address, size as u64).is_none();
    if wrong { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

fn row(to: u64, from: u64, bytes: usize, devices: &[u64], stream: u64, blocking: bool) -> Answer {
    {
        let mut process = enter()?;
        for &device in devices {
            check_device(&mut process, device, bytes)?;
        }
        process.resolve_stream(stream)?;
    }
    if bytes == 0 {
        return Ok(());
    }
    if to == 0 || from == 0 {
        return Err(Error::INVALID_VALUE);
    }
    copy(&row_copy(to, from, bytes), stream, blocking)
}

pub(crate) fn cuMemcpy(dst: u64, src: u64, ByteCount: usize) -> Answer {
    row(dst, src, ByteCount, &[], 0, true)
}

pub(crate) fn cuMemcpyAsync(dst: u64, src: u64, ByteCount: usize, hStream: u64) -> Answer {
    row(dst, src, ByteCount, &[], hStream, false)
}

pub(crate) fn cuMemcpyHtoD_v2(dstDevice: u64, srcHost: *const c_void, ByteCount: usize) -> Answer {
    row(dstDevice, srcHost as u64, ByteCount, &[dstDevice], 0, true)
}

pub(crate) fn cuMemcpyDtoH_v2(dstHost: *mut c_void, srcDevice: u64, ByteCount: usize) -> Answer {
    row(dstHost as u64, srcDevice, ByteCount, &[srcDevice], 0, true)
}

pub(crate) fn cuMemcpyDtoD_v2(dstDevice: u64, srcDevice: u64, ByteCount: usize) -> Answer {
    row(dstDevice, srcDevice, ByteCount, &[dstDevice, srcDevice], 0, false)
}

pub(crate) fn cuMemcpyHtoDAsync_v2(dstDevice: u64, srcHost: *const c_void, ByteCount: usize, hStream: u64) -> Answer {
    row(dstDevice, srcHost as u64, ByteCount, &[dstDevice], hStream, false)
}

pub(crate) fn cuMemcpyDtoHAsync_v2(dstHost: *mut c_void, srcDevice: u64, ByteCount: usize, hStream: u64) -> Answer {
    row(dstHost as u64, srcDevice, ByteCount, &[srcDevice], hStream, false)
}

pub(crate) fn cuMemcpyDtoDAsync_v2(dstDevice: u64, srcDevice: u64, ByteCount: usize, hStream: u64) -> Answer {
    row(dstDevice, srcDevice, ByteCount, &[dstDevice, srcDevice], hStream, false)
}

pub(crate) fn cuMemcpyPeer(
    dstDevice: u64,
    dstContext: u64,
    srcDevice: u64,
    srcContext: u64,
    ByteCount: usize,
) -> Answer {
    check_contexts(dstContext, srcContext)?;
    row(dstDevice, srcDevice, ByteCount, &[dstDevice, srcDevice], 0, false)
}

pub(crate) fn cuMemcpyPeerAsync(
    dstDevice: u64,
    dstContext: u64,
    srcDevice: u64,
    srcContext: u64,
    ByteCount: usize,
    hStream: u64,
) -> Answer {
    check_contexts(dstContext, srcContext)?;
    row(dstDevice, srcDevice, ByteCount, &[dstDevice, srcDevice], hStream, false)
}

fn check_contexts(a: u64, b: u64) -> Answer {
    let process = enter()?;
    process.context(a)?;
    process.context(b).map(drop)
}

/// The same copy in three dimensions.
fn deepen(c: &CUDA_MEMCPY2D_v2) -> CUDA_MEMCPY3D_v2 {
    CUDA_MEMCPY3D_v2 {
        src_x: c.src_x,
        src_y: c.src_y,
        src_kind: c.src_kind,
        src_host: c.src_host,
        src_device: c.src_device,
        src_array: c.src_array,
        src_pitch: c.src_pitch,
        dst_x: c.dst_x,
        dst_y: c.dst_y,
        dst_kind: c.dst_kind,
        dst_host: c.dst_host,
        dst_device: c.dst_device,
        dst_array: c.dst_array,
        dst_pitch: c.dst_pitch,
        width: c.width,
        height: c.height,
        ..row_copy(0, 0, 0)
    }
}

pub(crate) fn cuMemcpy2D_v2(pCopy: *const CUDA_MEMCPY2D_v2) -> Answer {
    copy(&deepen(&get(pCopy)?), 0, true)
}

pub(crate) fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D_v2) -> Answer {
    copy(&deepen(&get(pCopy)?), 0, true)
}

pub(crate) fn cuMemcpy2DAsync_v2(pCopy: *const CUDA_MEMCPY2D_v2, hStream: u64) -> Answer {
    copy(&deepen(&get(pCopy)?), hStream, false)
}

pub(crate) fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D_v2) -> Answer {
    copy(&get(pCopy)?, 0, true)
}

pub(crate) fn cuMemcpy3DAsync_v2(pCopy: *const CUDA_MEMCPY3D_v2, hStream: u64) -> Answer {
    copy(&get(pCopy)?, hStream, false)
}

pub(crate) fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D_v2) -> Answer {
    copy(&get(pCopy)?, 0, true)
}

pub(crate) fn cuMemcpy3DPeerAsync(pCopy: *const CUDA_MEMCPY3D_v2, hStream: u64) -> Answer {
    copy(&get(pCopy)?, hStream, false)
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

/// A copy between an array and something else, in bytes from the array's beginning.
fn array_copy(to: (u32, u64, usize), from: (u32, u64, usize), bytes: usize, stream: u64, blocking: bool) -> Answer {
    let mut what = row_copy(0, 0, bytes);
    let row_of = |handle: u64| {
        let process = enter()?;
        let array = process.memory.arrays.get(&handle).ok_or(Error::INVALID_HANDLE)?;
        Ok::<usize, Error>(array.row() as usize)
    };
    (what.dst_kind, what.src_kind) = (to.0, from.0);
    if to.0 == ARRAY {
        let row = row_of(to.1)?;
        (what.dst_array, what.dst_x, what.dst_y) = (to.1, to.2 % row, to.2 / row);
    } else {
        (what.dst_host, what.dst_device) = (to.1, to.1);
    }
    if from.0 == ARRAY {
        let row = row_of(from.1)?;
        (what.src_array, what.src_x, what.src_y) = (from.1, from.2 % row, from.2 / row);
    } else {
        (what.src_host, what.src_device) = (from.1, from.1);
    }
    copy(&what, stream, blocking)
}

pub(crate) fn cuMemcpyDtoA_v2(dstArray: u64, dstOffset: usize, srcDevice: u64, ByteCount: usize) -> Answer {
    array_copy((ARRAY, dstArray, dstOffset), (DEVICE, srcDevice, 0), ByteCount, 0, false)
}

pub(crate) fn cuMemcpyAtoD_v2(dstDevice: u64, srcArray: u64, srcOffset: usize, ByteCount: usize) -> Answer {
    array_copy((DEVICE, dstDevice, 0), (ARRAY, srcArray, srcOffset), ByteCount, 0, false)
}

pub(crate) fn cuMemcpyHtoA_v2(dstArray: u64, dstOffset: usize, srcHost: *const c_void, ByteCount: usize) -> Answer {
    array_copy((ARRAY, dstArray, dstOffset), (HOST, srcHost as u64, 0), ByteCount, 0, true)
}

pub(crate) fn cuMemcpyAtoH_v2(dstHost: *mut c_void, srcArray: u64, srcOffset: usize, ByteCount: usize) -> Answer {
    array_copy((HOST, dstHost as u64, 0), (ARRAY, srcArray, srcOffset), ByteCount, 0, true)
}

pub(crate) fn cuMemcpyAtoA_v2(
    dstArray: u64,
    dstOffset: usize,
    srcArray: u64,
    srcOffset: usize,
    ByteCount: usize,
) -> Answer {
    array_copy((ARRAY, dstArray, dstOffset), (ARRAY, srcArray, srcOffset), ByteCount, 0, false)
}

pub(crate) fn cuMemcpyHtoAAsync_v2(
    dstArray: u64,
    dstOffset: usize,
    srcHost: *const c_void,
    ByteCount: usize,
    hStream: u64,
) -> Answer {
    array_copy((ARRAY, dstArray, dstOffset), (HOST, srcHost as u64, 0), ByteCount, hStream, false)
}

pub(crate) fn cuMemcpyAtoHAsync_v2(
    dstHost: *mut c_void,
    srcArray: u64,
    srcOffset: usize,
    ByteCount: usize,
    hStream: u64,
) -> Answer {
    array_copy((HOST, dstHost as u64, 0), (ARRAY, srcArray, srcOffset), ByteCount, hStream, false)
}

fn batch(to: *mut u64, from: *mut u64, sizes: *mut usize, count: usize, failed: *mut usize, stream: u64) -> Answer {
    offer(failed, usize::MAX);
    if count == 0 || matches!(stream, 0..=1) {
        return Err(Error::INVALID_VALUE);
    }
    let (to, from, sizes) = (array(to, count)?, array(from, count)?, array(sizes, count)?);
    for (i, ((&to, &from), &size)) in to.iter().zip(&from).zip(&sizes).enumerate() {
        row(to, from, size, &[], stream, false).inspect_err(|_| offer(failed, i))?;
    }
    Ok(())
}

pub(crate) fn cuMemcpyBatchAsync(
    dsts: *mut u64,
    srcs: *mut u64,
    sizes: *mut usize,
    count: usize,
    _attrs: *mut CUmemcpyAttributes_v1,
    _attrsIdxs: *mut usize,
    _numAttrs: usize,
    failIdx: *mut usize,
    hStream: u64,
) -> Answer {
    batch(dsts, srcs, sizes, count, failIdx, hStream)
}

pub(crate) fn cuMemcpyBatchAsync_v2(
    dsts: *mut u64,
    srcs: *mut u64,
    sizes: *mut usize,
    count: usize,
    _attrs: *mut CUmemcpyAttributes_v1,
    _attrsIdxs: *mut usize,
    _numAttrs: usize,
    hStream: u64,
) -> Answer {
    batch(dsts, srcs, sizes, count, std::ptr::null_mut(), hStream)
}

/// A copy of a batch in three dimensions.
fn unfold(op: &CUDA_MEMCPY3D_BATCH_OP_v1) -> Result<CUDA_MEMCPY3D_v2, Error> {
    let mut what = row_copy(0, 0, op.extent[0]);
    (what.height, what.depth) = (op.extent[1], op.extent[2]);
    let side = |o: &Operand| match o.kind {
        1 => Ok((4, o.words[0], [0; 3], o.words[1] as usize, o.words[2] as usize)),
        2 => Ok((ARRAY, o.words[0], [o.words[1] as usize, o.words[2] as usize, o.words[3] as usize], 0, 0)),
        _ => Err(Error::INVALID_VALUE),
    };
    let (kind, at, offset, pitch, height) = side(&op.source)?;
    (what.src_kind, what.src_device, what.src_array, what.src_pitch, what.src_height) = (kind, at, at, pitch, height);
    [what.src_x, what.src_y, what.src_z] = offset;
    let (kind, at, offset, pitch, height) = side(&op.target)?;
    (what.dst_kind, what.dst_device, what.dst_array, what.dst_pitch, what.dst_height) = (kind, at, at, pitch, height);
    [what.dst_x, what.dst_y, what.dst_z] = offset;
    Ok(what)
}

fn batch_3d(
    count: usize,
    operations: *mut CUDA_MEMCPY3D_BATCH_OP_v1,
    failed: *mut usize,
    flags: u64,
    stream: u64,
) -> Answer {
    offer(failed, usize::MAX);
    if count == 0 || flags != 0 || matches!(stream, 0..=1) {
        return Err(Error::INVALID_VALUE);
    }
    for (i, op) in array(operations, count)?.iter().enumerate() {
        unfold(op).and_then(|what| copy(&what, stream, false)).inspect_err(|_| offer(failed, i))?;
    }
    Ok(())
}

pub(crate) fn cuMemcpy3DBatchAsync(
    numOps: usize,
    opList: *mut CUDA_MEMCPY3D_BATCH_OP_v1,
    failIdx: *mut usize,
    flags: u64,
    hStream: u64,
) -> Answer {
    batch_3d(numOps, opList, failIdx, flags, hStream)
}

pub(crate) fn cuMemcpy3DBatchAsync_v2(
    numOps: usize,
    opList: *mut CUDA_MEMCPY3D_BATCH_OP_v1,
    flags: u64,
    hStream: u64,
) -> Answer {
    batch_3d(numOps, opList, std::ptr::null_mut(), flags, hStream)
}

/// A set in a stream.
fn set(fill: CUDA_MEMSET_NODE_PARAMS_v1, stream: u64, blocking: bool) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    if blocking {
        process.guard_legacy(id)?;
    }
    process.enqueue(id, Op::Fill(fill))?;
    let on_host = process.memory.find(fill.target).is_some_and(|r| r.is_host());
    if blocking && on_host {
        drop(synchronize(process, id)?);
    }
    Ok(())
}

fn line(target: u64, value: u32, element: u32, width: usize) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    CUDA_MEMSET_NODE_PARAMS_v1 { target, pitch: 0, value, element, width, height: 1 }
}

fn plane(
    target: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    CUDA_MEMSET_NODE_PARAMS_v1 { target, pitch, value, element, width, height }
}

pub(crate) fn cuMemsetD8_v2(dstDevice: u64, uc: u8, N: usize) -> Answer {
    set(line(dstDevice, uc.into(), 1, N), 0, true)
}

pub(crate) fn cuMemsetD16_v2(dstDevice: u64, us: u16, N: usize) -> Answer {
    set(line(dstDevice, us.into(), 2, N), 0, true)
}

pub(crate) fn cuMemsetD32_v2(dstDevice: u64, ui: u32, N: usize) -> Answer {
    set(line(dstDevice, ui, 4, N), 0, true)
}

pub(crate) fn cuMemsetD8Async(dstDevice: u64, uc: u8, N: usize, hStream: u64) -> Answer {
    set(line(dstDevice, uc.into(), 1, N), hStream, false)
}

pub(crate) fn cuMemsetD16Async(dstDevice: u64, us: u16, N: usize, hStream: u64) -> Answer {
    set(line(dstDevice, us.into(), 2, N), hStream, false)
}

pub(crate) fn cuMemsetD32Async(dstDevice: u64, ui: u32, N: usize, hStream: u64) -> Answer {
    set(line(dstDevice, ui, 4, N), hStream, false)
}

pub(crate) fn cuMemsetD2D8_v2(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize) -> Answer {
    set(plane(dstDevice, dstPitch, uc.into(), 1, Width, Height), 0, true)
}

pub(crate) fn cuMemsetD2D16_v2(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize) -> Answer {
    set(plane(dstDevice, dstPitch, us.into(), 2, Width, Height), 0, true)
}

pub(crate) fn cuMemsetD2D32_v2(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize) -> Answer {
    set(plane(dstDevice, dstPitch, ui, 4, Width, Height), 0, true)
}

pub(crate) fn cuMemsetD2D8Async(
    dstDevice: u64,
    dstPitch: usize,
    uc: u8,
    Width: usize,
    Height: usize,
    hStream: u64,
) -> Answer {
    set(plane(dstDevice, dstPitch, uc.into(), 1, Width, Height), hStream, false)
}

pub(crate) fn cuMemsetD2D16Async(
    dstDevice: u64,
    dstPitch: usize,
    us: u16,
    Width: usize,
    Height: usize,
    hStream: u64,
) -> Answer {
    set(plane(dstDevice, dstPitch, us.into(), 2, Width, Height), hStream, false)
}

pub(crate) fn cuMemsetD2D32Async(
    dstDevice: u64,
    dstPitch: usize,
    ui: u32,
    Width: usize,
    Height: usize,
    hStream: u64,
) -> Answer {
    set(plane(dstDevice, dstPitch, ui, 4, Width, Height), hStream, false)
}
