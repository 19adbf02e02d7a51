"""One launch to one function of a dialect."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.bytes_in_words import LANES, Bytes
from relaxlab.codegen.gpu.dialect import Dialect, Frame, Scope, TensorMap, Wide, alignment_of
from relaxlab.codegen.gpu.expressions import element, is_nonneg, text_of
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.codegen.gpu.thread_loops import is_sync
from relaxlab.codegen.gpu.vectors import VectorLoop, vector_loop
from relaxlab.ir import expr, loops
from relaxlab.ir.brief import Brief
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, For, Range, Stmt
from relaxlab.ir.node import walk
from relaxlab.ir.span import Span
from relaxlab.ir.substitute import substitute


@dataclass(frozen=True, slots=True, repr=False)
class KernelSource(Brief):
    """A function for a GPU. `failures` are the messages of its failures at run time: it then takes
    one more buffer, `failed`, of an int32 zero that the number (from 1) of a failure replaces.
    `shared` is what a block takes of shared memory beyond what the function declares, in bytes.
    `maps` are the tensor maps that it takes behind all else, `spans` gives for each line of `code`
    the span of its statement."""

    name: str
    code: str
    failures: tuple[str, ...]
    shared: int = 0
    maps: tuple[TensorMap, ...] = ()
    spans: tuple[Span | None, ...] = field(default=(), compare=False, repr=False)


def emit_kernel(
    launch: Launch,
    dialect: Dialect,
    outside: set[str] | None = None,
    in_memory: frozenset[Var] = frozenset(),
) -> KernelSource:
    """The text of a launch.

    `outside` are the names that the program has outside of functions, to which those of the kernel
    are added where buffers stand there. The function takes the addresses of the scalars that are
    `in_memory`, and the others' values. Raises CodegenError for what the dialect has no row for,
    naming it.
    """
    for buffer in (*launch.buffers, *launch.shared, *launch.local):
        dialect.element(buffer)
    dialect.check(launch)
    return _Writer(launch, dialect, set() if outside is None else outside, in_memory).kernel()


@dataclass(slots=True)
class _Writer:
    launch: Launch
    dialect: Dialect
    outside: set[str]
    in_memory: frozenset[Var]
    lines: list[str] = field(default_factory=list[str])
    depth: int = 1
    failures: list[str] = field(default_factory=list[str])
    span: Span | None = None
    spans: list[Span | None] = field(default_factory=list["Span | None"])
    exchanges: bool = False
    shared: int = 0
    s: Scope = field(init=False)
    an: Analyzer = field(init=False)

    def __post_init__(self) -> None:
        self.s = Scope(self.launch.name, self.dialect, self.failures, set())
        if self.dialect.outside:
            self.s.taken |= self.outside
        self.an = Analyzer()

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text if text else "")
        self.spans.append(self.span)

    @contextmanager
    def braces(self, head: str) -> Generator[None]:
        self.put(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.put("}")

    def text(self, e: expr.PrimExpr, level: int = 0) -> str:
        """Text of `e`, behind the lines that have to stand before its statement."""
        text = text_of(self.s, e, level)
        self.flush()
        return text

    def flush(self) -> None:
        for line in self.s.before:
            self.put(line)
        self.s.before.clear()

    def kernel(self) -> KernelSource:
        s, launch = self.s, self.launch
        written = {n.buffer for n in walk(launch.body) if isinstance(n, BufferStore)}
        read = {n.buffer for n in walk(launch.body) if isinstance(n, BufferLoad)}
        self.exchanges = any(b.scope == "global" for b in written & read)
        buffers = [(b, s.name(b), b in written) for b in launch.buffers]
        scalars = [(v, s.name(v)) for v in launch.scalars]
        for v in launch.sizes:
            s.nonneg.add(v)
            self.an.bind_shape(v)
        for axis in launch.axes:
            s.nonneg.add(axis.var)
            self.an.bind_range(axis.var, Range(const(0), axis.extent))
            self.define(axis.var, self.dialect.axis.format(name=axis.name))
            if isinstance(axis.extent, IntImm) and self.dialect.bound:
                bound = {"name": self.s.name(axis.var), "extent": axis.extent.value}
                self.put(self.dialect.bound.format(**bound))
        shared = self.arrays()
        if self.dialect.outside:
            s.failed = s.fresh(s.failed)
            self.outside |= {s.names[b] for b in (*launch.buffers, *launch.shared)}
            self.outside.add(s.failed)
        self.stmt(launch.body)
        x, y, z = (e.value for e in launch.extents("threadIdx") if isinstance(e, IntImm))
        failed = s.failed if self.failures else ""
        head = self.dialect.head(
            Frame(
                launch.name, buffers, scalars, failed, (x, y, z), shared, s.fresh, self.in_memory,
                tuple(s.maps.values()),
            )
        )  # fmt: skip
        code = "\n".join([head, *self.lines, "}"])
        spans = (*[None] * (head.count("\n") + 1), *self.spans, None)
        failures, maps = tuple(self.failures), tuple(s.maps)
        return KernelSource(launch.name, code + "\n", failures, self.shared, maps, spans)

    def define(self, var: Var, value: str) -> None:
        kind = self.dialect.type(var.dtype)
        self.put(self.dialect.constant.format(type=kind, name=self.s.name(var), value=value))

    def arrays(self) -> list[str]:
        """Declare the shared and private buffers; return those that stand outside."""
        facts = self.launch.facts
        shapes = {
            b: [max(d.value, 1) for d in b.shape if isinstance(d, IntImm)] or [1]
            for b in (*self.launch.shared, *self.launch.local)
        }
        sizes = {b: bytes_of(b.dtype) * math.prod(shapes[b]) for b in self.launch.shared}
        places: dict[Buffer, int] = {}
        most, total = facts.most_shared, 0
        for b, size in sizes.items():
            align = alignment_of(b, facts)
            places[b] = -(-total // align) * align
            total = places[b] + size
        if total > most:
            raise CodegenError(
                f"{self.launch.name!r} takes {total} bytes of shared memory per block; "
                f"{most} are there"
            )
        # Arrays that fit what every GPU has, 48 KB with CUDA, are declared. Larger ones are parts
        # of one dynamic array, whose size is asked for at the launch.
        asked = total > facts.shared
        self.shared = total if asked else 0
        outside: list[str] = []
        for b, dims in shapes.items():
            offset = places.get(b) if asked else None
            text = self.dialect.array(b, self.s.name(b), dims, facts, offset)
            if b.scope == "shared" and self.dialect.outside:
                outside.append(text)
            else:
                self.put(text)
        return outside

    def stmt(self, s: Stmt) -> None:
        outer = self.span
        self.span = s.span or outer
        self.write(s)
        self.span = outer

    def write(self, s: Stmt) -> None:
        match s:
            case loops.SeqStmt(stmts):
                for part in stmts:
                    self.stmt(part)
            case BufferStore():
                self.store(s)
            case For(kind="vectorized"):
                self.vectorized(s)
            case For(kind="serial" | "unrolled" | "parallel"):
                self.loop(s)
            case loops.IfThenElse(condition, then, other):
                with self.braces(f"if ({self.text(condition)})"), self.assuming(condition):
                    self.stmt(then)
                if other is not None:
                    with self.otherwise():
                        self.stmt(other)
            case loops.LetStmt(var, value, body):
                text = self.text(value)
                if is_nonneg(self.s, value):
                    self.s.nonneg.add(var)
                self.define(var, text)
                self.stmt(body)
            case loops.While():
                self.repeat(s)
            case loops.AssertStmt(condition, message, values):
                shown = message.replace("{}", "?") if values else message
                number = self.s.failure(f"assertion failed: {shown}")
                with self.braces(f"if (!({self.text(condition)}))"):
                    self.put(self.dialect.fail.format(failed=self.s.failed, number=number))
                    self.put("return;")
            case loops.Evaluate(value):
                self.evaluate(value)
            case _:
                raise CodegenError(
                    f"no {self.dialect.name} row for {type(s).__name__} in {self.launch.name!r}"
                )

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """The other case of the `if` that was written last."""
        self.lines[-1] += " else {"
        self.depth += 1
        yield
        self.depth -= 1
        self.put("}")

    def store(self, s: BufferStore) -> None:
        target, value = element(self.s, s.buffer, s.indices), text_of(self.s, s.value)
        self.flush()
        if s.buffer.scope == "global" and s.buffer.dtype in self.dialect.stored:
            value = self.dialect.stored[s.buffer.dtype].format(value=value)
        self.put(f"{target} = {value};")

    def repeat(self, s: loops.While) -> None:
        condition = text_of(self.s, s.condition)
        if not self.s.before:
            with self.braces(f"while ({condition})"):
                self.stmt(s.body)
            return
        # Statements that compute the condition are repeated in every iteration.
        with self.braces("while (true)"):
            self.flush()
            with self.braces(f"if (!({condition}))"):
                self.put("break;")
            self.stmt(s.body)

    @contextmanager
    def assuming(self, condition: expr.PrimExpr) -> Generator[None]:
        with self.an.assuming(condition):
            yield

    def evaluate(self, value: expr.PrimExpr) -> None:
        match value:
            case expr.StringImm(text):
                self.put(f"// {' '.join(text.split())}")
            case expr.Call(_, "prefetch"):
                pass  # a hint for processors without many threads to wait with
            case _ if is_sync(value):
                if self.exchanges and self.dialect.main_barrier:
                    self.put(self.dialect.main_barrier)
                self.put(self.dialect.barrier)
            case _:
                self.put(f"{self.text(value)};")

    def loop(self, s: For) -> None:
        if s.extent == const(1):
            self.s.values[s.loop_var] = s.min
            self.stmt(s.body)
            return
        low = text_of(self.s, s.min)
        high = self.text(s.min + s.extent, 8)
        if is_nonneg(self.s, s.min):
            self.s.nonneg.add(s.loop_var)
        name, kind = self.s.name(s.loop_var), self.dialect.type("int64")
        if s.kind == "unrolled" and self.dialect.unroll:
            self.put(self.dialect.unroll)
        head = self.dialect.loop.format(type=kind, name=name, low=low, high=high)
        with self.an.scope():
            self.an.bind_range(s.loop_var, Range(s.min, s.extent))
            with self.braces(head):
                self.stmt(s.body)

    def vectorized(self, s: For) -> None:
        wide = self.dialect.wide
        with self.an.scope():
            self.an.bind_range(s.loop_var, Range(s.min, s.extent))
            found = vector_loop(s, self.an, self.launch.facts) if wide is not None else None
        if wide is None or found is None:
            self.loop(_unrolled(s))
            return
        if found.full == IntImm(1, "bool"):
            self.lanes(s, found, wide)
            return
        with self.braces(f"if ({self.text(found.full)})"):
            self.lanes(s, found, wide)
        if not found.agree:
            with self.otherwise():
                self.loop(_unrolled(s))

    def lanes(self, s: For, v: VectorLoop, wide: Wide) -> None:
        """Loads, the lanes' values, the store."""
        assert isinstance(s.extent, IntImm)
        count, lane = s.extent.value, self.s.fresh("lane_of_vector")

        def neighbours(access: BufferLoad | BufferStore) -> dict[str, str]:
            """The type of the neighbours that the lanes access, and a name and a place for them."""
            start = text_of(self.s, self.an.simplify(v.start(access, s)), 9)
            name = array = self.s.names[access.buffer]
            kind = wide.type.format(type=self.dialect.element(access.buffer), count=count)
            if access.buffer.scope != "global":
                array = f"&{array}{'[0]' * access.buffer.ndim}"
            return {"vec": kind, "name": self.s.fresh(f"{name}_vec"), "at": f"{array} + {start}"}

        by_words = {load for part in (*v.parts, v.whole) if part for _, load in part.loads}
        words: dict[PrimExpr, str] = {}
        for load in v.loads:
            parts = neighbours(load)
            if v.whole is None:
                self.put(wide.load.format(**parts))
            self.s.vectors[load] = wide.lane.format(lane=lane, **parts)
            if load in by_words:
                words[load] = self.s.fresh(f"{parts['name']}_words")
                whole = {"name": words[load], "count": str(count // LANES), "at": parts["at"]}
                self.put(wide.loaded_words.format(**whole))
        if v.whole is not None:
            start = tuple(substitute(i, {s.loop_var: s.min}) for i in v.store.indices)
            first = element(self.s, v.store.buffer, start)
            self.words(v.whole, words, count, wide, wide.word_at.replace("{first}", first))
            self.s.vectors.clear()
            return
        for part in v.parts:
            bits = self.s.fresh("bytes")
            self.put(wide.words.format(name=bits, count=count // LANES))
            self.words(part, words, count, wide, wide.word.replace("{name}", bits))
            self.s.vectors[part.value] = wide.byte.format(name=bits, lane=lane)
            as_float = expr.Cast("float32", part.value)
            self.s.vectors[as_float] = wide.float.format(name=bits, lane=lane)
        stored = neighbours(v.store) if v.wide_store else {}
        if stored:
            self.put(wide.variable.format(**stored))
        self.put(self.dialect.unroll)
        with self.braces(wide.loop.format(lane=lane, count=count)):
            number = Var(lane)
            self.s.names[number] = lane
            self.s.nonneg.add(number)
            self.s.values[s.loop_var] = s.min + number
            if stored:
                target = wide.lane.format(lane=lane, **stored)
                self.put(f"{target} = {self.text(v.store.value)};")
            else:
                self.store(v.store)
        del self.s.values[s.loop_var]
        self.s.vectors.clear()
        if stored:
            self.put(wide.store.format(**stored))

    def words(
        self, part: Bytes, loaded: Mapping[PrimExpr, str], count: int, wide: Wide, target: str
    ) -> None:
        """Assign the words of a part of the lanes' values: `target` with `{word}`, the number of
        one. `loaded` names what was loaded."""
        word = self.s.fresh("word")
        for var, load in part.loads:
            self.s.names[var] = wide.word.format(name=loaded[load], word=word)
        self.put(self.dialect.unroll)
        with self.braces(wide.loop.format(lane=word, count=count // LANES)):
            self.put(f"{target.replace('{word}', word)} = {self.text(part.word)};")


def _unrolled(loop: For) -> For:
    return For(loop.loop_var, loop.min, loop.extent, "unrolled", loop.body)
