//! Graphs: gated when they are launched, and charged for the memory their nodes make the driver reserve.
//!
//! A node that allocates costs nothing when it is recorded. The driver takes the memory when the graph is first launched or uploaded
//! and keeps it for the device's graphs; so that is when room is looked for, by the sum of the graph's allocations, and when the
//! driver is asked what it holds.

use core::ffi::c_void;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::books::{self, Account, Charge, Kind};
use crate::cuda::real;
use crate::cuda::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUresult, CUstream, GRAPH_RESERVED_NOW, GRAPH_USED_NOW, NODE_GRAPH, NODE_MEM_ALLOC,
    SUCCESS,
};
use crate::gate::{self, Work};
use crate::lock::Lock;
use crate::map::Map;
use crate::process::{Member, of_container};

/// The graphs of a process that allocate. None when all zero.
pub(crate) struct Graphs {
    /// How many there are: while there are none, a launch looks no further.
    allocating: AtomicU32,
    /// Bytes that a launch of each may need.
    needs: Map<u64>,
    /// What graphs hold of each device, as charged.
    charged: [Lock<u64>; divvy_shm::MAX_DEVICES],
}

/// A graph becomes executable.
///
/// # Safety
/// `out` is null or where the driver puts it; `graph` is a graph of the driver's.
pub(crate) unsafe fn instantiate(out: *const *mut c_void, graph: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    // SAFETY: null, or the driver has just written it.
    if let (Some(member), SUCCESS, Some(&exec)) = (of_container(), status, unsafe { out.as_ref() }) {
        gate::graph_made(member, exec as u64, graph);
        let bytes = allocations(graph, 0);
        let graphs = &member.process.graphs;
        let known = if bytes > 0 { graphs.needs.insert(exec as u64, bytes) } else { graphs.needs.remove(exec as u64) };
        match (known.is_some(), bytes > 0) {
            (false, true) => drop(graphs.allocating.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(graphs.allocating.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }
    status
}

/// An executable graph goes.
pub(crate) fn destroy(exec: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let member = of_container().inspect(|m| gate::graph_gone(*m, exec as u64));
    let known = member.filter(|m| m.process.graphs.needs.remove(exec as u64).is_some());
    if let Some(member) = known {
        member.process.graphs.allocating.fetch_sub(1, Ordering::Relaxed);
    }
    go()
}

/// A graph is launched.
#[inline(always)]
pub(crate) fn launch(exec: *mut c_void, stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    let work = Work::Graph(exec as usize);
    gate::before_launch(stream, work);
    let status = with_room(exec, go);
    gate::after_launch(stream, work, status);
    status
}

/// A graph is made ready for its first launch, which takes its memory.
pub(crate) fn upload(exec: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    with_room(exec, go)
}

#[inline(always)]
fn with_room(exec: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    match of_container() {
        Some(member) if member.process.graphs.allocating.load(Ordering::Relaxed) > 0 => with_room_for(member, exec, go),
        _ => go(),
    }
}

#[cold]
fn with_room_for(member: Member, exec: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let Some(needs) = member.process.graphs.needs.get(exec as u64) else { return go() };
    let device = match books::current() {
        Account::Of(_, device, _) => device,
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    // What graphs hold and do not use right now serves this one too.
    let spare = held(member, device, GRAPH_RESERVED_NOW).saturating_sub(held(member, device, GRAPH_USED_NOW));
    let charge = match Charge::make(member, device, Kind::Graph, needs.saturating_sub(spare)) {
        Ok(charge) => charge,
        Err(status) => return status,
    };
    let status = go();
    charge.cancel();
    put_right(member, device);
    status
}

/// What graphs hold or use of a device.
fn held(member: Member, device: usize, which: u32) -> u64 {
    let mut bytes = 0u64;
    let (Some(ask), Some(ordinal)) = (real::cuDeviceGetGraphMemAttribute(), member.ordinal(device)) else { return 0 };
    // SAFETY: these attributes are 64-bit numbers.
    match unsafe { ask(ordinal, which, (&raw mut bytes).cast()) } {
        SUCCESS => bytes,
        _ => 0,
    }
}

/// Charges graphs with what they hold of a device now.
fn put_right(member: Member, device: usize) {
    let Some(id) = member.id() else { return };
    let mut charged = member.process.graphs.charged[device].lock();
    let now = held(member, device, GRAPH_RESERVED_NOW);
    if now >= *charged {
        member.ledger().charge_unchecked(id, device, Kind::Graph, now - *charged);
    } else {
        member.ledger().credit(id, device, Kind::Graph, *charged - now);
    }
    *charged = now;
}

/// Gives back what graphs hold of a device and do not use.
pub(crate) fn trim(member: Member, device: usize) {
    if *member.process.graphs.charged[device].lock() == 0 {
        return;
    }
    if let (Some(trim), Some(ordinal)) = (real::cuDeviceGraphMemTrim(), member.ordinal(device)) {
        // SAFETY: a device of the driver's.
        unsafe { trim(ordinal) };
    }
    put_right(member, device);
}

/// The program gives it back itself.
pub(crate) fn trimmed(ordinal: i32, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    if let Account::Of(member, device, _) = books::of_device(ordinal) {
        put_right(member, device);
    }
    status
}

/// The sum of what the nodes of a graph allocate, with the graphs in it.
fn allocations(graph: *mut c_void, depth: u32) -> u64 {
    let (Some(list), Some(kind)) = (real::cuGraphGetNodes(), real::cuGraphNodeGetType()) else { return 0 };
    let mut count = 0usize;
    // SAFETY: null asks for the number alone.
    if depth > 32 || unsafe { list(graph, core::ptr::null_mut(), &mut count) } != SUCCESS || count == 0 {
        return 0;
    }
    let mut nodes: Vec<*mut c_void> = Vec::new();
    if nodes.try_reserve_exact(count).is_err() {
        return 0;
    }
    nodes.resize(count, core::ptr::null_mut());
    // SAFETY: room for `count` nodes.
    if unsafe { list(graph, nodes.as_mut_ptr(), &mut count) } != SUCCESS {
        return 0;
    }
    nodes.truncate(count);
    nodes.into_iter().fold(0u64, |sum, node| {
        let mut which = u32::MAX;
        // SAFETY: a node of this graph, and a place for its type.
        if unsafe { kind(node, &mut which) } != SUCCESS {
            return sum;
        }
        sum.saturating_add(match which {
            NODE_MEM_ALLOC => bytes_of(node),
            NODE_GRAPH => inner(node).map_or(0, |inner| allocations(inner, depth + 1)),
            _ => 0,
        })
    })
}

fn bytes_of(node: *mut c_void) -> u64 {
    // SAFETY: plain numbers and null pointers.
    let mut node_parameters: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { core::mem::zeroed() };
    let Some(ask) = real::cuGraphMemAllocNodeGetParams() else { return 0 };
    // SAFETY: a node that allocates, and a place for its description.
    match unsafe { ask(node, &mut node_parameters) } {
        SUCCESS => node_parameters.bytes as u64,
        _ => 0,
    }
}

fn inner(node: *mut c_void) -> Option<*mut c_void> {
    let mut graph = core::ptr::null_mut();
    // SAFETY: a node that holds a graph, and a place for it.
    (unsafe { real::cuGraphChildGraphNodeGetGraph()?(node, &mut graph) } == SUCCESS).then_some(graph)
}
