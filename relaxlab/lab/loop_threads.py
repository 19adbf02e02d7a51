"""The threads of a loop function that is bound to them, run by the SIMT interpreter, as data: the
elements that each thread touches, their cost, and problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir import loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.lab.loop_run import Sizes, arguments
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.simt.access import Access, Cost, Site, costs
from relaxlab.runtime.simt.report import Geometry, LaunchReport, Problem, SimtReport, Triple
from relaxlab.runtime.simt.simt import simt_device_kernel
from relaxlab.schedule.tree import walk_stmts

BLOCKS = 4
"""Blocks of threads whose accesses are recorded, at most."""
MOST_COSTS = 1_000
"""Accesses of the first block whose costs are added up."""
MOST_TOUCHES = 60_000
"""Most touched elements that are stored, of all blocks and launches together."""


def is_bound(func: loops.PrimFunc) -> bool:
    """True if some loop is bound to blocks or threads."""
    return any(isinstance(s, loops.For) and s.thread is not None for s in walk_stmts(func.body))


def threads_state(
    func: loops.PrimFunc, sizes: Sizes, name: str, facts: Facts = CUDA
) -> dict[str, Any]:
    """Return the behaviour of a function's threads at these sizes, on the GPU of `facts`:
    `launches` and `problems`, or `error`.

    The first `BLOCKS` blocks that every launch has are recorded, each by a run of its own.
    """
    try:
        kernel = lower_launches(func, name, facts=facts)
        first = simt_device_kernel(func, kernel, arguments(func, sizes), (0, 0, 0))
        reports = [first]
        for block in _blocks(first):
            reports.append(simt_device_kernel(func, kernel, arguments(func, sizes), block))
    except (CodegenError, ExecutionError, ValueError) as error:
        return {"error": str(error), "launches": [], "problems": []}
    ran = [x for x in kernel.launches if x.name in {r.kernel for r in first.launches}]
    blocks = [(0, 0, 0), *_blocks(first)]
    share = MOST_TOUCHES // max(1, len(ran) * len(blocks))
    launches = [
        _launch_state(launch, [r.launches[number] for r in reports], blocks, sizes, share)
        for number, launch in enumerate(ran)
    ]
    return {
        "error": None,
        "launches": launches,
        "problems": [_problem_state(p) for p in first.problems],
    }


def _blocks(report: SimtReport) -> list[Triple]:
    """The blocks after the first that all launches have, at most `BLOCKS` - 1; none where the
    first block touches so much that not all of it is kept."""
    touches = sum(len(a.threads) for launch in report.launches for a in _seen(launch))
    if not report.launches or touches > MOST_TOUCHES:
        return []
    grids = [r.geometry.grid for r in report.launches]
    common = Geometry(
        (min(g[0] for g in grids), min(g[1] for g in grids), min(g[2] for g in grids)), (1, 1, 1)
    )
    return [common.thread(n).block for n in range(1, min(BLOCKS, common.blocks))]


def _launch_state(
    launch: Launch, reports: Sequence[LaunchReport], blocks: Sequence[Triple], sizes: Sizes,
    share: int,
) -> dict[str, Any]:  # fmt: skip
    """One launch, with `share` touched elements of each block."""
    geometry = reports[0].geometry
    buffers: list[loops.Buffer] = []
    sites: list[Site] = []
    touched: list[dict[str, Any]] = []
    cut = 0
    for block, report in zip(blocks, reports, strict=True):
        accesses: list[dict[str, Any]] = []
        used = 0
        for access in _seen(report):
            used += len(access.threads)
            if used > share:
                cut += 1
                continue
            accesses.append(_access_state(access, _number(sites, access.site)))
            _number(buffers, access.site.buffer)
        touched.append({"block": list(block), "accesses": accesses})
    paid = costs(_seen(reports[0])[:MOST_COSTS])
    return {
        "name": launch.name, "grid": list(geometry.grid), "threads": list(geometry.block),
        "barriers": reports[0].barriers,
        "buffers": [_buffer_state(b, sizes) for b in buffers],
        "shared": [_buffer_state(b, sizes) for b in launch.shared],
        "sites": [
            _site_state(s, _number(buffers, s.buffer), paid.get(s)) for s in sites
        ],
        "blocks": touched, "cut": cut,
        "costs_cut": max(0, len(_seen(reports[0])) - MOST_COSTS),
    }  # fmt: skip


def _seen(report: LaunchReport) -> list[Access]:
    """The accesses to memory that threads share."""
    return [a for a in report.accesses if a.site.buffer and a.site.buffer.scope != "local"]


def _site_state(site: Site, buffer: int, cost: Cost | None) -> dict[str, Any]:
    """A load or store; no cost: the first block never comes there."""
    unit = "sectors" if site.buffer and site.buffer.scope == "global" else "rounds of banks"
    return {
        "name": str(site), "text": site.text, "block": site.block, "write": site.write,
        "buffer": buffer,
        "unit": unit, "count": cost.count if cost else 0, "least": cost.least if cost else 0,
    }  # fmt: skip


def _number(known: list[Any], thing: Any) -> int:
    """Return the position of an item in the list, to which a new one is added."""
    for at, other in enumerate(known):
        if other is thing or other == thing:
            return at
    known.append(thing)
    return len(known) - 1


def _access_state(access: Access, site: int) -> dict[str, Any]:
    one = costs([access])[access.site]
    return {
        "site": site,
        "threads": [int(t) for t in access.threads],
        "elements": [int(o) // access.itemsize for o in access.offsets],
        "count": one.count,
        "least": one.least,
    }


def _buffer_state(buffer: loops.Buffer, sizes: Sizes) -> dict[str, Any]:
    shape = sizes.shape(buffer)
    size = numpy_dtype(buffer.dtype).itemsize
    return {
        "name": buffer.name, "shape": list(shape), "dtype": buffer.dtype, "scope": buffer.scope,
        "itemsize": size, "bytes": size * int(np.prod(shape)),
    }  # fmt: skip


def _problem_state(p: Problem) -> dict[str, Any]:
    return {
        "kind": p.kind, "message": p.message, "count": p.count, "buffer": p.buffer,
        "index": list(p.index), "site": str(p.site) if p.site else "",
        "other": str(p.other) if p.other and p.other != p.site else "",
        "threads": [[*t.block, *t.index] for t in p.threads],
    }  # fmt: skip
