"""Schedules and bounds of graphs by machine code: between recording a minibatch and running it
there is no time for a loop in Python.

The functions of `batch_policies` are compiled once per process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from relaxlab.batching.execution import Schedule
from relaxlab.batching.graph import Graph
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.batch_policies import BY_NUMBER, FUNCTIONS, RATIO, Run
from relaxlab.codegen.llvm.lowlevel import layout_of
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.ir.target import Target


@dataclass(frozen=True, slots=True)
class Table:
    """The table of an automaton for `Run`: its encoding, the tree of its states, their actions."""

    encoding: int
    trie: np.ndarray[Any, Any]
    action: np.ndarray[Any, Any]


def table_of(kinds: int, encoding: int, actions: Mapping[tuple[int, ...], int]) -> Table:
    """Return the actions of states, which are numbers of types, as a tree."""
    rows: list[list[int]] = [[-1] * kinds]
    action = [-1]
    for state, chosen in actions.items():
        at = 0
        for of_type in state:
            if rows[at][of_type] < 0:
                rows[at][of_type] = len(rows)
                rows.append([-1] * kinds)
                action.append(-1)
            at = rows[at][of_type]
        action[at] = chosen
    return Table(encoding, np.array(rows, np.int32), np.array(action, np.int32))


_EMPTY = Table(BY_NUMBER, np.zeros(1, np.int32), np.zeros(1, np.int32))


@dataclass(slots=True)
class _Memory:
    """The fields of a `Run`, and the arrays that they are addresses of."""

    graph: Graph
    values: dict[str, int] = field(default_factory=dict[str, int])
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict[str, np.ndarray[Any, Any]])

    def hold(self, dtype: Any, **arrays: Any) -> None:
        """Add arrays, as contiguous ones of a dtype; a number stands for so many zeros."""
        for name, value in arrays.items():
            made = np.zeros(max(1, value), dtype) if isinstance(value, int) else value
            self.arrays[name] = np.ascontiguousarray(made, dtype)

    def record(self) -> np.ndarray[Any, Any]:
        """Return the fields in order."""
        addresses = {name: array.ctypes.data for name, array in self.arrays.items()}
        return np.array([(self.values | addresses)[f] for f in layout_of(Run)], np.int64)


def _memory(graph: Graph, policy: int, critical: bool, table: Table) -> _Memory:
    nodes, kinds = len(graph), len(graph.types)
    cells, lanes = nodes * kinds, -(-kinds // 4) * 4
    alone = [int(number in graph.unbatchable) for number in range(kinds)]
    found = _Memory(graph)
    found.values = {
        "nodes": nodes, "kinds": kinds, "lanes": lanes, "most": nodes + 1, "policy": policy,
        "critical": int(critical), "encoding": table.encoding,
    }  # fmt: skip
    found.hold(
        np.int32, type_of=graph.type_of, reads=graph.predecessors, readers=graph.successors,
        alone=np.array(alone), missing=nodes, following=nodes, first=kinds, last=kinds, order=nodes,
        batch_types=nodes, depth=nodes, ahead=nodes * lanes, rank_left=nodes + kinds,
        rank_ready=nodes + kinds, waits=cells, trie=table.trie, action=table.action,
    )  # fmt: skip
    found.hold(
        np.int64, starts=graph.starts, succ_starts=graph.succ_starts, ready=kinds,
        batch_ends=nodes, depths_left=kinds, left=kinds, rank_starts=kinds + 1, top=kinds,
        frontier=kinds, stack=nodes + 1, types=kinds,
    )  # fmt: skip
    found.hold(np.uint8, before=cells, related=cells)
    return found


@cache
def _code() -> tuple[Any, Any, Any]:
    """The compiled functions that schedule and that count the bound, and their machine code."""
    declarations: dict[str, str] = {}
    target = Target.host()
    texts = [low_level_text(function, declarations) for function in FUNCTIONS]
    code, _ = jit.compile_object(jit.module_text(texts, declarations, target), target)
    loaded = jit.LoadedObject([code], target)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
    schedule, bound = (
        kind(loaded.address(f"relaxlab_{name}")) for name in ("batch_schedule", "batch_paths")
    )
    return schedule, bound, loaded


def native_schedule(
    graph: Graph, policy: int, *, critical: bool = False, table: Table = _EMPTY
) -> Schedule:
    """Return the batches that a policy chooses.

    policy: `AGENDA`, `RATIO` or `AUTOMATON`, which takes a table. critical: choose among the types
    that lose nothing, where there are such.
    """
    memory = _memory(graph, policy, critical, table)
    record = memory.record()
    batches = _code()[0](record.ctypes.data)
    ends = memory.arrays["batch_ends"][:batches]
    starts = np.concatenate(([0], ends))
    types, order = memory.arrays["batch_types"][:batches], memory.arrays["order"][: len(graph)]
    return Schedule(graph, types.copy(), starts, order.copy())


def native_bound(graph: Graph) -> int:
    """Return the bound by paths, see `bound.batch_bound`."""
    memory = _memory(graph, RATIO, False, _EMPTY)
    record = memory.record()
    return _code()[1](record.ctypes.data)
