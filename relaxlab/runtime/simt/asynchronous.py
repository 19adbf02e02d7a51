"""The units of a Hopper GPU beside its threads: copies of boxes, tensor instructions of warpgroups.

Results of tensor instructions are in their registers once a warpgroup has waited for them, and no
sooner; until then they read shared memory, so that what is overwritten too early is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.loops import Buffer, BufferLoad, Stmt
from relaxlab.ir.node import walk
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.simt.barriers import LINE, Barriers, box_copy, swizzled
from relaxlab.runtime.simt.branches import Branches, Deadlock
from relaxlab.runtime.simt.kernel import Kernel
from relaxlab.runtime.simt.memory import LocalMemory, Memory
from relaxlab.runtime.simt.points import Points
from relaxlab.runtime.simt.report import ProblemKind, Thread

WARPGROUP = 128
"""Threads that run a tensor instruction of wgmma together."""
ROWS, TERMS = 64, 16
"""Rows and products of such an instruction."""


class Threads(Protocol):
    """The threads of the block, as `Team` runs them."""

    kernel: Kernel
    stmt: Stmt
    shared: dict[Buffer, Memory]
    local: dict[Buffer, LocalMemory]

    def value(self, e: expr.PrimExpr, p: Points) -> Any: ...

    def execute(self, s: Stmt, p: Points) -> None: ...

    def place(self, load: BufferLoad, p: Points) -> Any: ...

    def on_product(self, operations: int) -> None: ...

    def blame(
        self, kind: ProblemKind, at: Array, p: Points, text: Callable[[Thread], str],
        access: BufferLoad | None = None,
    ) -> None: ...  # fmt: skip


def is_asynchronous(op: str) -> bool:
    """True for a call that `Units` run."""
    return op.startswith(("mbarrier_", "tma_", "wgmma", "setmaxnreg_"))


def waits(s: Stmt) -> bool:
    """True if a statement waits at an mbarrier."""
    return any(isinstance(n, expr.Call) and n.op == "mbarrier_wait" for n in walk(s))


@dataclass(frozen=True, slots=True)
class _Product:
    """A product that is under way: the registers of its sums, what reads its operands, and whether
    it is added to what the registers have."""

    registers: LocalMemory
    at: tuple[Array, Array]
    left: Callable[[], Array]
    right: Callable[[], Array]
    add: bool

    def start(self) -> None:
        """The sums are in no register until the product is waited for."""
        self.registers.written[self.at] = False

    def finish(self) -> None:
        """Add the product to the sums."""
        left, right = (tiles().astype(np.float32) for tiles in (self.left, self.right))
        product = _of_threads(left @ right.swapaxes(1, 2))
        self.registers.data[self.at] = product + (self.registers.data[self.at] if self.add else 0)
        self.registers.written[self.at] = True


class Units:
    """The asynchronous units of one block, whose threads `team` runs; `needed`, where some of these
    wait for others."""

    def __init__(self, team: Threads) -> None:
        self.team = team
        self.needed = waits(team.kernel.launch.body)
        self.barriers = Barriers()
        self.branches = Branches()
        self.groups: list[list[_Product]] = [[]]

    def call(self, e: expr.Call, p: Points) -> None:
        """Run a call."""
        match e.op:
            case "mbarrier_init":
                count = int(self.team.value(e.args[1], p))
                self.barriers.init(*self._place(e.args[0], p), count)
            case "mbarrier_arrive" | "mbarrier_expect":
                barrier = self.barriers.at(*self._place(e.args[0], p))
                barrier.arrive(len(p))
                if e.op == "mbarrier_expect":
                    barrier.expected += int(self.team.value(e.args[1], p)) * len(p)
            case "mbarrier_wait":
                self._wait(e, p)
            case "tma_load":
                self._load(e, p)
            case "wgmma":
                self._multiply(e, p)
            case "wgmma_commit":
                self.groups.append([])
            case "wgmma_wait":
                # The last group is not committed yet.
                rest = int(self.team.value(e.args[0], p)) + 1
                done, self.groups = self.groups[:-rest], self.groups[-rest:]
                for product in (one for group in done for one in group):
                    product.finish()
                for product in (one for group in self.groups for one in group):
                    product.start()
            case _:
                pass  # fences, and how registers are shared out

    def side_by_side(self, cases: list[tuple[Stmt, Points]]) -> None:
        """Run the branches of a condition, of which some wait for others."""

        def run(s: Stmt, p: Points) -> Callable[[], None]:
            return lambda: self.team.execute(s, p)

        self.branches.run([run(*case) for case in cases])

    def _place(self, address: expr.PrimExpr, p: Points) -> tuple[Any, int]:
        """The buffer and the place in it of an address that all points share."""
        load = element_at(address)
        flat = np.unique(self.team.place(load, p))
        if len(flat) != 1 or flat[0] < 0:
            raise ExecutionError(f"{load.buffer.name} is used at {flat} by threads that share it")
        return load.buffer, int(flat[0])

    def _wait(self, e: expr.Call, p: Points) -> None:
        team, kernel = self.team, self.team.kernel
        buffer, place = self._place(e.args[0], p)
        parity = int(team.value(e.args[1], p))
        barrier = self.barriers.at(buffer, place)
        now = team.stmt, kernel.block
        try:
            self.branches.wait(lambda: barrier.is_over(parity))
        except Deadlock:
            team.stmt, kernel.block = now
            text = (
                f"waits for ever at {buffer.name}[{place}] for the end of a phase of parity "
                f"{parity}: {barrier.lacks()}"
            )
            team.blame("deadlock", np.arange(len(p)), p, lambda who: f"{who} {text}")
            raise
        team.stmt, kernel.block = now

    def _load(self, e: expr.Call, p: Points) -> None:
        team = self.team
        to, start = self._place(e.args[0], p)
        source = element_at(e.args[1])
        box = [int(team.value(n, p)) for n in e.args[2:-1]]
        shape = team.kernel.shapes[source.buffer]
        corner = [int(np.unique(team.value(n, p))[0]) for n in source.indices]
        memory = team.kernel.memory[source.buffer].data
        copy = box_copy(team.shared[to], start, memory, shape, corner, box)
        barrier = self.barriers.at(*self._place(e.args[-1], p))
        barrier.issued += prod(box) * bytes_of(to.dtype)
        barrier.copies.append(copy)

    def _multiply(self, e: expr.Call, p: Points) -> None:
        """A product of tiles, which takes place when the warpgroup waits for it."""
        team = self.team
        if len(p) % WARPGROUP or (p.lanes.reshape(-1, WARPGROUP)[:, 0] % WARPGROUP).any():
            raise ExecutionError("wgmma needs whole warpgroups of 128 threads")
        sums, left, right = map(element_at, e.args[:3])
        columns, by_rows, distance, add = (int(team.value(n, p)) for n in e.args[3:])
        size = bytes_of(left.dtype)
        line = LINE // size
        row, term = np.arange(ROWS)[:, None], np.arange(TERMS)[None]
        column = np.arange(columns)[:, None]
        at_left = row * line + term
        if by_rows:
            at_right = column // line * (distance // size) + term * line + column % line
        else:
            at_right = column * line + term
        if left.buffer.scope == "local":
            a = self._registers(left, p)
        else:
            a = self._elements(left, at_left, p)
        b = self._elements(right, at_right, p)
        registers = team.local[sums.buffer]
        first = int(team.place(sums, p))
        at = np.arange(first, first + columns // 2)[:, None], p.lanes[None]
        product = _Product(registers, at, a, b, bool(add))
        # Operands are there when the instruction is issued, and stay until it is done.
        for read in (a, b):
            read()
        product.start()
        self.groups[-1].append(product)
        team.on_product(2 * ROWS * columns * TERMS * (len(p) // WARPGROUP))

    def _registers(self, load: BufferLoad, p: Points) -> Callable[[], Array]:
        """Reads the left operand's registers of each thread, those of a tile of mma.sync."""
        memory, first = self.team.local[load.buffer], int(self.team.place(load, p))
        at = np.arange(first, first + TERMS // 2)[:, None], p.lanes[None]
        read = self._checked(memory.data, memory.written, at, load, p)
        return lambda: _of_rows(read())

    def _elements(self, load: BufferLoad, offsets: Array, p: Points) -> Callable[[], Array]:
        """Reads the elements at offsets from where each warpgroup's tile begins."""
        memory = self.team.shared[load.buffer]
        flat = np.broadcast_to(self.team.place(load, p), len(p))[::WARPGROUP]
        at = swizzled(flat[:, None, None] + offsets[None], bytes_of(load.dtype))
        assert memory.written is not None
        return self._checked(memory.data, memory.written, at, load, p)

    def _checked(
        self, data: Array, written: Array, at: Any, load: BufferLoad, p: Points
    ) -> Callable[[], Array]:
        """Reads elements, and blames the statement at hand where one is not written."""
        team, made_at = self.team, (self.team.stmt, self.team.kernel.block)

        def read() -> Array:
            if not written[at].all():
                now = team.stmt, team.kernel.block
                team.stmt, team.kernel.block = made_at
                what = f"multiplies elements of {load.buffer.name} that nobody has written"
                team.blame("uninitialised read", np.arange(1), p, lambda who: f"{who} {what}", load)
                team.stmt, team.kernel.block = now
            return data[at]

        return read


def _of_threads(product: Array) -> Array:
    """The elements of tiles (warpgroups x 64 x n) by register and thread."""
    groups, _, columns = product.shape
    # rows: warp, half, group of lanes; columns: part, lane of a group, pair.
    parts = product.reshape(groups, 4, 2, 8, columns // 8, 4, 2)
    return parts.transpose(4, 2, 6, 0, 1, 3, 5).reshape(columns // 2, groups * WARPGROUP)


def _of_rows(registers: Array) -> Array:
    """The left operands (warpgroups x 64 x 16) whose elements are by register and thread."""
    # registers: part of the terms, half, pair; threads: warpgroup, warp, group of lanes, lane.
    parts = registers.reshape(2, 2, 2, -1, 4, 8, 4)
    return parts.transpose(3, 4, 1, 5, 0, 6, 2).reshape(-1, ROWS, TERMS)


def element_at(e: expr.PrimExpr) -> BufferLoad:
    """The element that an address is of."""
    if isinstance(e, expr.Call) and e.op == "address_of" and isinstance(e.args[0], BufferLoad):
        return e.args[0]
    raise ExecutionError(f"{e} is no address of an element")
