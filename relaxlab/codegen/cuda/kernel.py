"""One launch to one CUDA C function."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.cuda.expressions import Scope, c_type, element, is_nonneg, text_of
from relaxlab.codegen.cuda.launch import Launch
from relaxlab.codegen.cuda.thread_loops import is_sync
from relaxlab.codegen.cuda.vectors import VectorLoop, vector_loop
from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import expr, loops
from relaxlab.ir.brief import Brief
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import IntImm, Var, const
from relaxlab.ir.loops import Buffer, BufferStore, For, Range, Stmt
from relaxlab.ir.node import walk
from relaxlab.ir.span import Span


@dataclass(frozen=True, slots=True, repr=False)
class KernelSource(Brief):
    """A CUDA function. `failures` are the messages of its failures at run time: it then takes one
    more pointer, `int* failed`, to a zero that the number (from 1) of a failure replaces. `spans`
    gives for each line of `code` the span of its statement."""

    name: str
    code: str
    failures: tuple[str, ...]
    spans: tuple[Span | None, ...] = field(default=(), compare=False, repr=False)


def emit_kernel(launch: Launch, sizes: Sequence[Var] = ()) -> KernelSource:
    """CUDA C of `extern "C" __global__ void name(pointers…, scalars…)`.

    `sizes` are the scalars that are not negative. Raises CodegenError for what CUDA C has no
    row for, naming it.
    """
    return _Writer(launch, sizes).kernel()


@dataclass(slots=True)
class _Writer:
    launch: Launch
    sizes: Sequence[Var]
    lines: list[str] = field(default_factory=list[str])
    depth: int = 1
    failures: list[str] = field(default_factory=list[str])
    span: Span | None = None
    spans: list[Span | None] = field(default_factory=list["Span | None"])
    s: Scope = field(init=False)
    an: Analyzer = field(init=False)

    def __post_init__(self) -> None:
        self.s = Scope(self.launch.name, self.failures)
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

    def kernel(self) -> KernelSource:
        s, launch = self.s, self.launch
        params = self.parameters()
        for v in self.sizes:
            s.nonneg.add(v)
            self.an.bind_shape(v)
        for axis in launch.axes:
            s.nonneg.add(axis.var)
            self.an.bind_range(axis.var, Range(const(0), axis.extent))
            self.put(f"const int64_t {s.name(axis.var)} = {axis.name};")
        self.buffers()
        self.stmt(launch.body)
        if self.failures:
            params.append("int* __restrict__ failed")
        threads = 1
        for e in launch.extents("threadIdx"):
            assert isinstance(e, IntImm)
            threads *= e.value
        head = f'extern "C" __global__ void __launch_bounds__({threads})\n{launch.name}('
        head += _wrapped(params) + ") {"
        code = "\n".join([head, *self.lines, "}"])
        spans = (*[None] * (head.count("\n") + 1), *self.spans, None)
        return KernelSource(launch.name, code + "\n", tuple(self.failures), spans)

    def parameters(self) -> list[str]:
        written = {n.buffer for n in walk(self.launch.body) if isinstance(n, BufferStore)}
        params: list[str] = []
        for b in self.launch.buffers:
            const_ = "" if b in written else "const "
            params.append(f"{const_}{c_type(b.dtype)}* __restrict__ {self.s.name(b)}")
        for v in self.launch.scalars:
            params.append(f"{c_type(v.dtype)} {self.s.name(v)}")
        return params

    def buffers(self) -> None:
        """Declarations of the shared and private buffers."""
        total, facts = 0, self.launch.facts
        align = facts.vector_bits // 8
        for b in (*self.launch.shared, *self.launch.local):
            dims = [d.value for d in b.shape if isinstance(d, IntImm)] or [1]
            size = bytes_of(b.dtype)
            for d in dims:
                size *= max(d, 1)
            total += size if b.scope == "shared" else 0
            where = f"__shared__ __align__({align}) " if b.scope == "shared" else ""
            text = "".join(f"[{max(d, 1)}]" for d in dims)
            self.put(f"{where}{c_type(b.dtype)} {self.s.name(b)}{text};")
        if total > facts.shared:
            raise CodegenError(
                f"{self.launch.name!r} takes {total} bytes of shared memory per block; "
                f"{facts.shared} are there"
            )

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
            case BufferStore(buffer, value, indices):
                target = element(self.s, buffer, indices)
                self.put(f"{target} = {text_of(self.s, value)};")
            case For(kind="vectorized"):
                self.vectorized(s)
            case For(kind="serial" | "unrolled" | "parallel"):
                self.loop(s)
            case loops.IfThenElse(condition, then, other):
                with self.braces(f"if ({text_of(self.s, condition)})"), self.assuming(condition):
                    self.stmt(then)
                if other is not None:
                    self.lines[-1] += " else {"
                    self.depth += 1
                    self.stmt(other)
                    self.depth -= 1
                    self.put("}")
            case loops.LetStmt(var, value, body):
                text = text_of(self.s, value)
                if is_nonneg(self.s, value):
                    self.s.nonneg.add(var)
                self.put(f"const {c_type(var.dtype)} {self.s.name(var)} = {text};")
                self.stmt(body)
            case loops.While(condition, body):
                with self.braces(f"while ({text_of(self.s, condition)})"):
                    self.stmt(body)
            case loops.AssertStmt(condition, message):
                number = self.s.failure(f"assertion failed: {message}")
                with self.braces(f"if (!({text_of(self.s, condition)}))"):
                    self.put(f"atomicCAS(failed, 0, {number});")
                    self.put("return;")
            case loops.Evaluate(value):
                self.evaluate(value)
            case _:
                raise CodegenError(f"no CUDA row for {type(s).__name__} in {self.launch.name!r}")

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
                self.put("__syncthreads();")
            case _:
                self.put(f"{text_of(self.s, value)};")

    def loop(self, s: For) -> None:
        if s.extent == const(1):
            self.s.values[s.loop_var] = s.min
            self.stmt(s.body)
            return
        low = text_of(self.s, s.min)
        high = text_of(self.s, s.min + s.extent, 8)
        if is_nonneg(self.s, s.min):
            self.s.nonneg.add(s.loop_var)
        name = self.s.name(s.loop_var)
        if s.kind == "unrolled":
            self.put("#pragma unroll")
        head = f"for (int64_t {name} = {low}; {name} < {high}; ++{name})"
        with self.an.scope():
            self.an.bind_range(s.loop_var, Range(s.min, s.extent))
            with self.braces(head):
                self.stmt(s.body)

    def vectorized(self, s: For) -> None:
        with self.an.scope():
            self.an.bind_range(s.loop_var, Range(s.min, s.extent))
            found = vector_loop(s, self.an, self.launch.facts)
        if found is None:
            self.loop(_unrolled(s))
            return
        if found.full == IntImm(1, "bool"):
            self.lanes(s, found)
            return
        with self.braces(f"if ({text_of(self.s, found.full)})"):
            self.lanes(s, found)
        self.lines[-1] += " else {"
        self.depth += 1
        self.loop(_unrolled(s))
        self.depth -= 1
        self.put("}")

    def lanes(self, s: For, v: VectorLoop) -> None:
        """Loads, the lanes' values, the store."""
        assert isinstance(s.extent, IntImm)
        count, lane = s.extent.value, self.s.fresh("lane_of_vector")
        for load in v.loads:
            text = self.vector_of(load.buffer, count)
            name = self.s.fresh(f"{self.s.names[load.buffer]}_vec")
            at = text_of(self.s, self.an.simplify(v.start(load, s)), 9)
            pointer = f"{self.s.names[load.buffer]} + {at}"
            self.put(f"const {text} {name} = *reinterpret_cast<const {text}*>({pointer});")
            self.s.vectors[load] = f"{name}.lane[{lane}]"
        store, buffer = v.store, v.store.buffer
        name, text = "", ""
        if v.wide_store:
            text = self.vector_of(buffer, count)
            name = self.s.fresh(f"{self.s.names[buffer]}_vec")
            self.put(f"{text} {name};")
        self.put("#pragma unroll")
        low = s.min
        with self.braces(f"for (int {lane} = 0; {lane} < {count}; ++{lane})"):
            number = Var(lane)
            self.s.names[number] = lane
            self.s.nonneg.add(number)
            self.s.values[s.loop_var] = low + number
            target = f"{name}.lane[{lane}]" if name else element(self.s, buffer, store.indices)
            self.put(f"{target} = {text_of(self.s, store.value)};")
        del self.s.values[s.loop_var]
        for load in v.loads:
            del self.s.vectors[load]
        if name:
            at = text_of(self.s, self.an.simplify(v.start(store, s)), 9)
            pointer = f"{self.s.names[buffer]} + {at}"
            self.put(f"*reinterpret_cast<{text}*>({pointer}) = {name};")

    @staticmethod
    def vector_of(buffer: Buffer, count: int) -> str:
        return f"Vec<{c_type(buffer.dtype)}, {count}>"


def _unrolled(loop: For) -> For:
    return For(loop.loop_var, loop.min, loop.extent, "unrolled", loop.body)


def _wrapped(params: list[str]) -> str:
    """Parameters, on lines of their own if they are many."""
    line = ", ".join(params)
    return line if len(line) < 88 else "\n    " + ",\n    ".join(params)
