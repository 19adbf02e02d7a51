"""Reading loop functions: statements, blocks, buffers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeGuard

from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import is_dtype, is_int
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.node import Attrs, replace
from relaxlab.script.advice import unsupported
from relaxlab.script.assertions import message_of
from relaxlab.script.block_state import BlockState, Pending
from relaxlab.script.cells import (
    cell,
    cell_of,
    converted,
    narrowed,
    reassigned,
    store_cell,
)
from relaxlab.script.convert import (
    attribute_value,
    cast,
    elements,
    is_number,
    scalar_of,
    vector_indices,
)
from relaxlab.script.core import Arguments, Context, Failure
from relaxlab.script.expressions import (
    access,
    arguments,
    combine,
    condition,
    evaluate,
)
from relaxlab.script.frames import CALLS, as_python
from relaxlab.script.index_types import define_index, index_of, range_of
from relaxlab.script.jumps import JUMPS, Jump, without_jumps
from relaxlab.script.launch import declare_thread, loop_around
from relaxlab.script.loop_calls import call, known_names, region_of
from relaxlab.script.macros import expanding, is_macro, macro_called, macro_here
from relaxlab.script.returns import returned, taking_the_rest
from relaxlab.script.roots import TRUE
from relaxlab.script.values import (
    Annotations,
    Axis,
    BufferDecl,
    Handle,
    Launch,
    LoopSpec,
    Meta,
    RaggedBuffer,
    RaggedDecl,
    Ref,
    SliceAccess,
    SymbolDecl,
    ThreadTag,
    Value,
    VectorStore,
    View,
    describe,
    is_dict,
    is_sequence,
)
from relaxlab.script.views import as_stored, dtype_seen


class LoopReader:
    """Reads the body of one loop function."""

    def __init__(self, cx: Context) -> None:
        self.cx = cx
        self.block = BlockState("root", is_root=True)
        self.attrs: dict[str, Any] = {}
        self.matched: dict[Handle, loops.Buffer] = {}
        self.lets: list[set[str]] = []  # names bound by lets, per frame of statements
        self.reassigned: set[str] = set()  # names of scalars that are elements of memory
        self.ret_dtype: str | None = None  # that the signature says

    # --- Statement lists --------------------------------------------------------------------

    def statements(self, body: Iterable[ast.stmt]) -> loops.Stmt:
        """The statements as one; an empty list does nothing."""
        items: list[loops.Stmt | Pending] = []
        body = list(body)
        if not self.lets:
            self.reassigned |= reassigned(body)
        self.lets.append(set())
        for stmt in body:
            try:
                made = self._statement(stmt)
            except Failure as failure:
                self.cx.report(failure.diagnostic)
                self._poison(stmt)
            else:
                if made is not None:
                    items += made if isinstance(made, list) else [made]
        self.lets.pop()
        rest: list[loops.Stmt] = []
        for item in reversed(items):
            if isinstance(item, Pending):
                rest = [item.around(_join(rest))]
            else:
                rest.insert(0, item)
        return _join(rest)

    def _poison(self, stmt: ast.stmt) -> None:
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt]
        if isinstance(stmt, ast.Assign | ast.AnnAssign):
            for t in targets:
                self.cx.poison(t.target if isinstance(t, ast.AnnAssign) else t)

    def nested(self, body: Iterable[ast.stmt]) -> loops.Stmt:
        """Statements in a scope of their own."""
        with self.cx.frame():
            return self.statements(body)

    def _statement(self, stmt: ast.stmt) -> loops.Stmt | Pending | list[Any] | None:
        reader = _STATEMENTS.get(type(stmt))
        if reader is None:
            what, help = unsupported(stmt)
            self.cx.fail(stmt, "E0104", f"{what} is not part of a loop function", help=help)
        return reader(self, stmt)

    # --- Assignments ------------------------------------------------------------------------

    def assign(self, stmt: ast.Assign) -> Any:
        if len(stmt.targets) != 1:
            self.cx.fail(stmt, "E0104", "write one assignment per statement")
        target = stmt.targets[0]
        if isinstance(target, ast.Subscript):
            return self._store(target, stmt.value, stmt)
        value = evaluate(self.cx, stmt.value)
        if isinstance(target, ast.Name) and _is_scalar(value):
            self._scalar(target, **value.fields)
            return None
        held = cell_of(self.cx, target, self.reassigned, value)
        if held is not None:
            return store_cell(self.cx, held, value, stmt)
        if isinstance(target, ast.Tuple | ast.List):
            return self._unpack(target, value, stmt)
        if not isinstance(target, ast.Name):
            self.cx.fail(target, "E0104", "only names and buffer elements are assigned")
        return self._bind(target, value, stmt.value)

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, stmt: ast.Assign) -> Any:
        names = target.elts
        if not is_sequence(value) or len(value) != len(names):
            count = len(value) if is_sequence(value) else 1
            self.cx.fail(stmt, "E0113", f"{len(names)} names for {count} values")
        made: list[Any] = []
        for name, item in zip(names, value, strict=True):
            if not isinstance(name, ast.Name):
                self.cx.fail(name, "E0104", "only names are unpacked into")
            bound = self._bind(name, item, stmt.value)
            if bound is not None:
                made.append(bound)
        return made or None

    def _bind(self, target: ast.Name, value: Value, node: ast.expr) -> Pending | None:
        cx, name = self.cx, target.id
        self._check_rebinding(target)
        match value:
            case SymbolDecl(dtype):
                known = cx.symbols.get(name)
                # A size that a string introduced is int64, however narrow it is declared then.
                wide = known is not None and not known.declared and dtype == "int32"
                own = "int64" if wide else dtype
                symbol = cx.declare_symbol(name, own, target, reuse=False)
                if dtype == "int32":
                    cx.narrow_symbols.add(symbol)
            case Axis():
                self._axis(target, value)
            case BufferDecl():
                cx.define(name, self._buffer(target, value))
            case RaggedDecl(memory, shape, starts):
                cx.define(name, RaggedBuffer(self._buffer(target, memory), shape, starts))
            case (Axis() as axis,):  # T.axis.remap of one loop
                self._axis(target, axis)
            case ThreadTag():
                declare_thread(cx, target, value)
            case Launch() | Annotations():
                return Pending(loop_around(cx, value, target, node))
            case Meta(inner):
                cx.define(name, inner)
            case PrimExpr() | SliceAccess() | int() | float():
                return self._let(target, scalar_of(cx, value, node), None)
            case _:
                cx.define(name, value)
        return None

    def _check_rebinding(self, target: ast.Name) -> None:
        if any(target.id in names for names in self.lets[:-1]):
            self.cx.fail(
                target,
                "E0114",
                f"{target.id!r} is a value bound outside this loop or branch; assigning it here "
                "would not change it there",
                help=f"keep it in memory: `{target.id} = T.alloc_buffer((1,), dtype, "
                'scope="local")`, then assign `' + target.id + "[0]`",
            )

    def _let(self, target: ast.Name, value: PrimExpr, dtype: str | None) -> Pending | None:
        if isinstance(value, expr.Call) and value.op == "address_of":
            self.cx.define(target.id, value)  # a name of the memory that it is the address of
            return None
        var = expr.Var(target.id, dtype or value.dtype, span=self.cx.span(target))
        self.cx.define(target.id, var)
        self.lets[-1].add(target.id)
        return Pending(partial(loops.LetStmt, var, value, span=self.cx.span(target)))

    def annotated(self, stmt: ast.AnnAssign) -> Any:
        cx, target = self.cx, stmt.target
        if not isinstance(target, ast.Name):
            cx.fail(target, "E0104", "only names are annotated")
        kind = evaluate(cx, stmt.annotation)
        dtype = kind.path if isinstance(kind, Ref) and is_dtype(kind.path) else None
        if kind != Ref("T", "let") and dtype is None:
            cx.fail(stmt.annotation, "E0109", f"{describe(kind)} is not the type of a scalar")
        if dtype is not None and target.id in self.reassigned:
            held = self._scalar(target, dtype)
            given = None if stmt.value is None else evaluate(cx, stmt.value)
            return None if stmt.value is None else store_cell(cx, held, given, stmt)
        if stmt.value is None:
            cx.fail(stmt, "E0104", f"{target.id!r} has no value")
        value = evaluate(cx, stmt.value)
        if isinstance(value, SymbolDecl):
            return self._bind(target, value, stmt.value)
        self._check_rebinding(target)
        bound = scalar_of(cx, value, stmt.value, dtype)
        if dtype is not None and is_int(dtype) and is_int(bound.dtype):
            bound = narrowed(bound, dtype)
        elif dtype is not None and bound.dtype != dtype:
            cx.fail(
                stmt.value,
                "E0110",
                f"{target.id!r} is annotated as {dtype} and its value is {bound.dtype}",
                help=f'convert it: `T.Cast("{dtype}", ...)`',
            )
        return self._let(target, bound, dtype)

    def augmented(self, stmt: ast.AugAssign) -> loops.Stmt:
        target, held = stmt.target, cell_of(self.cx, stmt.target, self.reassigned)
        if held is None and not isinstance(target, ast.Subscript):
            self.cx.fail(stmt, "E0104", "only elements of buffers are updated in place")
        loaded = evaluate(self.cx, target)
        value = evaluate(self.cx, stmt.value)
        sides = (stmt.target, stmt.value)
        updated = combine(self.cx, type(stmt.op), loaded, value, stmt, sides)
        if held is not None:
            return store_cell(self.cx, held, updated, stmt)
        assert isinstance(target, ast.Subscript)
        return self._store_value(target, updated, stmt)

    def _store(self, target: ast.Subscript, value: ast.expr, stmt: ast.stmt) -> loops.Stmt:
        return self._store_value(target, evaluate(self.cx, value), stmt)

    def _store_value(self, target: ast.Subscript, value: Value, stmt: ast.stmt) -> loops.Stmt:
        cx = self.cx
        buffer = evaluate(cx, target.value)
        if not isinstance(buffer, loops.Buffer | View | RaggedBuffer):
            cx.fail(target, "E0106", f"{describe(buffer)} is not a buffer: it has no elements")
        place = access(cx, buffer, target)
        indices = (
            vector_indices(cx, place, target) if isinstance(place, SliceAccess) else place.indices
        )
        written = place.buffer
        bytes_ = loops.BufferLoad(written, indices)
        dtype = dtype_seen(buffer, bytes_)
        stored = converted(cx, scalar_of(cx, value, stmt, dtype), dtype, written, stmt)
        stored = as_stored(buffer, stored, bytes_)
        return loops.BufferStore(written, stored, indices, span=cx.span(stmt))

    def _scalar(self, target: ast.Name, dtype: str, scope: str = "local") -> loops.BufferLoad:
        """Declare a scalar that is assigned, as memory of one element."""
        held = cell(target.id, dtype, scope)
        self.block.allocs.append(held.buffer)
        self.reassigned.add(target.id)
        self.cx.define(target.id, held)
        return held

    # --- Buffers and axes -------------------------------------------------------------------

    def _buffer(self, target: ast.Name, decl: BufferDecl) -> loops.Buffer:
        cx = self.cx
        fields: dict[str, Any] = {"span": cx.span(target), **decl.fields}
        buffer = loops.Buffer(target.id, **fields)
        if decl.kind == "alloc":
            self.block.allocs.append(buffer)
        elif decl.kind == "match":
            if decl.source in self.matched:
                cx.fail(target, "E0117", f"{decl.source.name!r} is matched twice")
            self.matched[decl.source] = buffer
        elif decl.kind == "view":
            if self.block.is_root:
                cx.fail(target, "E0119", "a region is matched inside a block only")
            view = loops.MatchBufferRegion(buffer, decl.source, span=cx.span(target))
            self.block.views.append(view)
        else:
            cx.fail(
                target,
                "E0104",
                "T.Buffer declares a parameter",
                help="allocate with T.alloc_buffer",
            )
        return buffer

    def _axis(self, target: ast.Name, axis: Axis) -> None:
        self._needs_block(target, "a block axis")
        cx, span = self.cx, self.cx.span(target)
        value, domain = cast(index_of(cx, axis.value), "int64"), range_of(cx, axis.dom)
        var = define_index(cx, target.id, axis.dom.extent.dtype, target)
        self.block.iter_vars.append(loops.IterVar(var, domain, axis.kind, span=span))
        self.block.iter_values.append(value)

    def _needs_block(self, node: ast.AST, what: str) -> None:
        if self.block.is_root:
            help = 'open one: `with T.sblock("x"):`'
            self.cx.fail(node, "E0119", f"{what} belongs inside a block", help=help)

    # --- Loops and branches -----------------------------------------------------------------

    def for_loop(self, stmt: ast.For) -> loops.Stmt:
        cx = self.cx
        if stmt.orelse:
            cx.fail(stmt, "E0104", "`for ... else` is not part of the script")
        spec = self._loop_spec(stmt.iter)
        targets, whole = self._loop_names(stmt.target, len(spec.ranges))
        if len(targets) != len(spec.ranges) or not all(isinstance(t, ast.Name) for t in targets):
            cx.fail(
                stmt.target,
                "E0113",
                f"{len(targets)} loop variables for {len(spec.ranges)} loops",
            )
        with cx.frame():
            variables: list[expr.Var] = []
            for t, r in zip(targets, spec.ranges, strict=True):
                assert isinstance(t, ast.Name)
                var = define_index(cx, t.id, r.extent.dtype, t)
                cx.loops[var] = r
                variables.append(var)
                if spec.values is not None:
                    cx.define(t.id, spec.values(var))
            if whole is not None:
                cx.define(whole, tuple(cx.find(t.id) for t in targets if isinstance(t, ast.Name)))
            body = self.statements(stmt.body)
        span, made = cx.span(stmt), body
        for var, r in zip(reversed(variables), reversed(spec.ranges), strict=True):
            notes, wide = Attrs(spec.annotations), range_of(cx, r)
            made = loops.For(
                var, wide.min, wide.extent, spec.kind, made, spec.thread, notes, span=span
            )
        assert isinstance(made, loops.For)
        return self._without_jumps(made, len(spec.ranges))

    def _loop_names(self, target: ast.expr, count: int) -> tuple[list[ast.expr], str | None]:
        """The names of the loops, and the one that stands for all of them: `for x in T.grid(4, 8)`
        binds a tuple to `x`."""
        if isinstance(target, ast.Tuple):
            return target.elts, None
        if count == 1 or not isinstance(target, ast.Name):
            return [target], None
        names = [ast.copy_location(ast.Name(f"{target.id}_{i}"), target) for i in range(count)]
        return list(names), target.id

    def _without_jumps(self, loop: loops.For | loops.While, loops_at_once: int) -> loops.Stmt:
        made, flags = without_jumps(self.cx, loop, loops_at_once)
        self.block.allocs += flags
        return made

    def jump(self, stmt: ast.Break | ast.Continue) -> loops.Stmt:
        kind = "break" if isinstance(stmt, ast.Break) else "continue"
        return Jump(kind, span=self.cx.span(stmt))

    def _loop_spec(self, node: ast.expr) -> LoopSpec:
        cx = self.cx
        is_range = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "range"
        )
        if is_range:
            assert isinstance(node, ast.Call)
            given = arguments(cx, node, "range")
            given.member = "T.serial"
            if len(given.args) == 3:
                given.kwargs["step"] = given.args.pop()
            spec = call(cx, "serial", given)
        else:
            spec = evaluate(cx, node)
        if not isinstance(spec, LoopSpec):
            cx.fail(
                node,
                "E0104",
                "a loop runs over range, T.serial, T.parallel, T.vectorized, T.unroll, "
                f"T.thread_binding or T.grid, not {describe(spec)}",
            )
        return spec

    def while_loop(self, stmt: ast.While) -> loops.Stmt:
        if stmt.orelse:
            self.cx.fail(stmt, "E0104", "`while ... else` is not part of the script")
        test = condition(self.cx, stmt.test)
        loop = loops.While(test, self.nested(stmt.body), span=self.cx.span(stmt))
        return self._without_jumps(loop, 1)

    def branch(self, stmt: ast.If) -> Any:
        cx = self.cx
        test = evaluate(cx, stmt.test)
        if is_number(test):  # a constant of the surrounding Python chooses at parse time
            chosen = stmt.body if test else stmt.orelse
            return self.nested(chosen) if chosen else None
        when = condition(cx, stmt.test)
        then_case = self.nested(stmt.body)
        else_case = self.nested(stmt.orelse) if stmt.orelse else None
        span = cx.span(stmt)
        whole = loops.IfThenElse(when, then_case, else_case, span=span)
        around = taking_the_rest(whole)
        return whole if around is None else Pending(around)

    # --- With -------------------------------------------------------------------------------

    def with_block(self, stmt: ast.With) -> loops.Stmt | None:
        cx = self.cx
        if len(stmt.items) != 1:
            cx.fail(stmt, "E0104", "write one `with` per context")
        item = stmt.items[0]
        node = item.context_expr
        path = _callee(cx, node)
        if path in ("block", "sblock"):
            assert isinstance(node, ast.Call)
            return self._block(stmt, arguments(cx, node, f"T.{path}"))
        if path == "init":
            self._needs_block(stmt, "T.init()")
            self.block.init = self.nested(stmt.body)
            return None
        if path in CALLS:
            assert isinstance(node, ast.Call)
            return self.statements(as_python(cx, _callee, node, stmt.body, stmt))
        if path == "LetStmt":
            assert isinstance(node, ast.Call)
            return self._with_let(stmt, arguments(cx, node, "T.LetStmt"))
        if path in ("launch_thread", "attr"):
            launch = evaluate(cx, node)
            with cx.frame():
                around = loop_around(cx, launch, item.optional_vars, node)
                return around(self.statements(stmt.body))
        what = "T.sblock, T.init, T.If, T.While, T.Assert, T.LetStmt, T.attr or T.launch_thread"
        cx.fail(node, "E0104", f"`with` opens {what} in a loop function")

    def _with_let(self, stmt: ast.With, c: Arguments) -> loops.Stmt:
        value = c.bind()["value"]
        target = stmt.items[0].optional_vars
        assert value is not None
        if not isinstance(target, ast.Name):
            self.cx.fail(stmt, "E0104", "name the value: `with T.LetStmt(value) as x:`")
        bound = scalar_of(self.cx, value.value, value.node)
        with self.cx.frame():
            var = expr.Var(target.id, bound.dtype, span=self.cx.span(target))
            self.cx.define(target.id, var)
            body = self.statements(stmt.body)
        return loops.LetStmt(var, bound, body, span=self.cx.span(stmt))

    def _block(self, stmt: ast.With, c: Arguments) -> loops.Stmt:
        cx = self.cx
        name = c.bind()["name"]
        with self._in_block("" if name is None else str(name.value)) as state, cx.frame():
            body = self.statements(stmt.body)
        block = loops.Block(
            state.name,
            tuple(state.iter_vars),
            tuple(state.reads or ()),
            tuple(state.writes or ()),
            body,
            state.init,
            tuple(state.allocs),
            tuple(state.views),
            Attrs(state.annotations),
            span=cx.span(stmt),
        )
        if state.reads is None or state.writes is None:
            reads, writes = access_regions(block)
            block = replace(
                block,
                reads=block.reads if state.reads is not None else reads,
                writes=block.writes if state.writes is not None else writes,
            )
        values = tuple(state.iter_values)
        return loops.BlockRealize(values, state.predicate, block, span=cx.span(stmt))

    @contextmanager
    def _in_block(self, name: str) -> Generator[BlockState]:
        outer, self.block = self.block, BlockState(name)
        try:
            yield self.block
        finally:
            self.block = outer

    # --- Expression statements --------------------------------------------------------------

    def expression(self, stmt: ast.Expr) -> loops.Stmt | Pending | None:
        cx, node = self.cx, stmt.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return None  # a docstring
        macro = macro_called(cx, node)
        if macro is not None:
            assert isinstance(node, ast.Call)
            with expanding(cx, macro, arguments(cx, node, macro.node.name)) as body:
                return self.statements(body)
        path = _callee(cx, node)
        if path in _DECLARATIONS:
            assert isinstance(node, ast.Call)
            _DECLARATIONS[path](self, arguments(cx, node, f"T.{path}"))
            return None
        if path == "Assert":
            assert isinstance(node, ast.Call)
            return self.statements(as_python(cx, _callee, node, [], stmt))
        if path in JUMPS:
            return Jump(JUMPS[path], span=cx.span(stmt))
        if path == "evaluate":
            assert isinstance(node, ast.Call)
            value = arguments(cx, node, "T.evaluate").bind()["value"]
            assert value is not None
            made = scalar_of(cx, value.value, value.node)
        else:
            read = evaluate(cx, node)
            match read:
                case Launch() | Annotations():
                    return Pending(loop_around(cx, read, None, node))
                case VectorStore(buffer, indices, value):
                    return loops.BufferStore(buffer, value, indices, span=cx.span(stmt))
                case _:
                    made = scalar_of(cx, read, node)
        return loops.Evaluate(made, span=cx.span(stmt))

    def definition(self, stmt: ast.FunctionDef) -> None:
        if not is_macro(self.cx, stmt):
            self.cx.fail(stmt, "E0104", f"{stmt.name!r} is defined inside a loop function")
        self.cx.define(stmt.name, macro_here(self.cx, stmt))

    def reads(self, c: Arguments) -> None:
        self._needs_block(c.node, "T.reads")
        self.block.reads = (self.block.reads or []) + self._regions(c)

    def writes(self, c: Arguments) -> None:
        self._needs_block(c.node, "T.writes")
        self.block.writes = (self.block.writes or []) + self._regions(c)

    def _regions(self, c: Arguments) -> list[loops.BufferRegion]:
        args = c.no_keywords()
        if len(args) == 1 and is_sequence(args[0].value):
            args = elements(args[0])
        return [region_of(self.cx, a) for a in args]

    def where(self, c: Arguments) -> None:
        self._needs_block(c.node, "T.where")
        given = c.bind()["predicate"]
        assert given is not None
        test = scalar_of(self.cx, given.value, given.node)
        if test.dtype != "bool":
            self.cx.fail(given.node, "E0110", f"a condition (bool) is needed, not {test.dtype}")
        old = self.block.predicate
        self.block.predicate = test if old == TRUE else expr.And(old, test)

    def block_attr(self, c: Arguments) -> None:
        self._needs_block(c.node, "T.sblock_attr")
        self.block.annotations.update(self._attrs(c))

    def func_attr(self, c: Arguments) -> None:
        self.attrs.update(self._attrs(c))

    def _attrs(self, c: Arguments) -> dict[str, Any]:
        given = c.bind()["attrs"]
        assert given is not None
        if not is_dict(given.value):
            self.cx.fail(given.node, "E0106", "attributes are a dictionary")
        return attribute_value(self.cx, given.value, given.node)

    def assertion(self, stmt: ast.Assert) -> loops.Stmt:
        message, values = message_of(self.cx, stmt)
        test = condition(self.cx, stmt.test)
        return loops.AssertStmt(test, message, values, span=self.cx.span(stmt))

    def nothing(self, stmt: ast.Pass) -> None:
        """`pass`"""

    def returned(self, stmt: ast.Return) -> loops.Stmt | None:
        return returned(self.cx, stmt, self.ret_dtype)


def _is_scalar(value: Value) -> TypeGuard[BufferDecl]:
    """True for what `T.local_scalar` and the like give."""
    return isinstance(value, BufferDecl) and value.kind == "scalar"


def _join(stmts: list[loops.Stmt]) -> loops.Stmt:
    return loops.seq(*stmts) if stmts else loops.Evaluate(IntImm(0))


def _callee(cx: Context, node: ast.expr) -> str:
    """The path of the `T` function that `node` calls; empty when it is something else."""
    if not isinstance(node, ast.Call):
        return ""
    func: ast.expr = node.func
    path: list[str] = []
    while isinstance(func, ast.Attribute):
        path.insert(0, func.attr)
        func = func.value
    if not isinstance(func, ast.Name) or not path:
        return ""
    base = cx.lookup(func)
    name = ".".join(path)
    if base != Ref("T"):
        return ""
    if name not in known_names():
        help = cx.suggest(name, known_names())
        cx.fail(node.func, "E0103", f"T has no function {name!r}", help=help)
    return name


_STATEMENTS: dict[type[ast.stmt], Callable[[LoopReader, Any], Any]] = {
    ast.Assign: LoopReader.assign,
    ast.AnnAssign: LoopReader.annotated,
    ast.AugAssign: LoopReader.augmented,
    ast.For: LoopReader.for_loop,
    ast.While: LoopReader.while_loop,
    ast.If: LoopReader.branch,
    ast.With: LoopReader.with_block,
    ast.Expr: LoopReader.expression,
    ast.Assert: LoopReader.assertion,
    ast.FunctionDef: LoopReader.definition,
    ast.Break: LoopReader.jump,
    ast.Continue: LoopReader.jump,
    ast.Pass: LoopReader.nothing,
    ast.Return: LoopReader.returned,
}
_DECLARATIONS: dict[str, Callable[[LoopReader, Arguments], None]] = {
    "reads": LoopReader.reads,
    "writes": LoopReader.writes,
    "where": LoopReader.where,
    "block_attr": LoopReader.block_attr,
    "sblock_attr": LoopReader.block_attr,
    "func_attr": LoopReader.func_attr,
}
