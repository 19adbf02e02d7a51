"""The explorer of batches: what some instances noted, and which notes ran together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxlab.batching.bound import batch_bound
from relaxlab.batching.policies import POLICIES, schedule_batches
from relaxlab.batching.recorded import recorded_graph
from relaxlab.codegen.llvm.recorder_words import PHASE_BITS, ROUND_BITS
from relaxlab.ir import recording as rec
from relaxlab.ir.errors import counted, expect, kind_of
from relaxlab.lab.recorded_program import program_lines
from relaxlab.lab.view import View
from relaxlab.runtime.batch.function import BatchFunction
from relaxlab.runtime.batch.records import Records
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.rows import row_bytes

MOST_NODES = 1500
"""Nodes that are drawn: of the first instances, as many as have no more of them."""


def batching(exe: Executable, name: str, instances: Sequence[Any]) -> View:
    """The instances of a batched program: a row for each, whose nodes (blocks that it noted) stand
    in the columns of their batches; for each batch where its operands lie; why two nodes are not in
    one batch; how many batches each policy would make, beside the bound; and the program that is
    recorded, with what is decided for each of its lines (see `program_lines`).

    Instances whose control flow depends on tensors have to be computed: then the function needs its
    weights. Raises TypeError for a program that does not run in batches.
    """
    expect(exe, Executable, "what ran in batches is an executable that rl.compile made")
    main = exe[name]
    if not isinstance(main, BatchFunction):
        raise TypeError(f"`{name}` of {kind_of(exe)} does not run in batches: compile the program "
                        "with pipeline=rl.batched_pipeline()")  # fmt: skip
    records = main.record(instances)
    state = _state(main.program, records, len(instances))
    return View("batching", f"Batches of {name}", state, _text(state))


def _state(program: rec.RecordingProgram, records: Records, instances: int) -> dict[str, Any]:
    count = len(records.type_of)
    reads = [records.handles[a:b] for a, b in zip(records.starts, records.starts[1:], strict=False)]
    members = [notes.tolist() for _, notes in records.batches]
    batch_of = np.empty(count, np.int64)
    for number, notes in enumerate(members):
        batch_of[notes] = number
    places = _places(records, members), np.arange(len(records.producer))
    of = np.bincount(records.instance, minlength=instances)
    drawn = int(np.searchsorted(np.cumsum(of), MOST_NODES, side="right"))
    kept = np.flatnonzero(records.instance < drawn).tolist()
    number_of = {v: number for number, v in enumerate(kept)}
    verb = "is" if drawn == 1 else "are"
    some_drawn = (
        f"There are {count} nodes; {drawn} of {counted(instances, 'instance')} {verb} drawn."
    )
    return {
        "types": list(records.types),
        "instances": instances,
        "drawn": drawn,
        "count": count,
        "nodes": [
            [int(records.type_of[v]), int(records.instance[v]), int(batch_of[v]),
             sorted({number_of[int(p)] for p in records.producer[reads[v]] if p >= 0})]
            for v in kept
        ],
        "batches": [
            _batch(program, records.depth[notes], block, [reads[v] for v in notes], places)
            for block, notes in records.batches
        ],
        "notes": [] if drawn == instances else [some_drawn],
        "policies": _policies(records),
        "program": [[line.code, line.remark, line.block] for line in program_lines(program)],
    }  # fmt: skip


def _policies(records: Records) -> list[list[Any]]:
    """The batches of each policy, and at last the bound. None where instances wait: what is noted
    later depends on batches that ran."""
    rounds = {int(d) >> ROUND_BITS for d in records.depth}
    if len(rounds) != 1:
        return []
    graph = recorded_graph(records)
    found: list[list[Any]] = [[name, len(schedule_batches(graph, name))] for name in POLICIES]
    return [*found, ["lower bound", batch_bound(graph)]]


def _places(records: Records, members: Sequence[Sequence[int]]) -> np.ndarray[Any, Any]:
    """The order in which values lie in memory: inputs, then batch after batch each output's rows,
    with room between what does not follow."""
    of = np.arange(len(records.producer), dtype=np.int64)
    outputs: dict[int, list[int]] = {}
    for handle, node in enumerate(records.producer.tolist()):
        if node >= 0:
            outputs.setdefault(node, []).append(handle)
    at = len(of) + 1
    for nodes in members:
        for column in zip(*(outputs.get(v, []) for v in nodes), strict=True):
            of[list(column)] = np.arange(at, at + len(column))
            at += len(column) + 1
    return of


def _batch(
    program: rec.RecordingProgram,
    depths: np.ndarray[Any, Any],
    block: int,
    reads: Sequence[np.ndarray[Any, Any]],
    places: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
) -> dict[str, Any]:
    """A batch, the least and the largest of its notes' phases and depths, and per operand the bytes
    that are read and whether they are gathered: as results lie, and as they would lie in the order
    in which they were noted."""
    operands: list[list[Any]] = []
    for k, ty in enumerate(program.blocks[block].inputs):
        handles = np.array([r[k] for r in reads])
        apart = [bool(np.any(np.diff(p[handles]) != 1)) for p in places]
        operands.append([str(ty), row_bytes(ty) * len(reads), *apart])
    phases = depths >> PHASE_BITS & (1 << ROUND_BITS - PHASE_BITS) - 1
    of_phase = depths & (1 << PHASE_BITS) - 1
    return {
        "type": block, "size": len(reads), "round": int(depths[0]) >> ROUND_BITS,
        "phase": _span(phases), "depth": _span(of_phase), "operands": operands,
    }  # fmt: skip


def _span(numbers: np.ndarray[Any, Any]) -> list[int]:
    return [int(numbers.min()), int(numbers.max())]


def _named(name: str, span: Sequence[int], first: int = 0) -> str:
    low, high = (number + first for number in span)
    return f"{name} {low}" if low == high else f"{name}s {low} to {high}"


def _gathered(state: Mapping[str, Any], column: int) -> int:
    return sum(o[1] for b in state["batches"] for o in b["operands"] if o[column])


def _text(state: Mapping[str, Any]) -> str:
    """The view's text, for readers without a script."""
    batches = state["batches"]
    lines = [
        f"{counted(state['instances'], 'instance')}, {counted(state['count'], 'node')}, "
        f"{counted(len(batches), 'batch', 'batches')}",
        f"bytes gathered: {_gathered(state, 2)}; in the order of the program "
        f"{_gathered(state, 3)}",
    ]
    for number, b in enumerate(batches):
        lines.append(
            f"  {number + 1}: {state['types'][b['type']]} × {b['size']}, flush {b['round'] + 1}, "
            f"{_named('phase', b['phase'], 1)}, {_named('depth', b['depth'])}"
        )
    if state["policies"]:
        counts = ", ".join(f"{name} {count}" for name, count in state["policies"])
        lines += ["", f"batches by policy: {counts}"]
    wide = max(len(code) for code, *_ in state["program"])
    lines += ["", *(f"{code:{wide}}  {remark}".rstrip() for code, remark, _ in state["program"])]
    return "\n".join(lines)
