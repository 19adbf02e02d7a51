"""Some blocks of a launch, run together: every statement for all of their threads at once.

Between barriers the threads of a block may run in any order, and blocks in any order at all, so
one order is as good as another as long as the program has no races, and races are reported. Here
each statement is run by all threads that reach it before the next one: what differs between
threads is a NumPy array, conditions and loops keep the threads for which they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bytes_of, converted, numpy_dtype
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, Stmt
from relaxlab.runtime.arrays import Array, ExecutionError, uninitialised
from relaxlab.runtime.interpreter.helpers import NAMES, division
from relaxlab.runtime.interpreter.intrinsics import meaning_of
from relaxlab.runtime.simt.asynchronous import Units, element_at, is_asynchronous, waits
from relaxlab.runtime.simt.branches import Deadlock
from relaxlab.runtime.simt.fragments import loaded, multiplied
from relaxlab.runtime.simt.kernel import Kernel, statement_text
from relaxlab.runtime.simt.memory import Clock, LocalMemory, Memory, Race
from relaxlab.runtime.simt.points import Points
from relaxlab.runtime.simt.report import ProblemKind, Thread

_WHOLE_NUMBERS = "iu"


class Team:
    """`count` blocks of a kernel from number `first` on."""

    def __init__(self, kernel: Kernel, first: int, count: int) -> None:
        self.kernel = kernel
        self.count = count
        self.threads = kernel.geometry.threads
        self.first = first
        self.warp = kernel.launch.facts.warp
        warps = -(-self.threads // self.warp)
        met, warps_met = np.zeros(count, np.int64), np.zeros((count, warps), np.int64)
        self.clock = Clock(first, self.threads, self.warp, met, warps_met)
        self.barriers = np.zeros(count, np.int64)
        self.shared = {b: self._shared(b) for b in kernel.launch.shared}
        self.local = {b: self._local(b) for b in kernel.launch.local}
        self.copies: list[list[Callable[[], None]]] = [[]]
        self.units = Units(self)
        self.stmt: Stmt = kernel.launch.body

    def _shared(self, buffer: Buffer) -> Memory:
        size = int(np.prod(self.kernel.shapes[buffer]))
        memory = Memory.fresh(size * self.count, buffer.dtype, per_block=True)
        memory.watch()
        return memory

    def _local(self, buffer: Buffer) -> LocalMemory:
        size = int(np.prod(self.kernel.shapes[buffer]))
        return LocalMemory.fresh(size, self.threads * self.count, buffer.dtype)

    def run(self) -> None:
        """Run the kernel's body. Raises ExecutionError for a statement without a meaning on a
        GPU."""
        lanes = self._lanes()
        g = self.kernel.geometry
        block, thread = np.divmod(lanes + self.first * self.threads, self.threads)
        numbers = {
            "blockIdx.x": block % g.grid[0],
            "blockIdx.y": block // g.grid[0] % g.grid[1],
            "blockIdx.z": block // (g.grid[0] * g.grid[1]),
            "threadIdx.x": thread % g.block[0],
            "threadIdx.y": thread // g.block[0] % g.block[1],
            "threadIdx.z": thread // (g.block[0] * g.block[1]),
        }
        bound = dict(self.kernel.scalars)
        for axis in self.kernel.launch.axes:
            value = numbers[axis.name].astype(numpy_dtype(axis.var.dtype))
            bound[axis.var] = value[0] if (value == value[0]).all() else value
        whole = len(lanes) == self.count * self.threads
        # A deadlock was reported where it was found; nothing more happens.
        with suppress(Deadlock):
            self.execute(self.kernel.launch.body, Points(lanes, bound, whole=whole))

    def _lanes(self) -> Array:
        """The threads that run."""
        return np.arange(self.count * self.threads)

    def execute(self, s: Stmt, p: Points) -> None:
        match s:
            case BufferStore():
                self._store(s, p)
            case loops.SeqStmt(stmts):
                around = self.kernel.block
                for one in stmts:
                    self.execute(one, p)
                self.kernel.block = around
            case loops.For():
                self._for(s, p)
            case loops.IfThenElse():
                self._if(s, p)
            case loops.LetStmt(var, value, body):
                self.stmt = s
                self.execute(body, p.bind({var: self.value(value, p)}))
            case loops.Evaluate(expr.StringImm(name)):
                self.kernel.block = name
            case loops.Evaluate(value):
                self.stmt = s
                self.value(value, p)
            case loops.While():
                self._while(s, p)
            case loops.AssertStmt():
                self._assert(s, p)
            case _:
                raise ExecutionError(f"no thread can run {kind_of(s)}")

    def _for(self, s: loops.For, p: Points) -> None:
        self.stmt = s
        low, extent = self.value(s.min, p), self.value(s.extent, p)
        kind = numpy_dtype(s.loop_var.dtype).type
        if (
            s.kind == "vectorized"
            and not isinstance(extent, np.ndarray)
            and self.kernel.is_independent(s)
        ):
            numbers = np.arange(int(extent), dtype=kind)
            if isinstance(low, np.ndarray):
                raise ExecutionError(f"the vectorized loop {s.loop_var.name} starts elsewhere")
            self.execute(s.body, p.fan_out(s.loop_var, low + numbers))
        elif s.kind == "thread_binding":
            raise ExecutionError(f"a loop over {s.thread} inside of a launch")
        elif not isinstance(extent, np.ndarray):
            for n in self._iterations(s, int(extent)):
                self.execute(s.body, p.bind({s.loop_var: low + kind(n)}))
        else:
            for n in self._iterations(s, int(extent.max(initial=0))):
                at = np.flatnonzero(n < extent)
                inner = p.narrow(at, s)
                start = low[at] if isinstance(low, np.ndarray) else low
                self.execute(s.body, inner.bind({s.loop_var: start + kind(n)}))

    def _iterations(self, s: loops.For, extent: int) -> Iterable[int]:
        """The iterations of a loop that are run, one after the other."""
        return range(extent)

    def _if(self, s: loops.IfThenElse, p: Points) -> None:
        self.stmt = s
        holds = self.value(s.condition, p)
        other = s.else_case
        if self.units.needed and other is not None and isinstance(holds, np.ndarray) and waits(s):
            cases = ((s.then_case, holds), (other, ~holds))
            self.units.side_by_side([(c, p.narrow(np.flatnonzero(h), s)) for c, h in cases])
            return
        for case, wanted in ((s.then_case, True), (s.else_case, False)):
            if case is None:
                continue
            if not isinstance(holds, np.ndarray):
                if holds == wanted:
                    self.execute(case, p)
                continue
            at = np.flatnonzero(holds if wanted else ~holds)
            if len(at):
                self.execute(case, p if len(at) == len(p) else p.narrow(at, s))

    def _while(self, s: loops.While, p: Points) -> None:
        while True:
            self.stmt = s
            holds = self.value(s.condition, p)
            if isinstance(holds, np.ndarray):
                p = p.narrow(np.flatnonzero(holds), s)
            if not len(p) or not np.any(holds):
                return
            self.execute(s.body, p)

    def _assert(self, s: loops.AssertStmt, p: Points) -> None:
        self.stmt = s
        wrong = np.flatnonzero(~p.spread_out(self.value(s.condition, p)))
        if len(wrong):
            values = [p.spread_out(self.value(v, p))[wrong[0]] for v in s.values]
            text = s.text(values)
            self.blame("assertion failed", wrong, p, lambda who: f"{who}: {text}")

    def _store(self, s: BufferStore, p: Points) -> None:
        self.stmt = s
        value = self.value(s.value, p)
        flat = self._place(s.buffer, s, s.indices, p)
        inside, p, flat = self._inside(s, s.buffer, s.indices, flat, p)
        if inside is not None and isinstance(value, np.ndarray):
            value = value[inside]
        if not len(p):
            return
        local = self.local.get(s.buffer)
        if local is not None:
            where = self._registers(flat, p)
            local.data[where] = value
            local.written[where] = True
            return
        memory, at = self._memory(s.buffer, flat, p)
        self._touched(s, at, p)
        numbers, watcher = self._numbers(p), _Watcher(self, s, at, p)
        memory.store(at, value, numbers, self.clock, watcher.site, watcher)

    def value(self, e: PrimExpr, p: Points) -> Any:
        """The value of an expression at the points."""
        match e:
            case Var(name):
                return p.value(e, frozenset((e,)), lambda _: self._unbound(name))
            case expr.IntImm() | expr.FloatImm():
                return self.kernel.constant(e)
            case expr.BinaryOp():
                needs = self.kernel.needs_of(e)
                if needs is None:
                    return self._binary(e, p)
                return p.value(e, needs, lambda q: self._binary(e, q))
            case BufferLoad():
                return self._load(e, p)
            case expr.Cast(to, value):
                return converted(self.value(value, p), numpy_dtype(to))
            case expr.Call():
                return self._call(e, p)
            case expr.Not(a):
                return np.logical_not(self.value(a, p))
            case expr.Select(condition, yes, no):
                sides = [self.value(x, p) for x in (condition, yes, no)]
                return np.where(*sides)[()]
            case expr.Let(var, value, body):
                return self.value(body, p.bind({var: self.value(value, p)}))
            case _:
                raise ExecutionError(
                    f"the SIMT interpreter has no meaning for {type(e).__name__}; "
                    "write a vectorized loop instead of a vector"
                )

    def _unbound(self, name: str) -> Any:
        raise ExecutionError(f"variable {name} is used but not defined")

    def _binary(self, e: expr.BinaryOp, p: Points) -> Any:
        a, b = self.value(e.a, p), self.value(e.b, p)
        if e.row.arrays is not None:
            return e.row.arrays(a, b)
        if np.asarray(b).dtype.kind in _WHOLE_NUMBERS:
            zero = np.flatnonzero(p.spread_out(b) == 0)
            if len(zero):
                self.blame("division by zero", zero, p, lambda who: f"{who} divides by zero")
                b = np.where(b == 0, b + 1, b)[()]
        return NAMES[division(e)](a, b)

    def _call(self, e: expr.Call, p: Points) -> Any:
        if e.op == "if_then_else":
            return self._choose(e, p)
        if e.op == "tvm_storage_sync":
            return self._barrier(e, p)
        if e.op == "warp_shuffle_xor":
            return self._shuffle(e, p)
        if e.op.startswith("cp_async"):
            return self._asynchronous(e, p)
        if e.op == "dp4a_u8s8":
            return self._dp4a(e, p)
        if e.op in ("ldmatrix", "ldmatrix_trans"):
            return self._ldmatrix(e, p)
        if e.op == "mma_m16n8k16":
            return self._mma(e, p)
        if is_asynchronous(e.op):
            return self.units.call(e, p)
        if e.op == "likely":
            return self.value(e.args[0], p)
        return _intrinsic(e, [self.value(a, p) for a in e.args])

    def _choose(self, e: expr.Call, p: Points) -> Any:
        holds = self.value(e.args[0], p)
        if not isinstance(holds, np.ndarray):
            return self.value(e.args[1 if holds else 2], p)
        result = np.empty(len(p), numpy_dtype(e.dtype))
        for side, where in ((e.args[1], holds), (e.args[2], ~holds)):
            at = np.flatnonzero(where)
            if len(at) == len(p):
                return self.value(side, p)
            if len(at):
                result[at] = self.value(side, p.narrow(at))
        return result

    def place(self, load: BufferLoad, p: Points) -> Any:
        """The number of the element that a load names in its buffer."""
        return self._place(load.buffer, load, load.indices, p)

    def _place(
        self, buffer: Buffer, access: BufferLoad | BufferStore,
        indices: tuple[PrimExpr, ...], p: Points,
    ) -> Any:  # fmt: skip
        """The number of the element in the buffer, an int where all points have the same; -1
        outside of the buffer."""
        needs = self.kernel.needs_of_all(access, indices)
        if needs is None:
            return self._flat(buffer, indices, p)
        return p.value(id(access), needs, lambda q: self._flat(buffer, indices, q))

    def _flat(self, buffer: Buffer, indices: tuple[PrimExpr, ...], p: Points) -> Any:
        shape = self._shape(buffer)
        if len(shape) != len(indices):
            raise ExecutionError(
                f"{buffer.name} has {len(shape)} dimensions but {len(indices)} indices"
            )
        flat: Any = 0
        outside: Any = False
        for i, extent in zip(indices, shape, strict=True):
            index = self.value(i, p)
            if not isinstance(index, np.ndarray):
                index = int(index)
                outside = outside | (not 0 <= index < extent)
            else:
                index = index.astype(np.int64, copy=False)
                if index.min() < 0 or index.max() >= extent:
                    outside = outside | (index < 0) | (index >= extent)
            flat = flat * extent + index
        if outside is False:
            return flat
        return -1 if outside is True else np.where(outside, np.int64(-1), flat)

    def _inside(
        self, access: BufferLoad | BufferStore, buffer: Buffer, indices: tuple[PrimExpr, ...],
        flat: Any, p: Points,
    ) -> tuple[Array | None, Points, Any]:  # fmt: skip
        """The points whose access stays in the buffer (positions, or None: all) and theirs."""
        if (flat.min() if isinstance(flat, np.ndarray) else flat) >= 0:
            return None, p, flat
        outside = np.flatnonzero(p.spread_out(flat) < 0)
        index = tuple(int(p.spread_out(self.value(i, p))[outside[0]]) for i in indices)
        verb = "writes" if isinstance(access, BufferStore) else "reads"
        what = f"{verb} {buffer.name}{list(index)}, outside of its shape {self._shape(buffer)}"
        self.blame("out of bounds", outside, p, lambda who: f"{who} {what}", access, index)
        inside = np.flatnonzero(p.spread_out(flat) >= 0)
        return inside, p.narrow(inside), flat[inside] if isinstance(flat, np.ndarray) else flat

    def _load(self, e: BufferLoad, p: Points) -> Any:
        flat = self._place(e.buffer, e, e.indices, p)
        inside, near, flat = self._inside(e, e.buffer, e.indices, flat, p)
        if inside is None:
            return self._read(e, flat, p)
        result = uninitialised((len(p),), e.buffer.dtype)
        if len(near):
            result[inside] = self._read(e, flat, near)
        return result

    def _read(self, e: BufferLoad, flat: Any, p: Points) -> Any:
        local = self.local.get(e.buffer)
        if local is not None:
            where = self._registers(flat, p)
            there = local.written[where]
            if not there.all():
                at = np.broadcast_to(flat, len(p))
                _Watcher(self, e, at, p).uninitialised(np.flatnonzero(~there))
            return local.data[where].copy()
        memory, at = self._memory(e.buffer, flat, p)
        self._touched(e, at, p)
        if memory.histories is None and memory.written is None:
            return memory.data[flat]  # only ever read
        numbers, watcher = self._numbers(p), _Watcher(self, e, at, p)
        return memory.load(at, numbers, self.clock, watcher.site, watcher)

    def _registers(self, flat: Any, p: Points) -> Any:
        """The index of the elements of a local buffer."""
        return flat if p.whole and isinstance(flat, int) else (flat, p.lanes)

    def _memory(self, buffer: Buffer, flat: Any, p: Points) -> tuple[Memory, Array]:
        """The memory of a main or shared buffer, and the elements in it."""
        shared = self.shared.get(buffer)
        if shared is None:
            return self.kernel.memory[buffer], np.broadcast_to(flat, len(p))
        size = shared.data.size // self.count
        return shared, flat + size * self._blocks(p)

    def _blocks(self, p: Points) -> Array:
        """The position in the team of each point's block."""
        return p.value("blocks", frozenset(), lambda q: q.lanes // self.threads)

    def _numbers(self, p: Points) -> Array:
        """The number in the launch of each point's thread."""
        offset = self.first * self.threads
        return p.value("numbers", frozenset(), lambda q: q.lanes + offset)

    def _touched(self, access: BufferLoad | BufferStore, at: Array, p: Points) -> None:
        """Called for every access of main or shared memory, at its elements."""

    def on_product(self, operations: int) -> None:
        """Called for every product of tiles, of so many floating-point operations."""

    def _barrier(self, e: expr.Call, p: Points) -> None:
        scope = e.args[0].value if isinstance(e.args[0], expr.StringImm) else str(e.args[0])
        if scope not in ("shared", "warp"):
            raise ExecutionError(f"no barrier of scope {scope!r}: use 'shared' or 'warp'")
        met = self._meet(p, self.threads if scope == "shared" else self.warp, "barrier divergence")
        self.clock.now += 1
        self.clock.warps[np.broadcast_to(met, self.clock.warps.shape)] = self.clock.now
        if scope == "shared":
            self.clock.blocks[met[:, 0]] = self.clock.now
            self.clock.oldest = int(self.clock.blocks.min())
            self.barriers += met[:, 0]

    def _meet(self, p: Points, size: int, kind: ProblemKind) -> Array:
        """Return which groups of `size` threads (blocks x groups) are complete; report those of
        which only a part is here."""
        if p.spread:
            raise ExecutionError("threads cannot meet inside of a vectorized loop")
        groups = -(-self.threads // size)
        if p.whole:
            return np.ones((self.count, groups), bool)
        group = self._blocks(p) * groups + p.lanes % self.threads // size
        here = np.bincount(group, minlength=self.count * groups).reshape(self.count, groups)
        all_of_them = np.full(groups, size)
        all_of_them[-1] = self.threads - size * (groups - 1)
        partial = np.argwhere((here > 0) & (here < all_of_them))
        if len(partial):
            block, part = (int(n) for n in partial[0])
            start = block * self.threads + part * size
            members = np.arange(start, start + int(all_of_them[part]))
            missing = np.setdiff1d(members, p.lanes)
            waiting = np.intersect1d(members, p.lanes)
            numbers = [int(n) + self.first * self.threads for n in (missing[0], waiting[0])]
            away, there = (self.kernel.geometry.thread(n) for n in numbers)
            what = "barrier" if kind == "barrier divergence" else "exchange of its warp"
            text = (
                f"{away} does not come to the {what} where {there} waits; {len(waiting)} of "
                f"{len(members)} threads do"
            )
            if p.cause is not None:
                text += f", those for which `{statement_text(p.cause)}` goes on"
            site = self.kernel.describe(self.stmt)
            self.kernel.report(kind, site, len(partial), text, numbers)
        return here == all_of_them

    def _shuffle(self, e: expr.Call, p: Points) -> Any:
        """The value of another thread of the warp."""
        self._meet(p, self.warp, "shuffle divergence")
        value, mask = p.spread_out(self.value(e.args[0], p)), self.value(e.args[1], p)
        inside = np.min(mask) >= 0 and np.max(mask) < self.warp
        if p.whole and self.threads % self.warp == 0 and inside:
            return value[p.lanes ^ mask]
        position = np.full(self.count * self.threads, -1)
        position[p.lanes] = np.arange(len(p))
        thread = p.lanes % self.threads
        partner = thread - thread % self.warp + (thread % self.warp ^ mask)
        exists = (partner < self.threads) & (partner // self.warp == thread // self.warp)
        source = np.where(exists, position[p.lanes + np.where(exists, partner - thread, 0)], -1)
        alone = np.flatnonzero(source < 0)
        if not len(alone):
            return value[source]
        what = "takes a value from a thread of its warp that is not there"
        self.blame("shuffle divergence", alone, p, lambda who: f"{who} {what}")
        result = uninitialised((len(p),), e.result_dtype)
        result[source >= 0] = value[source[source >= 0]]
        return result

    def _asynchronous(self, e: expr.Call, p: Points) -> None:
        """Copies take place when their threads wait for them, as late as they may."""
        if e.op == "cp_async_commit":
            self.copies.append([])
        elif e.op == "cp_async_wait":
            # The last group is not committed yet.
            rest = int(self.value(e.args[0], p)) + 1
            done, self.copies = self.copies[:-rest], self.copies[-rest:]
            for copy in (c for group in done for c in group):
                copy()
        else:
            to, source = (element_at(a) for a in e.args[:2])
            count = int(self.value(e.args[2], p)) // bytes_of(to.dtype)
            values = self._read_row(source, count, p)
            flat, wide = self._row(to, count, p)
            made_at = self.stmt, self.kernel.block

            def copy() -> None:
                now = self.stmt, self.kernel.block
                self.stmt, self.kernel.block = made_at
                memory, at = self._memory(to.buffer, flat, wide)
                self._touched(to, at, wide)
                watcher = _Watcher(self, to, at, wide)
                numbers = self._numbers(wide)
                memory.store(at, values.reshape(-1), numbers, self.clock, watcher.site, watcher)
                self.stmt, self.kernel.block = now

            self.copies[-1].append(copy)

    def _dp4a(self, e: expr.Call, p: Points) -> None:
        """Four products of an unsigned and a signed byte, added to an int32, by each thread."""
        places = [element_at(x) for x in e.args]
        sums, left, right = (
            self._read_row(load, count, p).astype(np.int32)
            for load, count in zip(places, (1, 4, 4), strict=True)
        )
        self._write_at(places[0], sums + (left * right).sum(-1, dtype=np.int32, keepdims=True), p)

    def _ldmatrix(self, e: expr.Call, p: Points) -> None:
        """Four 8 x 8 matrices, a row of which each lane reads."""
        to, source = (element_at(a) for a in e.args)
        rows = self._warps(e, self._read_row(source, 8, p), p)
        self._write_at(to, loaded(rows, e.op == "ldmatrix_trans"), p)

    def _mma(self, e: expr.Call, p: Points) -> None:
        """A 16 x 8 x 16 product of the tiles in the lanes of each warp, with float32 sums."""
        places = [element_at(x) for x in e.args]
        sums, left, right = (
            self._warps(e, self._read_row(load, count, p), p)
            for load, count in zip(places, (4, 8, 4), strict=True)
        )
        self._write_at(places[0], multiplied(sums, left, right), p)
        self.on_product(2 * 16 * 8 * 16 * len(sums))

    def _warps(self, e: expr.Call, values: Array, p: Points) -> Array:
        """The values of the lanes, by warp. All lanes of a warp take part."""
        self._meet(p, self.warp, "shuffle divergence")
        together = len(p) % self.warp == 0 and np.diff(p.lanes.reshape(-1, self.warp)) == 1
        if not np.all(together):
            raise ExecutionError(f"{e.op} needs whole warps")
        return values.reshape(len(p) // self.warp, self.warp, -1)

    def _row(self, load: BufferLoad, count: int, p: Points) -> tuple[Array, Points]:
        """The places of the next `count` elements from the one that a load names, and a point for
        each."""
        first = np.broadcast_to(self._place(load.buffer, load, load.indices, p), len(p))
        return (first[:, None] + np.arange(count)).reshape(-1), p.repeat(count)

    def _read_row(self, load: BufferLoad, count: int, p: Points) -> Array:
        """The next `count` elements from the one that a load names, a row for each point."""
        flat, wide = self._row(load, count, p)
        return self._read(load, flat, wide).reshape(len(p), count)

    def _write_at(self, load: BufferLoad, values: Array, p: Points) -> None:
        """Store a row of values for each point from the element that a load names on."""
        local = self.local.get(load.buffer)
        if local is None:
            raise ExecutionError(f"{load.buffer.name} is not in registers")
        flat = self._place(load.buffer, load, load.indices, p)
        for n in range(values.shape[1]):
            where = self._registers(flat + n, p)
            local.data[where] = values[:, n]
            local.written[where] = True

    def blame(
        self, kind: ProblemKind, at: Array, p: Points, text: Callable[[Thread], str],
        access: BufferLoad | BufferStore | None = None, index: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """Report a problem of the points at positions `at`, with the first of them as the
        example."""
        number = int(self._numbers(p)[at[0]])
        site = self.kernel.describe(self.stmt, access)
        message = text(self.kernel.geometry.thread(number))
        buffer = None if access is None else access.buffer
        self.kernel.report(kind, site, len(at), message, [number], buffer, index)

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        if buffer not in self.kernel.shapes:
            raise ExecutionError(f"buffer {buffer.name} is used but not defined")
        return self.kernel.shapes[buffer]


class _Watcher:
    """Reports what goes wrong with one access of the elements `at`."""

    def __init__(self, team: Team, access: BufferLoad | BufferStore, at: Array, p: Points) -> None:
        self.team = team
        self.access = access
        self.at = at
        self.points = p
        self.site = team.kernel.site(team.stmt, access)

    def element(self, position: int) -> tuple[int, ...]:
        """The indices in the buffer of one of the elements."""
        shape = self.team.kernel.shapes[self.access.buffer]
        flat = int(self.at[position]) % int(np.prod(shape))
        return tuple(int(i) for i in np.unravel_index(flat, shape))

    def race(self, found: Race, verb: str) -> None:
        kernel, buffer = self.team.kernel, self.access.buffer
        position = int(found.at[0])
        numbers = [int(self.team._numbers(self.points)[position]), int(found.other[0])]
        me, other = (kernel.geometry.thread(n) for n in numbers)
        mine = "writes" if kernel.sites[self.site].write else "reads"
        index = self.element(position)
        between = (
            "with no barrier in between" if me.block == other.block
            else "and blocks run in any order"
        )  # fmt: skip
        text = f"{me} {mine} {buffer.name}{list(index)}, which {other} {verb}, {between}"
        kernel.report(
            "data race", kernel.sites[self.site], len(found.at), text, numbers, buffer, index,
            kernel.sites[int(found.sites[0])],
        )  # fmt: skip

    def uninitialised(self, at: Array) -> None:
        index = self.element(int(at[0]))
        what = f"reads {self.access.buffer.name}{list(index)}, which nobody has written"
        self.team.blame(
            "uninitialised read", at, self.points, lambda who: f"{who} {what}", self.access, index
        )


def _intrinsic(e: expr.Call, args: list[Any]) -> Any:
    """A call of an intrinsic that needs nothing but values."""
    meaning = meaning_of(e.op)
    if meaning is None:
        raise ExecutionError(f"the SIMT interpreter has no meaning for {e.op}")
    return meaning(numpy_dtype(e.result_dtype), *args)
