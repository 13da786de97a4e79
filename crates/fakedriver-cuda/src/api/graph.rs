//! Graphs as a whole: their life, their edges, instantiation, launch and update.

use std::ffi::c_char;

use crate::abi::{Answer, CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphEdgeData, CUgraphExecUpdateResultInfo, Error};
use crate::api::capture::edges;
use crate::api::device::on_device;
use crate::call::{array, get, offer, put, text};
use crate::graph::{Graph, Object, PLAIN_EDGE, type_of};
use crate::memory::On;
use crate::op::Op;
use crate::process::{self, Process, enter};

pub(crate) fn cuGraphCreate(phGraph: *mut u64, flags: u32) -> Answer {
    let mut process = enter()?;
    if phGraph.is_null() || flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    process.graphs.graphs.insert(id, Graph::default());
    put(phGraph, id)
}

pub(crate) fn cuGraphDestroy(hGraph: u64) -> Answer {
    let mut process = enter()?;
    if process.graphs.graph(hGraph)?.inner {
        return Err(Error::INVALID_VALUE);
    }
    let objects = process.graphs.destroy(hGraph)?;
    for (object, count) in objects {
        release(&mut process, object, count)?;
    }
    Ok(())
}

pub(crate) fn cuGraphClone(phGraphClone: *mut u64, originalGraph: u64) -> Answer {
    let mut process = enter()?;
    if phGraphClone.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.clone_graph(originalGraph)?;
    put(phGraphClone, id)
}

pub(crate) fn cuGraphNodeFindInClone(phNode: *mut u64, hOriginalNode: u64, hClonedGraph: u64) -> Answer {
    let mut process = enter()?;
    let found = process.graphs.graph(hClonedGraph)?.clone_of.get(&hOriginalNode).copied();
    put(phNode, found.ok_or(Error::INVALID_VALUE)?)
}

/// Tells a list by the driver's rule: without a place only the count, else as many as fit, the rest zero.
pub(crate) fn tell<T: Copy>(place: *mut T, count: *mut usize, items: &[T], zero: T) -> Answer {
    let room = get(count)?;
    if !place.is_null() {
        for i in 0..room {
            // SAFETY: the program has room for that many.
            put(unsafe { place.add(i) }, items.get(i).copied().unwrap_or(zero))?;
        }
        return put(count, room.min(items.len()));
    }
    put(count, items.len())
}

pub(crate) fn cuGraphGetNodes(hGraph: u64, nodes: *mut u64, numNodes: *mut usize) -> Answer {
    let mut process = enter()?;
    let list = process.graphs.graph(hGraph)?.nodes.clone();
    tell(nodes, numNodes, &list, 0)
}

pub(crate) fn cuGraphGetRootNodes(hGraph: u64, rootNodes: *mut u64, numRootNodes: *mut usize) -> Answer {
    let mut process = enter()?;
    let graph = process.graphs.graph(hGraph)?;
    let roots: Vec<u64> =
        graph.nodes.iter().copied().filter(|n| !graph.edges.iter().any(|(_, to, _)| to == n)).collect();
    tell(rootNodes, numRootNodes, &roots, 0)
}

pub(crate) fn cuGraphGetEdges_v2(
    hGraph: u64,
    from: *mut u64,
    to: *mut u64,
    edgeData: *mut CUgraphEdgeData,
    numEdges: *mut usize,
) -> Answer {
    let mut process = enter()?;
    let list = process.graphs.graph(hGraph)?.edges.clone();
    if from.is_null() != to.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let room = get(numEdges)?;
    let (mut a, mut b) = (room, room);
    tell(from, &raw mut a, &list.iter().map(|e| e.0).collect::<Vec<_>>(), 0)?;
    if !edgeData.is_null() {
        tell(edgeData, &raw mut b, &list.iter().map(|e| e.2).collect::<Vec<_>>(), PLAIN_EDGE)?;
    }
    tell(to, numEdges, &list.iter().map(|e| e.1).collect::<Vec<_>>(), 0)
}

pub(crate) fn cuGraphGetEdges(hGraph: u64, from: *mut u64, to: *mut u64, numEdges: *mut usize) -> Answer {
    cuGraphGetEdges_v2(hGraph, from, to, std::ptr::null_mut(), numEdges)
}

/// Neighbours of a node: those before it, or those after.
fn neighbours(node: u64, before: bool, place: *mut u64, data: *mut CUgraphEdgeData, count: *mut usize) -> Answer {
    let mut process = enter()?;
    let owner = process.graphs.node(node)?.graph;
    let graph = process.graphs.graph(owner)?;
    let list: Vec<(u64, CUgraphEdgeData)> = graph
        .edges
        .iter()
        .filter(|(from, to, _)| if before { *to == node } else { *from == node })
        .map(|(from, to, data)| (if before { *from } else { *to }, *data))
        .collect();
    if !data.is_null() {
        let mut room = get(count)?;
        tell(data, &raw mut room, &list.iter().map(|e| e.1).collect::<Vec<_>>(), PLAIN_EDGE)?;
    }
    tell(place, count, &list.iter().map(|e| e.0).collect::<Vec<_>>(), 0)
}

pub(crate) fn cuGraphNodeGetDependencies(hNode: u64, dependencies: *mut u64, numDependencies: *mut usize) -> Answer {
    neighbours(hNode, true, dependencies, std::ptr::null_mut(), numDependencies)
}

pub(crate) fn cuGraphNodeGetDependencies_v2(
    hNode: u64,
    dependencies: *mut u64,
    edgeData: *mut CUgraphEdgeData,
    numDependencies: *mut usize,
) -> Answer {
    neighbours(hNode, true, dependencies, edgeData, numDependencies)
}

pub(crate) fn cuGraphNodeGetDependentNodes(
    hNode: u64,
    dependentNodes: *mut u64,
    numDependentNodes: *mut usize,
) -> Answer {
    neighbours(hNode, false, dependentNodes, std::ptr::null_mut(), numDependentNodes)
}

pub(crate) fn cuGraphNodeGetDependentNodes_v2(
    hNode: u64,
    dependentNodes: *mut u64,
    edgeData: *mut CUgraphEdgeData,
    numDependentNodes: *mut usize,
) -> Answer {
    neighbours(hNode, false, dependentNodes, edgeData, numDependentNodes)
}

pub(crate) fn cuGraphAddDependencies_v2(
    hGraph: u64,
    from: *const u64,
    to: *const u64,
    edgeData: *const CUgraphEdgeData,
    numDependencies: usize,
) -> Answer {
    let mut process = enter()?;
    let (from, to) = (edges(from, edgeData, numDependencies)?, array(to, numDependencies)?);
    for ((a, data), b) in from.into_iter().zip(to) {
        let graph = process.graphs.graph(hGraph)?;
        let known = graph.nodes.contains(&a) && graph.nodes.contains(&b);
        let twice = graph.edges.iter().any(|(f, t, _)| (*f, *t) == (a, b));
        // Circles are found when the graph is made executable.
        if !known || twice || a == b {
            return Err(Error::INVALID_VALUE);
        }
        process.graphs.graph(hGraph)?.edges.push((a, b, data));
    }
    Ok(())
}

pub(crate) fn cuGraphAddDependencies(hGraph: u64, from: *const u64, to: *const u64, numDependencies: usize) -> Answer {
    cuGraphAddDependencies_v2(hGraph, from, to, std::ptr::null(), numDependencies)
}

pub(crate) fn cuGraphRemoveDependencies_v2(
    hGraph: u64,
    from: *const u64,
    to: *const u64,
    _edgeData: *const CUgraphEdgeData,
    numDependencies: usize,
) -> Answer {
    let mut process = enter()?;
    let (from, to) = (array(from, numDependencies)?, array(to, numDependencies)?);
    for pair in from.into_iter().zip(to) {
        let graph = process.graphs.graph(hGraph)?;
        let before = graph.edges.len();
        graph.edges.retain(|(f, t, _)| (*f, *t) != pair);
        if graph.edges.len() == before {
            return Err(Error::INVALID_VALUE);
        }
    }
    Ok(())
}

pub(crate) fn cuGraphRemoveDependencies(
    hGraph: u64,
    from: *const u64,
    to: *const u64,
    numDependencies: usize,
) -> Answer {
    cuGraphRemoveDependencies_v2(hGraph, from, to, std::ptr::null(), numDependencies)
}

pub(crate) fn cuGraphDestroyNode(hNode: u64) -> Answer {
    let mut process = enter()?;
    let owner = process.graphs.node(hNode)?.graph;
    if matches!(process.graphs.node(hNode)?.op, Op::Allocate { .. } | Op::Free(_)) {
        return Err(Error::NOT_SUPPORTED);
    }
    process.graphs.nodes.remove(&hNode);
    let graph = process.graphs.graph(owner)?;
    graph.nodes.retain(|n| *n != hNode);
    graph.edges.retain(|(f, t, _)| *f != hNode && *t != hNode);
    Ok(())
}

/// The flags of instantiation that exist.
const FLAGS: u64 = 0xf;

fn instantiate(place: *mut u64, graph: u64, flags: u64) -> Result<u64, Error> {
    let mut process = enter()?;
    if place.is_null() || flags & !FLAGS != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let exec = process.graphs.instantiate(graph, flags)?;
    let id = process.handle();
    process.graphs.execs.insert(id, exec);
    put(place, id)?;
    Ok(id)
}

pub(crate) fn cuGraphInstantiateWithFlags(phGraphExec: *mut u64, hGraph: u64, flags: u64) -> Answer {
    instantiate(phGraphExec, hGraph, flags).map(drop)
}

pub(crate) fn cuGraphInstantiate_v2(
    phGraphExec: *mut u64,
    hGraph: u64,
    phErrorNode: *mut u64,
    logBuffer: *mut c_char,
    bufferSize: usize,
) -> Answer {
    offer(phErrorNode, 0);
    if bufferSize > 0 {
        offer(logBuffer, 0);
    }
    instantiate(phGraphExec, hGraph, 0).map(drop)
}

pub(crate) fn cuGraphInstantiateWithParams(
    phGraphExec: *mut u64,
    hGraph: u64,
    instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Answer {
    let mut params = get(instantiateParams)?;
    const UPLOAD: u64 = 2;
    let outcome = instantiate(phGraphExec, hGraph, params.flags);
    (params.node, params.result) = (0, if outcome.is_ok() { 0 } else { 1 });
    put(instantiateParams, params)?;
    let id = outcome?;
    if params.flags & UPLOAD != 0 { cuGraphUpload(id, params.stream) } else { Ok(()) }
}

pub(crate) fn cuGraphExecDestroy(hGraphExec: u64) -> Answer {
    let mut process = enter()?;
    process.graphs.execs.remove(&hGraphExec).map(drop).ok_or(Error::INVALID_VALUE)
}

pub(crate) fn cuGraphExecGetFlags(hGraphExec: u64, flags: *mut u64) -> Answer {
    let mut process = enter()?;
    put(flags, process.graphs.exec(hGraphExec)?.flags)
}

pub(crate) fn cuGraphUpload(hGraphExec: u64, hStream: u64) -> Answer {
    let mut process = enter()?;
    process.resolve_stream(hStream)?;
    process.graphs.exec(hGraphExec).map(drop)
}

impl Process {
    /// The operations a launch does, graphs inside spread out.
    fn flat(&self, ops: Vec<Op>) -> Vec<Op> {
        ops.into_iter()
            .flat_map(|op| match op {
                Op::Child(graph) => self.flat(self.graphs.ordered_ops(graph)),
                other => vec![other],
            })
            .collect()
    }

    /// Launches: memory first, so that a graph that does not fit does nothing at all.
    fn launch_graph(&mut self, exec: u64, stream: u64) -> Answer {
        const AUTO_FREE: u64 = 1;
        let known = self.graphs.exec(exec)?;
        let auto_free = known.flags & AUTO_FREE != 0;
        let ops: Vec<Op> = known.nodes.iter().filter(|n| n.enabled).map(|n| n.op.clone()).collect();
        let ops = self.flat(ops);
        let context = self.engine.stream(stream).ok_or(Error::INVALID_HANDLE)?.context;
        let (machine, seat) = (self.machine, self.seat);
        let mut taken = Vec::new();
        for op in &ops {
            let Op::Allocate { unit, address, bytes } = op else { continue };
            if auto_free && self.memory.is_live(*address) {
                self.memory.free_graph_allocation(*address)?;
            }
            let on = On { machine, seat: &seat, unit: *unit, context };
            if let Err(error) = self.memory.allocate_for_graph(&on, *address, *bytes) {
                for address in taken {
                    self.memory.free_graph_allocation(address)?;
                }
                return Err(error);
            }
            taken.push(*address);
        }
        for op in ops.iter().filter(|op| !matches!(op, Op::Allocate { .. })) {
            self.perform(stream, op)?;
        }
        Ok(())
    }

    pub(crate) fn clone_graph(&mut self, graph: u64) -> Result<u64, Error> {
        let mut graphs = std::mem::take(&mut self.graphs);
        let outcome = graphs.clone_graph(graph, &mut || self.handle());
        self.graphs = graphs;
        outcome
    }
}

pub(crate) fn cuGraphLaunch(hGraphExec: u64, hStream: u64) -> Answer {
    let mut process = enter()?;
    let id = process.resolve_stream(hStream)?;
    process.graphs.exec(hGraphExec)?;
    if process.graphs.capture_of(id).is_some() {
        // Captured, it is a graph inside the graph.
        let ops: Vec<Op> = process.graphs.exec(hGraphExec)?.nodes.iter().map(|n| n.op.clone()).collect();
        let inner = process.handle();
        process.graphs.graphs.insert(inner, Graph { inner: true, ..Graph::default() });
        let mut before = Vec::new();
        for op in ops {
            let node = process.handle();
            process.graphs.add(node, inner, op, &before)?;
            before = vec![(node, PLAIN_EDGE)];
        }
        return process.enqueue(id, Op::Child(inner));
    }
    if process.graphs.has_captures() {
        process.guard_legacy(id)?;
    }
    process.launch_graph(hGraphExec, id)
}

pub(crate) fn cuGraphExecUpdate_v2(
    hGraphExec: u64,
    hGraph: u64,
    resultInfo: *mut CUgraphExecUpdateResultInfo,
) -> Answer {
    let mut process = enter()?;
    let fresh = process.graphs.instantiate(hGraph, 0)?;
    let old = process.graphs.exec(hGraphExec)?;
    const TOPOLOGY_CHANGED: u32 = 2;
    const TYPE_CHANGED: u32 = 3;
    let place = |nodes: &[crate::graph::ExecNode], id: u64| nodes.iter().position(|n| n.id == id);
    let shape = |e: &crate::graph::Exec| {
        let mut pairs: Vec<_> = e.edges.iter().map(|(f, t)| (place(&e.nodes, *f), place(&e.nodes, *t))).collect();
        pairs.sort_unstable();
        pairs
    };
    let verdict = if old.nodes.len() != fresh.nodes.len() || shape(old) != shape(&fresh) {
        TOPOLOGY_CHANGED
    } else if old.nodes.iter().zip(&fresh.nodes).any(|(a, b)| type_of(&a.op) != type_of(&b.op)) {
        TYPE_CHANGED
    } else {
        0
    };
    offer(resultInfo, CUgraphExecUpdateResultInfo { result: verdict, node: 0, from: 0 });
    if verdict != 0 {
        return Err(Error::GRAPH_EXEC_UPDATE_FAILURE);
    }
    for (a, b) in old.nodes.iter_mut().zip(fresh.nodes) {
        (a.op, a.id) = (b.op, b.id);
    }
    old.edges = fresh.edges;
    Ok(())
}

pub(crate) fn cuGraphExecUpdate(
    hGraphExec: u64,
    hGraph: u64,
    hErrorNode_out: *mut u64,
    updateResult_out: *mut u32,
) -> Answer {
    let mut info = CUgraphExecUpdateResultInfo { result: 0, node: 0, from: 0 };
    let outcome = cuGraphExecUpdate_v2(hGraphExec, hGraph, &raw mut info);
    offer(hErrorNode_out, info.node);
    offer(updateResult_out, info.result);
    outcome
}

pub(crate) fn cuGraphDebugDotPrint(hGraph: u64, path: *const c_char, _flags: u32) -> Answer {
    let mut process = enter()?;
    let path = text(path).ok_or(Error::INVALID_VALUE)?;
    let edges = process.graphs.graph(hGraph)?.edges.clone();
    let lines: Vec<String> = edges.iter().map(|(f, t, _)| format!("  \"{f:x}\" -> \"{t:x}\";")).collect();
    std::fs::write(path, format!("digraph graph_{hGraph:x} {{\n{}\n}}\n", lines.join("\n"))).map_err(|_| Error(304))
}

pub(crate) fn cuDeviceGetGraphMemAttribute(device: i32, attr: u32, value: *mut core::ffi::c_void) -> Answer {
    let (process, _, unit) = on_device(device)?;
    let held = process.memory.graph.get(&unit).copied().unwrap_or_default();
    let number = match attr {
        0 => held.used,
        1 => held.used_high,
        2 => held.reserved,
        3 => held.reserved_high,
        _ => return Err(Error::INVALID_VALUE),
    };
    put(value.cast::<u64>(), number)
}

pub(crate) fn cuDeviceSetGraphMemAttribute(device: i32, attr: u32, value: *mut core::ffi::c_void) -> Answer {
    let (mut process, _, unit) = on_device(device)?;
    let zero = get(value.cast::<u64>())? == 0;
    let held = process.memory.graph.entry(unit).or_default();
    match attr {
        // High-water marks can only be reset.
        1 if zero => held.used_high = held.used,
        3 if zero => held.reserved_high = held.reserved,
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn cuDeviceGraphMemTrim(device: i32) -> Answer {
    let (mut process, _, unit) = on_device(device)?;
    process.step(divvy_fakedriver::sys::now());
    let (machine, seat) = (process.machine, process.seat);
    process.memory.trim_graph_memory(&On { machine, seat: &seat, unit, context: 0 }, unit);
    Ok(())
}

pub(crate) fn cuUserObjectCreate(
    object_out: *mut u64,
    ptr: *mut core::ffi::c_void,
    destroy: u64,
    initialRefcount: u32,
    flags: u32,
) -> Answer {
    let mut process = enter()?;
    const NO_DESTRUCTOR_SYNC: u32 = 1;
    if object_out.is_null() || destroy == 0 || initialRefcount == 0 || flags != NO_DESTRUCTOR_SYNC {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    process.graphs.objects.insert(id, Object { pointer: ptr as u64, destroy, references: initialRefcount });
    put(object_out, id)
}

pub(crate) fn cuUserObjectRetain(object: u64, count: u32) -> Answer {
    let mut process = enter()?;
    let known = process.graphs.objects.get_mut(&object).filter(|_| count > 0).ok_or(Error::INVALID_VALUE)?;
    known.references += count;
    Ok(())
}

/// Gives references up; with the last one the program's function is called.
fn release(process: &mut Process, object: u64, count: u32) -> Answer {
    let known = process
        .graphs
        .objects
        .get_mut(&object)
        .filter(|o| count > 0 && o.references >= count)
        .ok_or(Error::INVALID_VALUE)?;
    known.references -= count;
    if known.references == 0
        && let Some(gone) = process.graphs.objects.remove(&object)
    {
        process.engine.calls.push_back((0, gone.destroy, gone.pointer, None));
        process::wake_caller();
    }
    Ok(())
}

pub(crate) fn cuUserObjectRelease(object: u64, count: u32) -> Answer {
    release(&mut *enter()?, object, count)
}

pub(crate) fn cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) -> Answer {
    let mut process = enter()?;
    const MOVE: u32 = 1;
    process.graphs.graph(graph)?;
    let known =
        process.graphs.objects.get_mut(&object).filter(|_| count > 0 && flags <= MOVE).ok_or(Error::INVALID_VALUE)?;
    if flags != MOVE {
        known.references += count;
    }
    *process.graphs.graph(graph)?.objects.entry(object).or_default() += count;
    Ok(())
}

pub(crate) fn cuGraphReleaseUserObject(graph: u64, object: u64, count: u32) -> Answer {
    let mut process = enter()?;
    let held =
        process.graphs.graph(graph)?.objects.get_mut(&object).filter(|c| **c >= count).ok_or(Error::INVALID_VALUE)?;
    *held -= count;
    release(&mut process, object, count)
}

pub(crate) fn cuGraphConditionalHandleCreate(
    pHandle_out: *mut u64,
    hGraph: u64,
    ctx: u64,
    defaultLaunchValue: u32,
    flags: u32,
) -> Answer {
    let mut process = enter()?;
    process.graphs.graph(hGraph)?;
    process.context(ctx)?;
    const ASSIGN_DEFAULT: u32 = 1;
    let id = process.handle();
    process.graphs.conditions.insert(id, if flags & ASSIGN_DEFAULT != 0 { defaultLaunchValue } else { 0 });
    put(pHandle_out, id)
}
