"""Loop functions as Python: each statement becomes a NumPy statement with the same meaning.

A loop function is translated once to the text of a Python function and compiled. Every scalar is a
NumPy scalar of its exact dtype, so integers wrap and floats round as declared. A loop whose
iterations are independent is run for all of them at once: its variable becomes an array along an
axis of its own and broadcasting does the rest; a condition on such a variable keeps the points
where it holds. Threads of a block that need each other become generators, which run side by side
(`relaxlab.runtime.interpreter.threads`). Constants enter through a table, names are numbered: the
text holds nothing but what this file writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from relaxlab.codegen.separate_inits import separate_inits
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import lanes_of, numpy_dtype
from relaxlab.ir.errors import GENERATED
from relaxlab.ir.node import Atom, walk
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter import helpers
from relaxlab.runtime.interpreter.independence import is_independent
from relaxlab.runtime.interpreter.intrinsics import meaning_of
from relaxlab.runtime.interpreter.threads import ALLREDUCE, BARRIER, COLLECTIVES

_HINTS = ("prefetch", "assume", "start_profile_intrinsic", "end_profile_intrinsic")
"""Intrinsics without an effect on values; assumptions are not checked."""
_REMARKS = ("likely", "tvm_thread_invariant", "ignore_loop_partition")
"""Intrinsics that say something about the value that they return."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """Python names of variables and buffers in scope; `axes` are the names that hold arrays of
    points.

    `counters` are, for the loops that run all at once, the name of the iteration's number and that
    of the extent. A buffer in `private` was allocated inside the first so many of them: it has one
    leading dimension for each. In threads that run side by side, `team` is the name of what tells a
    thread from the others; `axis_of` has the thread axes of variables, `own` the names of tables of
    the memory that each thread has and of the arrays allocated around the threads. `reducer` is
    what an attribute around says of a reduction over threads.
    """

    names: Mapping[Atom, str]
    axes: tuple[str, ...] = ()
    counters: tuple[tuple[str, str], ...] = ()
    private: Mapping[loops.Buffer, int] = field(default_factory=dict[loops.Buffer, int])
    depth: int = 0
    block: str = ""
    threads: bool = False
    team: str = ""
    axis_of: Mapping[expr.Var, str] = field(default_factory=dict[expr.Var, str])
    own: Mapping[loops.Buffer, tuple[str, str]] = field(
        default_factory=dict[loops.Buffer, tuple[str, str]]
    )
    reducer: loops.Reducer | None = None
    loops: tuple[expr.Var, ...] = ()

    def bind(self, atom: Atom, name: str, *, array: bool = False) -> _Scope:
        axes = (*self.axes, name) if array else self.axes
        return replace(self, names={**self.names, atom: name}, axes=axes)


class _Writer:
    """Writes one function: `lines` of text and the table `constants` they refer to."""

    def __init__(self, vectorise: bool, watched: bool = False) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.known: dict[Any, str] = {}
        self.aliases: dict[loops.Buffer, loops.Buffer] = {}
        self.vectorise, self.watched = vectorise, watched
        self.count = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def put(self, indent: int, text: str) -> None:
        self.lines.append(" " * indent + text)

    def constant(self, value: Any, key: Any = None) -> str:
        """The name under which `value` is found in the table."""
        key = (type(value), value) if key is None else key
        if key not in self.known:
            self.known[key] = self.name("k")
            self.constants[self.known[key]] = value
        return self.known[key]

    def dtype(self, dtype: str) -> str:
        return self.constant(_scalar_dtype(dtype))

    def stmt(self, s: loops.Stmt, scope: _Scope, at: int) -> None:
        if self.watched and acts(s):
            values = "".join(f", {scope.names[v]}" for v in scope.loops)
            self.put(at, f"arrive({self.constant(Arrival(s, scope.block, scope.loops))}{values})")
        match s:
            case loops.For():
                self._for(s, scope, at)
            case loops.SeqStmt(stmts):
                self.put(at, "pass")
                for one in stmts:
                    self.stmt(one, scope, at)
            case loops.BufferStore(buffer, value, indices):
                self._store(buffer, value, indices, scope, at)
            case loops.BlockRealize():
                self._block(s, scope, at)
            case loops.IfThenElse(condition, then_case, else_case):
                cases = [lambda sc, i: self.stmt(then_case, sc, i)]
                if else_case is not None:
                    cases.append(lambda sc, i: self.stmt(else_case, sc, i))
                self._if(condition, cases, scope, at)
            case loops.LetStmt():
                name = self.name("v")
                self.put(at, f"{name} = {self.expr(s.value, scope)}")
                array = self.is_array(s.value, scope)
                self.stmt(s.body, scope.bind(s.var, name, array=array), at)
            case loops.While(condition, body):
                self.put(at, f"while {self.expr(condition, scope)}:")
                self.stmt(body, scope, at + 1)
            case loops.AssertStmt(condition, message, values):
                test = self.expr(condition, scope)
                shown = "".join(f", {self.expr(v, scope)}" for v in values)
                self.put(at, f"claim({test}, {self.constant(message)}{shown})")
            case loops.Evaluate(expr.Call(op=op, args=args)) if op == ALLREDUCE and scope.team:
                self._allreduce(args, scope, at)
            case loops.Evaluate(value):
                result = loops.returned_value(s)
                self.put(at, self.expr(value, scope) if result is None
                         else f"return {self.expr(result, scope)}")  # fmt: skip
            case _:
                raise ExecutionError(f"the interpreter has no meaning for {type(s).__name__}")

    def _for(self, s: loops.For, scope: _Scope, at: int) -> None:
        name = self.name("v")
        lo, extent = self.expr(s.min, scope), self.expr(s.extent, scope)
        threads = scope.threads or (s.thread or "").startswith("threadIdx")
        inner = replace(scope, threads=threads, reducer=_reducer(s) or scope.reducer)
        if s.thread is not None:
            inner = replace(inner, axis_of={**scope.axis_of, s.loop_var: s.thread})
        if s.thread is not None and self.meets(s):
            self._threads(s, lo, extent, inner, at)
        elif self.vectorise and is_independent(s, self.aliases):
            size, number = self.name("n"), self.name("v")
            self.put(at, f"{size} = {extent}")
            self.put(at, f"{number} = axis({size}, {scope.depth})")
            self.put(at, f"{name} = {lo} + {number}")
            counters = (*scope.counters, (number, size))
            inner = replace(
                inner, depth=scope.depth + 1, counters=counters, axes=(*scope.axes, number)
            )
            # Without iterations, what does not depend on their numbers is not evaluated, either.
            self.put(at, f"if {size} > 0:")
            self.stmt(s.body, inner.bind(s.loop_var, name, array=True), at + 1)
        else:
            self.put(at, f"for {name} in counting({lo}, {extent}):")
            inner = replace(inner, loops=(*inner.loops, s.loop_var))
            self.stmt(s.body, inner.bind(s.loop_var, name), at + 1)

    def meets(self, s: loops.For) -> bool:
        """True for a loop over threads of a block that need each other."""
        return not self.watched and (s.thread or "").startswith("threadIdx") and any(
            isinstance(n, expr.Call) and n.op in COLLECTIVES for n in walk(s.body)
        )  # fmt: skip

    def _threads(self, s: loops.For, lo: str, extent: str, scope: _Scope, at: int) -> None:
        body, number, team = self.name("t"), self.name("v"), self.name("w")
        self.put(at, f"def {body}({number}, {team}):")
        inner = replace(scope.bind(s.loop_var, number), team=team, depth=0)
        used = {n.buffer for n in walk(s) if isinstance(n, loops.BufferLoad | loops.BufferStore)}
        for buffer, (table, around) in scope.own.items():
            if buffer in used:
                name = self.name("b")
                self.put(at + 1, f"{name} = own({table}, {around}, {team})")
                inner = inner.bind(buffer, name)
        self.stmt(s.body, inner, at + 1)
        self.put(at + 1, "if False: yield")  # a generator, in any case
        fork = f"fork({self.constant(s.thread)}, {lo}, {extent}, {body})"
        self.put(at, f"yield {fork}" if scope.team else f"side_by_side({fork})")

    def _allreduce(self, args: tuple[expr.PrimExpr, ...], scope: _Scope, at: int) -> None:
        """A reduction over threads: the number of values, these, a condition, the elements that
        their results go to, and the variables of the axes."""
        if scope.reducer is None or not isinstance(args[0], expr.IntImm):
            raise ExecutionError(f"{ALLREDUCE} outside of an attribute 'reduce_scope'")
        count, reducer = args[0].value, scope.reducer
        values, condition = args[1 : 1 + count], args[1 + count]
        results, axes = args[2 + count : 2 + 2 * count], args[2 + 2 * count :]
        names = [self.name("v") for _ in (*reducer.lhs, *reducer.rhs)]
        inner = scope
        for var, name in zip((*reducer.lhs, *reducer.rhs), names, strict=True):
            inner = inner.bind(var, name)
        combined = "".join(f"{self.expr(r, inner)}, " for r in reducer.results)
        identities = "".join(f"{self.expr(r, scope)}, " for r in reducer.identities)
        given = "".join(f"{self.expr(v, scope)}, " for v in values)
        along = tuple(scope.axis_of[a] for a in axes if isinstance(a, expr.Var))
        found = self.name("v")
        self.count += 1
        self.put(
            at,
            f"{found} = yield meeting({self.count}, {self.constant(ALLREDUCE)}, "
            f"({given}({identities}), {self.expr(condition, scope)}), {self.constant(along)}, "
            f"lambda {', '.join(names)}: ({combined}))",
        )
        for n, result in enumerate(results):
            if not isinstance(result, loops.BufferLoad):
                raise ExecutionError(f"{ALLREDUCE} stores into an element of a buffer: {result}")
            place = self._place(result.buffer, result.indices, scope)
            self.put(at, f"write({found}[{n}], {place})")

    def _if(
        self,
        condition: expr.PrimExpr,
        cases: list[Callable[[_Scope, int], None]],
        scope: _Scope,
        at: int,
    ) -> None:
        """One or two continuations, under the condition and under its negation."""
        test = self.name("c")
        self.put(at, f"{test} = {self.expr(condition, scope)}")
        if not self.is_array(condition, scope):
            for keyword, case in zip((f"if {test}:", "else:"), cases, strict=False):
                self.put(at, keyword)
                case(scope, at + 1)
            return
        for which, case in zip((test, f"~{test}"), cases, strict=False):
            fresh = [self.name("v") for _ in scope.axes]
            kept = self.name("p")
            self.put(at, f"{kept} = points({', '.join((which, *scope.axes))})")
            self.put(at, f"if {kept}[0].size:")
            self.put(at + 1, f"{', '.join(fresh)}, = {kept}")
            renamed = dict(zip(scope.axes, fresh, strict=True))
            names = {a: renamed.get(n, n) for a, n in scope.names.items()}
            counters = tuple((renamed[c], size) for c, size in scope.counters)
            case(replace(scope, names=names, axes=tuple(fresh), counters=counters, depth=1), at + 1)

    def _store(
        self,
        buffer: loops.Buffer,
        value: expr.PrimExpr,
        indices: tuple[expr.PrimExpr, ...],
        scope: _Scope,
        at: int,
    ) -> None:
        expected = loops.load_dtype(buffer, indices)
        if value.dtype != expected:
            raise ExecutionError(
                f"store of {value.dtype} into {buffer.name}, which holds {expected}, "
                f"{_in_block(scope.block)}"
            )
        place = self._place(buffer, indices, scope)
        self.put(at, f"write({self.expr(value, scope)}, {place})")

    def _block(self, s: loops.BlockRealize, scope: _Scope, at: int) -> None:
        block = s.block

        def run(scope: _Scope, at: int) -> None:
            inner = replace(scope, block=block.name)
            for axis, value in zip(block.iter_vars, s.iter_values, strict=True):
                name = self.name("v")
                self.put(at, f"{name} = {self.expr(value, scope)}")
                inner = inner.bind(axis.var, name, array=self.is_array(value, scope))
            for buffer in block.alloc_buffers:
                inner = self._allocate(buffer, inner, at)
            for m in block.match_buffers:
                inner = self._view(m, inner, at)
            if block.init is not None:
                self._init(block, block.init, inner, at)
            self.stmt(block.body, inner, at)

        if s.predicate == expr.IntImm(1, "bool"):
            run(scope, at)
        else:
            self._if(s.predicate, [run], scope, at)

    def _init(self, block: loops.Block, init: loops.Stmt, scope: _Scope, at: int) -> None:
        first = [
            expr.EQ(axis.var, axis.dom.min) for axis in block.iter_vars if axis.kind == "reduce"
        ]
        if first:
            self._if(expr.all_of(tuple(first)), [lambda sc, i: self.stmt(init, sc, i)], scope, at)
        else:
            self.stmt(init, scope, at)

    def _allocate(self, buffer: loops.Buffer, scope: _Scope, at: int) -> _Scope:
        name = self.name("b")
        sizes = [size for _, size in scope.counters]
        shape = "".join(f"{d}, " for d in (*sizes, *(self.expr(d, scope) for d in buffer.shape)))
        _scalar_dtype(buffer.dtype)
        self.put(at, f"{name} = allocate(({shape}), {self.constant(buffer.dtype)})")
        if self.watched:
            self.put(at, f"made({name}, {self.constant(buffer)})")
        private = {**scope.private, buffer: len(sizes)} if sizes else scope.private
        own = scope.own
        if buffer.scope.partition(".")[0] == "local" and not scope.team:
            table = self.name("o")
            self.put(at, f"{table} = table()")
            own = {**own, buffer: (table, name)}
        return replace(scope.bind(buffer, name), private=private, own=own)

    def _view(self, m: loops.MatchBufferRegion, scope: _Scope, at: int) -> _Scope:
        """Emit a NumPy view of the region; symbols of its declaration that are still free are bound
        by it."""
        name, source = self.name("b"), m.source.buffer
        if source not in scope.names:
            raise ExecutionError(f"buffer {source.name} is used but not defined")
        bounds = [f"({self.expr(r.min, scope)}, {self.expr(r.extent, scope)})"
                  for r in m.source.region]  # fmt: skip
        where = self.constant(f"{source.name} {_in_block(scope.block)}")
        args = ", ".join([scope.names[source], where, str(m.buffer.ndim), *bounds])
        self.put(at, f"{name} = view({args})")
        self.aliases[m.buffer] = self.aliases.get(source, source)
        scope = scope.bind(m.buffer, name)
        item = f"{name}.itemsize"
        facts = [(d, f"{name}.shape[{i}]") for i, d in enumerate(m.buffer.shape)]
        facts += [(d, f"{name}.strides[{i}] // {item}") for i, d in enumerate(m.buffer.strides)]
        if m.buffer.elem_offset is not None:
            facts.append((m.buffer.elem_offset, f"offset({name}, {scope.names[source]})"))
        for d, text in facts:
            if isinstance(d, expr.Var) and d not in scope.names:
                symbol = self.name("v")
                self.put(at, f"{symbol} = {self.dtype(d.dtype)}.type({text})")
                scope = scope.bind(d, symbol)
        return scope

    def is_array(self, e: expr.PrimExpr, scope: _Scope) -> bool:
        """True if the value differs between the points that run at once."""
        return bool(scope.axes) and any(
            scope.names.get(n) in scope.axes
            if isinstance(n, expr.Var)
            else isinstance(n, loops.BufferLoad) and n.buffer in scope.private
            for n in walk(e)
        )

    def _place(
        self, buffer: loops.Buffer, indices: tuple[expr.PrimExpr, ...], scope: _Scope
    ) -> str:
        if buffer not in scope.names:
            raise ExecutionError(
                f"buffer {buffer.name} is used but not defined, {_in_block(scope.block)}"
            )
        if len(indices) != buffer.ndim:
            raise ExecutionError(
                f"{buffer.name} has {buffer.ndim} dimensions but {len(indices)} indices, "
                f"{_in_block(scope.block)}"
            )
        lead = scope.private.get(buffer, 0)
        where = self.constant(helpers.Place(buffer, _in_block(scope.block), lead))
        own = [number for number, _ in scope.counters[:lead]]
        values = (self.expr(i, scope) for i in indices)
        return ", ".join([scope.names[buffer], where, *own, *values])

    def expr(self, e: expr.PrimExpr, scope: _Scope) -> str:
        match e:
            case expr.Var(name):
                if e not in scope.names:
                    raise ExecutionError(f"variable {name} is used but not defined")
                return scope.names[e]
            case expr.IntImm(value, dtype) | expr.FloatImm(value, dtype):
                scalar = np.asarray(value).astype(_scalar_dtype(dtype))[()]
                return self.constant(scalar, (dtype, scalar.tobytes()))
            case expr.StringImm(value):
                return self.constant(value)
            case expr.Cast(to, value):
                return f"cast({self.expr(value, scope)}, {self.dtype(to)})"
            case expr.BinaryOp():
                return self._binary(e, scope)
            case expr.Not(a):
                return f"logical_not({self.expr(a, scope)})"
            case expr.Select(condition, yes, no):
                return f"pick({', '.join(self.expr(x, scope) for x in (condition, yes, no))})"
            case expr.Let():
                name = self.name("v")
                array = self.is_array(e.value, scope)
                inner = replace(scope.bind(e.var, name, array=array), team="")  # a function
                body = self.expr(e.body, inner)
                return f"(lambda {name}: {body})({self.expr(e.value, scope)})"
            case expr.Ramp(base, stride, lanes):
                return f"ramp({self.expr(base, scope)}, {self.expr(stride, scope)}, {lanes})"
            case expr.Broadcast(value, lanes):
                return f"lanes({self.expr(value, scope)}, {lanes})"
            case loops.BufferLoad(buffer, indices):
                return f"read({self._place(buffer, indices, scope)})"
            case expr.Call():
                return self._call(e, scope)
            case _:
                raise ExecutionError(f"the interpreter has no meaning for {type(e).__name__}")

    def _binary(self, e: expr.BinaryOp, scope: _Scope) -> str:
        a, b = self.expr(e.a, scope), self.expr(e.b, scope)
        if e.a.dtype != e.b.dtype:
            raise ExecutionError(f"{type(e).__name__} of {e.a.dtype} and {e.b.dtype}: {e}")
        if e.row.is_division:
            return f"{helpers.division(e)}({a}, {b})"
        if isinstance(e.row.arrays, np.ufunc):  # for lanes, where Python has no spelling
            return f"{e.row.arrays.__name__}({a}, {b})"
        return f"({a} {e.row.infix} {b})"

    def _call(self, e: expr.Call, scope: _Scope) -> str:
        if e.op == "if_then_else":
            return self._choose(e, scope)
        if e.op in _HINTS:
            return "None"  # a prefetch may point beyond the buffer
        if e.op in _REMARKS:
            return self.expr(e.args[0], scope)
        if e.op == "undef":
            return f"allocate((), {self.constant(e.dtype)})[()]"
        if e.op == "address_of":
            load = e.args[0]
            if not isinstance(load, loops.BufferLoad):
                raise ExecutionError(f"address_of needs an element of a buffer, not {load}")
            return f"address({self._place(load.buffer, load.indices, scope)})"
        if e.op in COLLECTIVES and scope.team:
            values = "".join(f"{self.expr(a, scope)}, " for a in e.args)
            self.count += 1
            return f"(yield meeting({self.count}, {self.constant(e.op)}, ({values})))"
        if e.op == BARRIER:
            if scope.threads:
                raise ExecutionError(
                    "tvm_storage_sync inside a threadIdx loop: the interpreter runs the threads "
                    "of a block one after the other; give each phase its own thread loop, or run "
                    "the function with relaxlab.simt"
                )
            return "None"
        if e.op == "warp_shuffle_xor":
            raise ExecutionError(
                "warp_shuffle_xor: the interpreter runs the threads of a warp one after the "
                "other; run the function with relaxlab.simt"
            )
        meaning = meaning_of(e.op)
        if meaning is None:
            raise ExecutionError(f"{e.op} needs the threads of a GPU, which run side by side")
        args = [self.expr(a, scope) for a in e.args]
        name = self.constant(meaning, ("meaning", e.op))
        return f"{name}({', '.join([self.dtype(e.result_dtype), *args])})"

    def _choose(self, e: expr.Call, scope: _Scope) -> str:
        condition, yes, no = (self.expr(a, scope) for a in e.args)
        if lanes_of(e.args[0].dtype) != 1:
            raise ExecutionError(f"if_then_else needs one condition for all lanes: {e}")
        if not self.is_array(e.args[0], scope):
            return f"({yes} if {condition} else {no})"
        names = ", ".join(scope.axes)
        return (
            f"lazily({self.dtype(e.dtype)}, {condition}, "
            f"lambda {names}: {yes}, lambda {names}: {no}, {names})"
        )


def _reducer(s: loops.For) -> loops.Reducer | None:
    """The reduction over threads inside that the attribute of a loop describes."""
    match s.annotations.get("reduce_scope"):
        case (loops.Reducer() as reducer, _) | (loops.Reducer() as reducer):
            return reducer
        case _:
            return None


def _scalar_dtype(dtype: str) -> np.dtype[Any]:
    try:
        return np.dtype(numpy_dtype(dtype))
    except TypeError:
        raise ExecutionError(f"the interpreter has no values of dtype {dtype!r}") from None


def _in_block(block: str) -> str:
    return f"in block {block!r}" if block else "outside any block"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A statement that is about to run, its block, and the loops around it, outermost first."""

    stmt: loops.Stmt
    block: str
    loops: tuple[expr.Var, ...]


def acts(s: loops.Stmt) -> bool:
    """True if a statement does something itself: it stores, calls, or reads memory to decide."""
    match s:
        case loops.BufferStore() | loops.AssertStmt():
            return True
        case loops.Evaluate(value):
            return isinstance(value, expr.Call)
        case loops.For():
            own = (s.min, s.extent)
        case loops.IfThenElse() | loops.While():
            own = (s.condition,)
        case loops.LetStmt():
            own = (s.value,)
        case loops.BlockRealize():
            own = (s.predicate, *s.iter_values)
        case _:
            own = ()
    return any(isinstance(n, loops.BufferLoad) for e in own for n in walk(e))


@lru_cache(maxsize=512)
def compile_loops(
    func: loops.PrimFunc, symbols: tuple[expr.Var, ...], vectorise: bool
) -> Callable[..., Any]:
    """A Python function of the parameters of `func` (arrays, NumPy scalars) and of `symbols`."""
    return _compiled(func, symbols, _Writer(vectorise), {})


def compile_watched(
    func: loops.PrimFunc, symbols: tuple[expr.Var, ...], watch: Mapping[str, Callable[..., Any]]
) -> Callable[..., None]:
    """Compile like `compile_loops`, but run one iteration after the other and call the caller's
    functions:

    `arrive(arrival, *values)` is called before each statement that `acts` with the values of its
    loops, `made(array, buffer)` after each allocation; `read`, `write` and `address` take the
    place of the interpreter's own.
    """
    return _compiled(func, symbols, _Writer(False, watched=True), watch)


def _compiled(
    func: loops.PrimFunc,
    symbols: tuple[expr.Var, ...],
    writer: _Writer,
    watch: Mapping[str, Callable[..., Any]],
) -> Callable[..., Any]:
    names: dict[Atom, str] = {}
    for p in (*func.params, *symbols):
        names[p] = writer.name("b" if isinstance(p, loops.Buffer) else "v")
        if isinstance(p, loops.Buffer) and lanes_of(p.dtype) != 1:
            raise ExecutionError(f"buffer {p.name} of vectors ({p.dtype}) is not supported")
    writer.put(0, f"def kernel({', '.join(names.values())}):")
    writer.stmt(separate_inits(func.body), _Scope(names), 1)
    writer.put(1, "return None")
    namespace: dict[str, Any] = {**helpers.NAMES, **watch, **writer.constants}
    exec(compile("\n".join(writer.lines), GENERATED, "exec"), namespace)
    return namespace["kernel"]
