//! Capturing streams.

use crate::abi::{Answer, CUgraphEdgeData, Error};
use crate::call::{array, get, offer, put};
use crate::graph::{PLAIN_EDGE, exchange_strictness};
use crate::process::enter;

pub(crate) fn cuStreamBeginCapture_v2(hStream: u64, mode: u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    process.begin_capture(id, mode, None)
}

/// Of before there were modes.
pub(crate) fn cuStreamBeginCapture(hStream: u64) -> Answer {
    cuStreamBeginCapture_v2(hStream, 0)
}

pub(crate) fn cuStreamBeginCaptureToGraph(
    hStream: u64,
    hGraph: u64,
    dependencies: *const u64,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    mode: u32,
) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    let after = edges(dependencies, dependencyData, numDependencies)?;
    process.begin_capture(id, mode, Some((hGraph, after)))
}

/// Nodes with the data of the edges from them; plain edges where there is none.
pub(crate) fn edges(
    nodes: *const u64,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<Vec<(u64, CUgraphEdgeData)>, Error> {
    let nodes = array(nodes, count)?;
    let data = if data.is_null() { vec![PLAIN_EDGE; count] } else { array(data, count)? };
    Ok(nodes.into_iter().zip(data).collect())
}

pub(crate) fn cuStreamEndCapture(hStream: u64, phGraph: *mut u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    offer(phGraph, 0);
    let graph = process.end_capture(id)?;
    put(phGraph, graph)
}

pub(crate) fn cuStreamIsCapturing(hStream: u64, captureStatus: *mut u32) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    if process.graphs.has_captures() {
        process.guard_legacy(id)?;
    }
    let status = process.graphs.capture_of(id).map_or(0, |(_, c)| if c.invalid { 2 } else { 1 });
    put(captureStatus, status)
}

thread_local! {
    /// Where the driver keeps the nodes it tells about, until the next call of this thread.
    static TOLD: std::cell::RefCell<(Vec<u64>, Vec<CUgraphEdgeData>)> = const { std::cell::RefCell::new((Vec::new(), Vec::new())) };
}

fn info(
    stream: u64,
    status: *mut u32,
    id_out: *mut u64,
    graph_out: *mut u64,
    nodes_out: *mut *const u64,
    edges_out: *mut *const CUgraphEdgeData,
    count_out: *mut usize,
) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(stream)?;
    if process.graphs.has_captures() {
        process.guard_legacy(id)?;
    }
    let Some((number, capture)) = process.graphs.capture_of(id) else { return put(status, 0) };
    put(status, if capture.invalid { 2 } else { 1 })?;
    if capture.invalid {
        return Ok(());
    }
    offer(id_out, number);
    offer(graph_out, capture.graph);
    let after = capture.streams.get(&id).cloned().unwrap_or_default();
    TOLD.with_borrow_mut(|told| {
        *told = after.into_iter().unzip();
        offer(nodes_out, told.0.as_ptr());
        offer(edges_out, told.1.as_ptr());
        offer(count_out, told.0.len());
    });
    Ok(())
}

pub(crate) fn cuStreamGetCaptureInfo(hStream: u64, captureStatus_out: *mut u32, id_out: *mut u64) -> Answer {
    let nothing = std::ptr::null_mut();
    info(hStream, captureStatus_out, id_out, nothing, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut())
}

pub(crate) fn cuStreamGetCaptureInfo_v2(
    hStream: u64,
    captureStatus_out: *mut u32,
    id_out: *mut u64,
    graph_out: *mut u64,
    dependencies_out: *mut *const u64,
    numDependencies_out: *mut usize,
) -> Answer {
    info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, std::ptr::null_mut(), numDependencies_out)
}

pub(crate) fn cuStreamGetCaptureInfo_v3(
    hStream: u64,
    captureStatus_out: *mut u32,
    id_out: *mut u64,
    graph_out: *mut u64,
    dependencies_out: *mut *const u64,
    edgeData_out: *mut *const CUgraphEdgeData,
    numDependencies_out: *mut usize,
) -> Answer {
    info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out)
}

pub(crate) fn cuStreamUpdateCaptureDependencies_v2(
    hStream: u64,
    dependencies: *mut u64,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    flags: u32,
) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    let new = edges(dependencies, dependencyData, numDependencies)?;
    let capture = process.graphs.capture_mut(id).ok_or(Error::ILLEGAL_STATE)?;
    const ADD: u32 = 0;
    const SET: u32 = 1;
    let after = capture.streams.entry(id).or_default();
    match flags {
        ADD => after.extend(new),
        SET => *after = new,
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn cuStreamUpdateCaptureDependencies(
    hStream: u64,
    dependencies: *mut u64,
    numDependencies: usize,
    flags: u32,
) -> Answer {
    cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, std::ptr::null(), numDependencies, flags)
}

pub(crate) fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) -> Answer {
    drop(enter()?);
    let before = exchange_strictness(get(mode)?)?;
    put(mode, before)
}
