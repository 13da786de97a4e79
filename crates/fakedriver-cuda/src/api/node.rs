//! Nodes of graphs: adding them, looking at them, changing them here and in what was instantiated.

use crate::abi::{
    Answer, CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1,
    CUgraphEdgeData, CUgraphNodeParams, CUkernelNodeAttrValue_v1, Error,
};
use crate::api::capture::edges;
use crate::call::{array, get, put};
use crate::graph::{Graph, type_of};
use crate::op::{Launch, Op};
use crate::process::{Locked, Process, enter};

/// Adds a node after others.
fn add(process: &mut Locked, place: *mut u64, graph: u64, after: &[(u64, CUgraphEdgeData)], op: Op) -> Answer {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let id = process.handle();
    process.graphs.add(id, graph, op, after)?;
    put(place, id)
}

fn add_plain(place: *mut u64, graph: u64, after: *const u64, count: usize, op: Op) -> Answer {
    let mut process = enter()?;
    let after = edges(after, std::ptr::null(), count)?;
    add(&mut process, place, graph, &after, op)
}

/// The unit of a context, or of the current one, or of the first device.
fn unit_of(process: &mut Process, context: u64) -> divvy_fakedriver::machine::Unit {
    let id = if context == 0 { crate::context::current().unwrap_or(0) } else { context };
    process.contexts.get(&id).map_or(process.devices[0].unit, |c| c.unit)
}

fn kernel(process: &mut Process, p: &CUDA_KERNEL_NODE_PARAMS_v2) -> Result<Op, Error> {
    let function = if p.function == 0 { p.kernel } else { p.function };
    let launch = Launch {
        function,
        grid: p.grid,
        block: p.block,
        shared: p.shared,
        cooperative: false,
        params: p.params as u64,
        extra: p.extra as u64,
        time: 0,
    };
    let unit = unit_of(process, p.context);
    Ok(Op::Kernel(launch.look(process, unit)?))
}

fn widen(p: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        function: p.function,
        grid: p.grid,
        block: p.block,
        shared: p.shared,
        params: p.params,
        extra: p.extra,
        kernel: 0,
        context: 0,
    }
}

pub(crate) fn cuGraphAddKernelNode_v2(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> Answer {
    let params = get(nodeParams)?;
    let op = kernel(&mut *enter()?, &params)?;
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, op)
}

pub(crate) fn cuGraphAddKernelNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    let params = widen(&get(nodeParams)?);
    cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &raw const params)
}

pub(crate) fn cuGraphAddMemcpyNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    copyParams: *const CUDA_MEMCPY3D_v2,
    ctx: u64,
) -> Answer {
    let copy = get(copyParams)?;
    enter()?.context(ctx)?;
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Copy(copy))
}

pub(crate) fn cuGraphAddMemsetNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    memsetParams: *const CUDA_MEMSET_NODE_PARAMS_v1,
    ctx: u64,
) -> Answer {
    let fill = get(memsetParams)?;
    enter()?.context(ctx)?;
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Fill(fill))
}

pub(crate) fn cuGraphAddHostNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    nodeParams: *const CUDA_HOST_NODE_PARAMS_v1,
) -> Answer {
    let host = get(nodeParams)?;
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Host { function: host.function, data: host.data })
}

pub(crate) fn cuGraphAddChildGraphNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    childGraph: u64,
) -> Answer {
    let mut process = enter()?;
    if hGraph == childGraph {
        return Err(Error::INVALID_VALUE);
    }
    process.graphs.graph(hGraph)?;
    let clone = process.clone_graph(childGraph)?;
    process.graphs.graph(clone)?.inner = true;
    let after = edges(dependencies, std::ptr::null(), numDependencies)?;
    add(&mut process, phGraphNode, hGraph, &after, Op::Child(clone))
}

pub(crate) fn cuGraphAddEmptyNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
) -> Answer {
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Empty)
}

fn known_event(event: u64) -> Answer {
    enter()?.events.get(event).map(drop).ok_or(Error::INVALID_HANDLE)
}

pub(crate) fn cuGraphAddEventRecordNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    event: u64,
) -> Answer {
    known_event(event)?;
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Record(event))
}

pub(crate) fn cuGraphAddEventWaitNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    event: u64,
) -> Answer {
    known_event(event)?;
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Await(event))
}

/// An allocation of a graph, with its address filled in.
fn allocation(process: &mut Process, params: &mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Op, Error> {
    const PINNED: u32 = 1;
    const DEVICE: u32 = 1;
    let pool = params.pool;
    if pool.kind != PINNED || pool.location.kind != DEVICE || pool.handle_types != 0 || params.bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let device = usize::try_from(pool.location.id).map_err(|_| Error::INVALID_VALUE)?;
    let unit = process.devices.get(device).ok_or(Error::INVALID_VALUE)?.unit;
    if params.bytes as u64 > process.machine.usable(unit) {
        return Err(Error::OUT_OF_MEMORY);
    }
    params.address = process.memory.graph_address(params.bytes as u64)?;
    Ok(Op::Allocate { unit, address: params.address, bytes: params.bytes as u64 })
}

pub(crate) fn cuGraphAddMemAllocNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Answer {
    let mut params = get(nodeParams)?;
    let mut process = enter()?;
    process.graphs.graph(hGraph)?;
    let op = allocation(&mut process, &mut params)?;
    let after = edges(dependencies, std::ptr::null(), numDependencies)?;
    add(&mut process, phGraphNode, hGraph, &after, op)?;
    put(nodeParams, params)
}

pub(crate) fn cuGraphAddMemFreeNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    dptr: u64,
) -> Answer {
    if dptr == 0 {
        return Err(Error::INVALID_VALUE);
    }
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Free(dptr))
}

pub(crate) fn cuGraphAddBatchMemOpNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Answer {
    let params = get(nodeParams)?;
    enter()?.context(params.context)?;
    let operations = array(params.operations, params.count as usize)?;
    add_plain(phGraphNode, hGraph, dependencies, numDependencies, Op::Words(operations))
}

/// A node of any type from its union of parameters; some of them get something back.
fn any(process: &mut Process, params: &mut CUgraphNodeParams) -> Result<Op, Error> {
    let words = params.words.as_mut_ptr();
    // SAFETY: the union is large and aligned enough for the parameters of each type (checked against cuda.h by its size).
    unsafe {
        Ok(match params.kind {
            0 => kernel(process, &words.cast::<CUDA_KERNEL_NODE_PARAMS_v2>().read())?,
            // Flags and a context stand in front of the copy.
            1 => Op::Copy(words.add(2).cast::<CUDA_MEMCPY3D_v2>().read()),
            2 => Op::Fill(words.cast::<CUDA_MEMSET_NODE_PARAMS_v1>().read()),
            3 => Op::Host { function: words.read(), data: words.add(1).read() },
            4 => {
                let clone = process.clone_graph(words.read())?;
                process.graphs.graph(clone)?.inner = true;
                Op::Child(clone)
            }
            5 => Op::Empty,
            6 => Op::Await(words.read()),
            7 => Op::Record(words.read()),
            10 => {
                let mut inner = words.cast::<CUDA_MEM_ALLOC_NODE_PARAMS>().read();
                let op = allocation(process, &mut inner)?;
                words.cast::<CUDA_MEM_ALLOC_NODE_PARAMS>().write(inner);
                op
            }
            11 => Op::Free(words.read()),
            12 => {
                let inner = words.cast::<CUDA_BATCH_MEM_OP_NODE_PARAMS>().read();
                Op::Words(array(inner.operations, inner.count as usize)?)
            }
            13 => conditional(process, words)?,
            _ => return Err(Error::INVALID_VALUE),
        })
    }
}

/// A conditional node: handle, type and count of bodies, a place for the bodies.
unsafe fn conditional(process: &mut Process, words: *mut u64) -> Result<Op, Error> {
    // SAFETY: the caller passes the union of a node's parameters.
    let (handle, kind_and_size) = unsafe { (words.read(), words.add(1).read()) };
    let (kind, size) = (kind_and_size as u32, (kind_and_size >> 32) as usize);
    if kind > 2 || size == 0 || size > 64 {
        return Err(Error::INVALID_VALUE);
    }
    let mut bodies = Vec::new();
    for _ in 0..size {
        let id = process.handle();
        process.graphs.graphs.insert(id, Graph { inner: true, ..Graph::default() });
        bodies.push(id);
    }
    // The driver answers an array that stays as long as the node.
    let told: &'static mut [u64] = Box::leak(bodies.clone().into_boxed_slice());
    // SAFETY: the third word of the parameters is where the bodies are told.
    unsafe { words.add(2).write(told.as_ptr() as u64) };
    Ok(Op::Conditional { handle, kind, bodies })
}

pub(crate) fn cuGraphAddNode_v2(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
) -> Answer {
    let mut params = get(nodeParams)?;
    let mut process = enter()?;
    process.graphs.graph(hGraph)?;
    let op = any(&mut process, &mut params)?;
    let after = edges(dependencies, dependencyData, numDependencies)?;
    add(&mut process, phGraphNode, hGraph, &after, op)?;
    put(nodeParams, params)
}

pub(crate) fn cuGraphAddNode(
    phGraphNode: *mut u64,
    hGraph: u64,
    dependencies: *const u64,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
) -> Answer {
    cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, std::ptr::null(), numDependencies, nodeParams)
}

/// Changes what a node does; its type stays.
fn change(node: u64, op: Op) -> Answer {
    let mut process = enter()?;
    let known = process.graphs.node(node)?;
    if type_of(&known.op) != type_of(&op) {
        return Err(Error::INVALID_VALUE);
    }
    known.op = op;
    Ok(())
}

/// The same in what was instantiated.
fn change_exec(exec: u64, node: u64, op: Op) -> Answer {
    let mut process = enter()?;
    let known = process.graphs.exec(exec)?.nodes.iter_mut().find(|n| n.id == node).ok_or(Error::INVALID_VALUE)?;
    if type_of(&known.op) != type_of(&op) {
        return Err(Error::INVALID_VALUE);
    }
    known.op = op;
    Ok(())
}

pub(crate) fn cuGraphNodeSetParams(hNode: u64, nodeParams: *mut CUgraphNodeParams) -> Answer {
    let mut params = get(nodeParams)?;
    let op = any(&mut *enter()?, &mut params)?;
    change(hNode, op)
}

pub(crate) fn cuGraphExecNodeSetParams(hGraphExec: u64, hNode: u64, nodeParams: *mut CUgraphNodeParams) -> Answer {
    let mut params = get(nodeParams)?;
    let op = any(&mut *enter()?, &mut params)?;
    change_exec(hGraphExec, hNode, op)
}

pub(crate) fn cuGraphNodeGetType(hNode: u64, kind: *mut u32) -> Answer {
    let mut process = enter()?;
    put(kind, type_of(&process.graphs.node(hNode)?.op))
}

pub(crate) fn cuGraphKernelNodeGetParams_v2(hNode: u64, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v2) -> Answer {
    let mut process = enter()?;
    let Op::Kernel(launch) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    let params = CUDA_KERNEL_NODE_PARAMS_v2 {
        function: launch.function,
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        params: launch.params as *mut _,
        extra: launch.extra as *mut _,
        kernel: 0,
        context: 0,
    };
    put(nodeParams, params)
}

pub(crate) fn cuGraphKernelNodeGetParams(hNode: u64, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> Answer {
    let mut wide = std::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS_v2>::uninit();
    cuGraphKernelNodeGetParams_v2(hNode, wide.as_mut_ptr())?;
    // SAFETY: the call above succeeded and wrote it.
    let p = unsafe { wide.assume_init() };
    let params = CUDA_KERNEL_NODE_PARAMS_v1 {
        function: p.function,
        grid: p.grid,
        block: p.block,
        shared: p.shared,
        params: p.params,
        extra: p.extra,
    };
    put(nodeParams, params)
}

pub(crate) fn cuGraphKernelNodeSetParams_v2(hNode: u64, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v2) -> Answer {
    let params = get(nodeParams)?;
    let op = kernel(&mut *enter()?, &params)?;
    change(hNode, op)
}

pub(crate) fn cuGraphKernelNodeSetParams(hNode: u64, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Answer {
    let params = widen(&get(nodeParams)?);
    cuGraphKernelNodeSetParams_v2(hNode, &raw const params)
}

pub(crate) fn cuGraphExecKernelNodeSetParams_v2(
    hGraphExec: u64,
    hNode: u64,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> Answer {
    let params = get(nodeParams)?;
    let op = kernel(&mut *enter()?, &params)?;
    change_exec(hGraphExec, hNode, op)
}

pub(crate) fn cuGraphExecKernelNodeSetParams(
    hGraphExec: u64,
    hNode: u64,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    let params = widen(&get(nodeParams)?);
    cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &raw const params)
}

pub(crate) fn cuGraphKernelNodeGetAttribute(hNode: u64, attr: u32, value_out: *mut CUkernelNodeAttrValue_v1) -> Answer {
    let mut process = enter()?;
    let Op::Kernel(launch) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    const COOPERATIVE: u32 = 2;
    let mut value = [0; 8];
    if attr == COOPERATIVE {
        value[0] = launch.cooperative.into();
    }
    put(value_out, CUkernelNodeAttrValue_v1 { value })
}

pub(crate) fn cuGraphKernelNodeSetAttribute(hNode: u64, attr: u32, value: *const CUkernelNodeAttrValue_v1) -> Answer {
    let mut process = enter()?;
    let wanted = get(value)?;
    let Op::Kernel(launch) = &mut process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    const COOPERATIVE: u32 = 2;
    if attr == COOPERATIVE {
        launch.cooperative = wanted.value[0] as u32 != 0;
    }
    Ok(())
}

pub(crate) fn cuGraphKernelNodeCopyAttributes(dst: u64, src: u64) -> Answer {
    let mut process = enter()?;
    let Op::Kernel(source) = process.graphs.node(src)?.op else { return Err(Error::INVALID_VALUE) };
    let Op::Kernel(target) = &mut process.graphs.node(dst)?.op else { return Err(Error::INVALID_VALUE) };
    target.cooperative = source.cooperative;
    Ok(())
}

pub(crate) fn cuGraphMemcpyNodeGetParams(hNode: u64, nodeParams: *mut CUDA_MEMCPY3D_v2) -> Answer {
    let mut process = enter()?;
    let Op::Copy(copy) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    put(nodeParams, copy)
}

pub(crate) fn cuGraphMemcpyNodeSetParams(hNode: u64, nodeParams: *const CUDA_MEMCPY3D_v2) -> Answer {
    change(hNode, Op::Copy(get(nodeParams)?))
}

pub(crate) fn cuGraphExecMemcpyNodeSetParams(
    hGraphExec: u64,
    hNode: u64,
    copyParams: *const CUDA_MEMCPY3D_v2,
    _ctx: u64,
) -> Answer {
    change_exec(hGraphExec, hNode, Op::Copy(get(copyParams)?))
}

pub(crate) fn cuGraphMemsetNodeGetParams(hNode: u64, nodeParams: *mut CUDA_MEMSET_NODE_PARAMS_v1) -> Answer {
    let mut process = enter()?;
    let Op::Fill(fill) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    put(nodeParams, fill)
}

pub(crate) fn cuGraphMemsetNodeSetParams(hNode: u64, nodeParams: *const CUDA_MEMSET_NODE_PARAMS_v1) -> Answer {
    change(hNode, Op::Fill(get(nodeParams)?))
}

pub(crate) fn cuGraphExecMemsetNodeSetParams(
    hGraphExec: u64,
    hNode: u64,
    memsetParams: *const CUDA_MEMSET_NODE_PARAMS_v1,
    _ctx: u64,
) -> Answer {
    change_exec(hGraphExec, hNode, Op::Fill(get(memsetParams)?))
}

pub(crate) fn cuGraphHostNodeGetParams(hNode: u64, nodeParams: *mut CUDA_HOST_NODE_PARAMS_v1) -> Answer {
    let mut process = enter()?;
    let Op::Host { function, data } = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    put(nodeParams, CUDA_HOST_NODE_PARAMS_v1 { function, data })
}

pub(crate) fn cuGraphHostNodeSetParams(hNode: u64, nodeParams: *const CUDA_HOST_NODE_PARAMS_v1) -> Answer {
    let host = get(nodeParams)?;
    change(hNode, Op::Host { function: host.function, data: host.data })
}

pub(crate) fn cuGraphExecHostNodeSetParams(
    hGraphExec: u64,
    hNode: u64,
    nodeParams: *const CUDA_HOST_NODE_PARAMS_v1,
) -> Answer {
    let host = get(nodeParams)?;
    change_exec(hGraphExec, hNode, Op::Host { function: host.function, data: host.data })
}

pub(crate) fn cuGraphChildGraphNodeGetGraph(hNode: u64, phGraph: *mut u64) -> Answer {
    let mut process = enter()?;
    let Op::Child(graph) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    put(phGraph, graph)
}

pub(crate) fn cuGraphExecChildGraphNodeSetParams(hGraphExec: u64, hNode: u64, childGraph: u64) -> Answer {
    let clone = {
        let mut process = enter()?;
        let clone = process.clone_graph(childGraph)?;
        process.graphs.graph(clone)?.inner = true;
        clone
    };
    change_exec(hGraphExec, hNode, Op::Child(clone))
}

pub(crate) fn cuGraphEventRecordNodeGetEvent(hNode: u64, event_out: *mut u64) -> Answer {
    let mut process = enter()?;
    let Op::Record(event) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    put(event_out, event)
}

pub(crate) fn cuGraphEventRecordNodeSetEvent(hNode: u64, event: u64) -> Answer {
    known_event(event)?;
    change(hNode, Op::Record(event))
}

pub(crate) fn cuGraphExecEventRecordNodeSetEvent(hGraphExec: u64, hNode: u64, event: u64) -> Answer {
    known_event(event)?;
    change_exec(hGraphExec, hNode, Op::Record(event))
}

pub(crate) fn cuGraphEventWaitNodeGetEvent(hNode: u64, event_out: *mut u64) -> Answer {
    let mut process = enter()?;
    let Op::Await(event) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    put(event_out, event)
}

pub(crate) fn cuGraphEventWaitNodeSetEvent(hNode: u64, event: u64) -> Answer {
    known_event(event)?;
    change(hNode, Op::Await(event))
}

pub(crate) fn cuGraphExecEventWaitNodeSetEvent(hGraphExec: u64, hNode: u64, event: u64) -> Answer {
    known_event(event)?;
    change_exec(hGraphExec, hNode, Op::Await(event))
}

pub(crate) fn cuGraphMemAllocNodeGetParams(hNode: u64, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Answer {
    let mut process = enter()?;
    let Op::Allocate { unit, address, bytes } = process.graphs.node(hNode)?.op else {
        return Err(Error::INVALID_VALUE);
    };
    let device = process.devices.iter().position(|d| d.unit == unit).unwrap_or(0);
    // SAFETY: all-zero is a valid value of a structure of numbers.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    (params.pool.kind, params.pool.location.kind) = (1, 1);
    params.pool.location.id = i32::try_from(device).unwrap_or(0);
    (params.bytes, params.address) = (bytes as usize, address);
    put(params_out, params)
}

pub(crate) fn cuGraphMemFreeNodeGetParams(hNode: u64, dptr_out: *mut u64) -> Answer {
    let mut process = enter()?;
    let Op::Free(address) = process.graphs.node(hNode)?.op else { return Err(Error::INVALID_VALUE) };
    put(dptr_out, address)
}

pub(crate) fn cuGraphBatchMemOpNodeSetParams(hNode: u64, nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Answer {
    let params = get(nodeParams)?;
    change(hNode, Op::Words(array(params.operations, params.count as usize)?))
}

pub(crate) fn cuGraphExecBatchMemOpNodeSetParams(
    hGraphExec: u64,
    hNode: u64,
    nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Answer {
    let params = get(nodeParams)?;
    change_exec(hGraphExec, hNode, Op::Words(array(params.operations, params.count as usize)?))
}

pub(crate) fn cuGraphNodeSetEnabled(hGraphExec: u64, hNode: u64, isEnabled: u32) -> Answer {
    let mut process = enter()?;
    let node = process.graphs.exec(hGraphExec)?.nodes.iter_mut().find(|n| n.id == hNode).ok_or(Error::INVALID_VALUE)?;
    if !matches!(node.op, Op::Kernel(_) | Op::Copy(_) | Op::Fill(_)) {
        return Err(Error::INVALID_VALUE);
    }
    node.enabled = isEnabled != 0;
    Ok(())
}

pub(crate) fn cuGraphNodeGetEnabled(hGraphExec: u64, hNode: u64, isEnabled: *mut u32) -> Answer {
    let mut process = enter()?;
    let node = process.graphs.exec(hGraphExec)?.nodes.iter().find(|n| n.id == hNode).ok_or(Error::INVALID_VALUE)?;
    put(isEnabled, node.enabled.into())
}
