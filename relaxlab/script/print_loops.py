"""Printing loop functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.node import NO_ATTRS, Node, replace, walk
from relaxlab.ir.substitute import free_symbols, symbols_in
from relaxlab.script.index_maps import FACTS_OF_EACH
from relaxlab.script.narrow import implied_casts
from relaxlab.script.print_expr import bounds, index_list, region, scalar, typed
from relaxlab.script.print_types import attribute, sequence
from relaxlab.script.roots import TRUE, has_own_root, implied_root
from relaxlab.script.writer import Writer, string


def prim_func(w: Writer, name: str, f: loops.PrimFunc, path: str) -> None:
    """Write `f` as a function of the script."""
    root = implied_root(f.body)
    has_blocks = _has_blocks(f.body if root is None else root.body)
    # Without blocks, memory is allocated by statements, and there is no root to be told of.
    plain_allocations = root is not None and bool(root.alloc_buffers) and not has_blocks
    rooted = has_own_root(f.body) and (not plain_allocations or f.root == "stated")
    options = ["private=True"] if f.private else []
    if w.show_meta and (rooted or has_blocks):
        options.append(f"s_tir={rooted}")
    w.typed_shapes = w.show_meta and f.index_dtype == "int64"
    w.implied = implied_casts(f) if w.show_meta else None
    w.narrow_symbols = w.implied is not None and f.index_dtype == "int32"
    mixes = w.implied is None and any(map(_mixes_integers, walk(f.body)))
    w.typed_loops = w.typed_shapes or (w.show_meta and mixes)
    w.launches = w.show_meta and not rooted and not has_blocks
    with w.node(path):
        w.line(f"@T.prim_func({', '.join(options)})" if options else "@T.prim_func")
        with w.names.scope():
            matched: list[tuple[str, loops.Buffer, str]] = []
            params = [_param(w, p, f"{path}.params[{i}]", matched) for i, p in enumerate(f.params)]
            result = "" if f.ret_dtype is None else f" -> T.{f.ret_dtype}"
            w.line(f"def {name}({', '.join(params)}){result}:")
            with w.indented():
                _prologue(w, f, matched, path)
                for i, required in enumerate(f.requires):
                    statement(w, required, f"{path}.requires[{i}]")
                if root is None:
                    statement(w, f.body, path + ".body")
                elif not plain_allocations:
                    inner = path + ".body.block"
                    _allocations(w, root, inner)
                    statement(w, root.body, inner + ".body")
                else:
                    _unblocked(w, root, path + ".body.block")


def _has_blocks(s: loops.Stmt) -> bool:
    return any(isinstance(n, loops.BlockRealize) for n in walk(s))


def _unblocked(w: Writer, root: loops.Block, path: str) -> None:
    """Write a root block whose function has no other: allocations are statements."""
    used = {n for n in walk(root.body) if isinstance(n, loops.Buffer)}
    for i, b in enumerate(root.alloc_buffers):
        where = f"{path}.alloc_buffers[{i}]"
        if b in used:
            w.unplaced[b] = where
        else:
            _allocation(w, b, where, "alloc_buffer")
    statement(w, root.body, path + ".body")


def _place(w: Writer, stmts: Sequence[loops.Stmt], i: int) -> None:
    """Write the allocations that belong before a statement of a sequence: where the script that
    was read has them, and else before the first statement that needs them."""
    s = stmts[i]
    for b, path in list(w.unplaced.items()):
        users = [t for t in stmts[i:] if _uses(t, b)]
        if not users:
            continue
        alone = len(users) == 1 and sum(_uses(part, b) for part in _parts(s)) == 1
        needed = users[0] is s and not (alone and _follows(b, s, w.launches))
        if needed or (s.span is not None and _follows(s, b, False)):
            del w.unplaced[b]
            _allocation(w, b, path, "alloc_buffer")


def _uses(s: loops.Stmt, b: loops.Buffer) -> bool:
    return any(n is b for n in walk(s))


def _parts(s: loops.Stmt) -> tuple[loops.Stmt, ...]:
    """The bodies of a loop or a condition."""
    match s:
        case loops.For(body=body) | loops.While(body=body):
            return (body,)
        case loops.IfThenElse(_, then, other):
            return (then,) if other is None else (then, other)
        case _:
            return ()


def _follows(a: Node, b: Node, launches: bool) -> bool:
    """True if the script that both were read from has `a` in the body of `b`, if that has one, or
    else after it; the body of a launch is all that follows."""
    if a.span is None or b.span is None or a.span.source is not b.span.source:
        return False
    ends = isinstance(b, loops.Stmt) and not (launches and isinstance(b, loops.For) and b.thread)
    return b.span.line < a.span.line and not (ends and a.span.line > b.span.end_line)


def _param(
    w: Writer,
    p: loops.Buffer | expr.Var,
    path: str,
    matched: list[tuple[str, loops.Buffer, str]],
) -> str:
    if isinstance(p, expr.Var):
        # A bare handle is one that `T.match_buffer` gives a shape.
        kind = 'handle("void")' if p.dtype == "handle" else _declared(w, p)
        return w.mark(path, f"{w.names.declare(p, p.name)}: T.{kind}")
    if not any(symbols_in(p)) and not p.facts:
        name = w.names.declare(p, p.name)
        return w.mark(path, f"{name}: T.Buffer({_buffer(w, p, path)})")
    handle = w.names.fresh(f"var_{p.name}")
    matched.append((handle, p, path))
    return f"{handle}: T.handle"


def _declared(w: Writer, v: expr.Var) -> str:
    return "int32" if w.narrow_symbols and v.dtype == "int64" else v.dtype


def _prologue(
    w: Writer, f: loops.PrimFunc, matched: list[tuple[str, loops.Buffer, str]], path: str
) -> None:
    attrs = w.shown(f.attrs)
    if attrs:
        items = (f"{string(k)}: {_noted(w, k, v, path)}" for k, v in attrs.items())
        w.line(f"T.func_attr({{{', '.join(items)}}})")
    for symbol in free_symbols(f):
        w.line(f"{w.names.declare(symbol, symbol.name)} = T.{_declared(w, symbol)}()")
    # Facts of an index function may mention other buffers, so these are declared first.
    for handle, buffer, path in sorted(matched, key=lambda m: _depth(m[1])):
        name = w.names.declare(buffer, buffer.name)
        call = "T.index_function" if buffer.facts else "T.match_buffer"
        text = f"{name} = {call}({handle}, {_buffer(w, buffer, path)})"
        w.line(w.mark(path, text))


def _noted(w: Writer, key: str, value: object, path: str) -> str:
    """An attribute of a function, of which targets say what they are."""
    text = attribute(w, value, f"{path}.attrs[{key!r}]")
    return f"T.target({text})" if key == "target" and isinstance(value, str | Mapping) else text


def _depth(b: loops.Buffer) -> int:
    """The number of index functions after each other that the facts of `b` go through."""
    mentioned = {n.buffer for f in b.facts for n in walk(f) if isinstance(n, loops.BufferLoad)}
    return bool(b.facts) + max(map(_depth, mentioned - {b}), default=0)


def _fact(w: Writer, fact: loops.Fact, path: str) -> str:
    match fact:
        case loops.Within(low, high):
            return f"T.range({scalar(w, low, path + '.low')}, {scalar(w, high, path + '.high')})"
        case loops.Nondecreasing(first, last):
            ends = (("first", first), ("last", last))
            given = [f"{n}={scalar(w, e, f'{path}.{n}')}" for n, e in ends if e is not None]
            return f"T.nondecreasing({', '.join(given)})"
        case loops.FactOfEach():
            with w.names.scope():
                index = expr.Var("i")
                name = w.names.declare(index, index.name)
                of = scalar(w, fact.at(index), path + ".of")
                return f"T.{FACTS_OF_EACH[type(fact)]}(lambda {name}: {of})"
        case _:
            raise TypeError(f"{type(fact).__name__} is no fact")


def _buffer(w: Writer, b: loops.Buffer, path: str) -> str:
    """Shape, dtype and the further properties that are not the usual ones."""
    return ", ".join([_shape(w, b.shape, path + ".shape"), f'"{b.dtype}"', *_layout(w, b, path)])


def _shape(w: Writer, shape: tuple[PrimExpr, ...], path: str) -> str:
    texts = [scalar(w, s, f"{path}[{i}]") for i, s in enumerate(shape)]
    return f"({sequence([typed(w, t) if w.typed_shapes else t for t in texts])})"


def _layout(w: Writer, b: loops.Buffer, path: str) -> list[str]:
    parts: list[str] = []
    if b.strides:
        parts.append(f"strides={_shape(w, b.strides, path + '.strides')}")
    if b.elem_offset is not None:
        parts.append(f"elem_offset={scalar(w, b.elem_offset, path + '.elem_offset')}")
    if b.scope != "global":
        parts.append(f'scope="{b.scope}"')
    if b.align != 64:
        parts.append(f"align={b.align}")
    if b.offset_factor and w.show_meta:
        parts.append(f"offset_factor={b.offset_factor}")
    if b.facts:
        facts = [_fact(w, f, f"{path}.facts[{i}]") for i, f in enumerate(b.facts)]
        parts.append(f"facts=[{', '.join(facts)}]")
    if b.annotations:
        parts.append(f"annotations={attribute(w, b.annotations, path + '.annotations')}")
    return parts


def _allocations(w: Writer, block: loops.Block, path: str) -> None:
    for i, b in enumerate(block.alloc_buffers):
        _allocation(w, b, f"{path}.alloc_buffers[{i}]", "sblock_alloc_buffer")


def _allocation(w: Writer, b: loops.Buffer, path: str, call: str) -> None:
    text = _buffer(w, b, path)
    name = w.names.declare(b, b.name)
    w.line(w.mark(path, f"{name} = T.{call}({text})"))


def statement(w: Writer, s: loops.Stmt, path: str) -> None:
    """Write a statement."""
    if isinstance(s, loops.SeqStmt):
        for i, item in enumerate(s.stmts):
            _place(w, s.stmts, i)
            where = f"{path}.stmts[{i}]"
            if isinstance(item, loops.LetStmt) and i + 1 < len(s.stmts):
                _scoped_let(w, item, where)
            else:
                statement(w, item, where)
        return
    _place(w, (s,), 0)
    with w.node(path):
        _WRITERS[type(s)](w, s, path)


def _scoped_let(w: Writer, s: loops.LetStmt, path: str) -> None:
    """A let that ends before its neighbours do."""
    with w.node(path):
        value = scalar(w, s.value, path + ".value")
        name = w.names.fresh(s.var.name)
        w.line(f"with T.LetStmt({value}) as {name}:")
        with w.indented():
            w.names.declare(s.var, s.var.name, same_as=name)
            statement(w, s.body, path + ".body")


def _let(w: Writer, s: loops.LetStmt, path: str) -> None:
    value = scalar(w, s.value, path + ".value")
    w.line(f"{w.names.declare(s.var, s.var.name)}: T.let = {value}")
    statement(w, s.body, path + ".body")


def _store(w: Writer, s: loops.BufferStore, path: str) -> None:
    indices = index_list(w, s.indices, path)
    value = scalar(w, s.value, path + ".value")
    w.line(f"{w.names.of(s.buffer, s.buffer.name)}[{indices}] = {value}")


def _evaluate(w: Writer, s: loops.Evaluate, path: str) -> None:
    value = loops.returned_value(s)
    if value is not None:
        w.line(f"return {scalar(w, value, path + '.value.args[0]')}")
        return
    w.line(f"T.evaluate({scalar(w, s.value, path + '.value')})")


def _assert(w: Writer, s: loops.AssertStmt, path: str) -> None:
    values = [scalar(w, v, f"{path}.values[{i}]") for i, v in enumerate(s.values)]
    shown = string(s.message) + (f".format({', '.join(values)})" if values else "")
    w.line(f"assert {scalar(w, s.condition, path + '.condition')}, {shown}")


def _while(w: Writer, s: loops.While, path: str) -> None:
    w.line(f"while {scalar(w, s.condition, path + '.condition')}:")
    with w.indented():
        statement(w, s.body, path + ".body")


def _if(w: Writer, s: loops.IfThenElse, path: str) -> None:
    w.line(f"if {scalar(w, s.condition, path + '.condition')}:")
    with w.indented():
        statement(w, s.then_case, path + ".then_case")
    if s.else_case is not None:
        w.line("else:")
        with w.indented():
            statement(w, s.else_case, path + ".else_case")


_LOOPS = {
    "parallel": "T.parallel",
    "vectorized": "T.vectorized",
    "unrolled": "T.unroll",
    "thread_binding": "T.thread_binding",
}


NODE_ATTRIBUTES = ("reduce_scope", "double_buffer_scope", "double_buffer_write")
"""The attributes that are about a node, which comes before their value: a reducer, or a buffer."""


def _about_node(w: Writer, s: loops.For, key: str, path: str) -> None:
    """Write a statement inside of an attribute about a node."""
    node, value = s.annotations[key]
    where = f"{path}.annotations[{key!r}]"
    memory = _named(s, node)
    about = attribute(w, node, where) if memory is None else f"{w.names.of(memory, node)}.data"
    w.line(f"with T.attr({about}, {string(key)}, {attribute(w, value, where)}):")
    rest = s.annotations.with_(**{key: None})
    once = s.extent == expr.const(1) and s.min == expr.const(0) and s.kind == "serial"
    used = any(n is s.loop_var for n in walk(s.body))
    with w.indented(), w.names.scope():
        if once and not used and not rest:
            statement(w, s.body, path + ".body")
        else:
            _for(w, replace(s, annotations=rest), path)


def _named(s: loops.For, name: object) -> loops.Buffer | None:
    """The buffer of a name that a loop accesses."""
    buffers = (n for n in walk(s.body) if isinstance(n, loops.Buffer))
    return next((b for b in buffers if b.name == name), None)


def _is_about_node(s: loops.For, key: str) -> bool:
    match s.annotations.get(key):
        case (loops.Reducer(), _):
            return True
        case (str(name), _):
            return _named(s, name) is not None
        case _:
            return False


def _for(w: Writer, s: loops.For, path: str) -> None:
    about = next((k for k in NODE_ATTRIBUTES if _is_about_node(s, k)), None)
    if about is not None:
        return _about_node(w, s, about, path)
    nest = _grid(s)
    places = [path + ".body" * k for k in range(len(nest))]
    if len(nest) > 1:
        pairs = zip(nest, places, strict=True)
        extents = [_end(w, scalar(w, f.extent, p + ".extent")) for f, p in pairs]
        iterate = f"T.grid({', '.join(extents)})"
    else:
        iterate = _iterable(w, s, path)
    launched = w.launches and s.thread and s.min == expr.const(0) and not s.annotations
    with w.names.scope():
        names = [w.names.declare(f.loop_var, f.loop_var.name) for f in nest]
        w.loops.update({f.loop_var: (f.min, f.extent) for f in nest})
        if launched:
            extent = scalar(w, s.extent, path + ".extent")
            w.line(f'with T.launch_thread("{s.thread}", {extent}) as {names[0]}:')
        else:
            w.line(f"for {', '.join(names)} in {iterate}:")
        with w.indented():
            statement(w, nest[-1].body, places[-1] + ".body")


def _end(w: Writer, text: str) -> str:
    """Return a bound of a loop as text: a bare number, unless TVM must be told that it is not
    int32."""
    return typed(w, text) if w.typed_loops else text


def _mixes_integers(n: Node) -> bool:
    """True if `n` needs integers of one dtype in TVM, which elsewhere widens them itself."""
    match n:
        case expr.CmpOp(a, b):
            literal = isinstance(a, IntImm) or isinstance(b, IntImm)
            return a.dtype == "int64" and not literal
        case expr.Select() | expr.Call(_, "if_then_else"):
            return n.dtype == "int64"
        case _:
            return False


def _grid(s: loops.For) -> list[loops.For]:
    """The serial loops nested directly in each other, with extents that do not depend on them."""
    nest = [s]
    seen = {s.loop_var}
    while _is_simple(nest[-1]):
        inner = nest[-1].body
        if not isinstance(inner, loops.For) or not _is_simple(inner):
            break
        if inner.loop_var in seen or not seen.isdisjoint(symbols_in(inner.extent)):
            break
        nest.append(inner)
        seen.add(inner.loop_var)
    return nest


def _is_simple(s: loops.For) -> bool:
    zero = isinstance(s.min, IntImm) and s.min == expr.const(0, s.extent.dtype)
    return s.kind == "serial" and zero and not s.annotations


def _iterable(w: Writer, s: loops.For, path: str) -> str:
    if s.min == expr.const(0, s.extent.dtype):
        ends = [_end(w, scalar(w, s.extent, path + ".extent"))]
    else:
        ends = [_end(w, text) for text in bounds(w, s.min, s.extent, path)]
    extra = [f'thread="{s.thread}"'] if s.kind == "thread_binding" else []
    if s.annotations != NO_ATTRS:
        extra.append(f"annotations={attribute(w, s.annotations, path + '.annotations')}")
    call = _LOOPS.get(s.kind) or ("T.serial" if extra else "range")
    return f"{call}({', '.join([*ends, *extra])})"


def _block(w: Writer, s: loops.BlockRealize, path: str) -> None:
    b, inner = s.block, path + ".block"
    w.line(f"with T.sblock({string(b.name)}):")
    with w.indented():
        _axes(w, s, path)
        if s.predicate != TRUE:
            w.line(f"T.where({scalar(w, s.predicate, path + '.predicate')})")
        if w.show_meta:
            _regions(w, b, inner)
        if b.annotations != NO_ATTRS:
            w.line(f"T.sblock_attr({attribute(w, b.annotations, inner + '.annotations')})")
        _allocations(w, b, inner)
        for i, m in enumerate(b.match_buffers):
            where = f"{inner}.match_buffers[{i}]"
            source = region(w, m.source, where + ".source")
            layout = _buffer(w, m.buffer, where + ".buffer")
            target = w.names.declare(m.buffer, m.buffer.name)
            w.line(w.mark(where, f"{target} = T.match_buffer({source}, {layout})"))
        if b.init is not None:
            w.line("with T.init():")
            with w.indented():
                statement(w, b.init, inner + ".init")
        statement(w, b.body, inner + ".body")


def _regions(w: Writer, b: loops.Block, path: str) -> None:
    reads = [region(w, r, f"{path}.reads[{i}]") for i, r in enumerate(b.reads)]
    w.line(f"T.reads({', '.join(reads)})")
    writes = [region(w, r, f"{path}.writes[{i}]") for i, r in enumerate(b.writes)]
    w.line(f"T.writes({', '.join(writes)})")


def _axes(w: Writer, s: loops.BlockRealize, path: str) -> None:
    axes = s.block.iter_vars
    if len(axes) > 1 and all(map(partial(_remaps, w), axes, s.iter_values)):
        kinds = "".join(a.kind[0].upper() for a in axes)
        bound = [scalar(w, v, f"{path}.iter_values[{i}]") for i, v in enumerate(s.iter_values)]
        names = ", ".join(w.names.declare(a.var, a.var.name) for a in axes)
        text = f'{names} = T.axis.remap("{kinds}", [{", ".join(bound)}])'
        w.line(w.mark(f"{path}.block.iter_vars", text))
        return
    values = [scalar(w, v, f"{path}.iter_values[{i}]") for i, v in enumerate(s.iter_values)]
    places = [f"{path}.block.iter_vars[{i}]" for i in range(len(axes))]
    for axis, value, where in zip(axes, values, places, strict=True):
        match axis.dom.min:
            case IntImm(0):
                dom = _end(w, scalar(w, axis.dom.extent, where + ".dom.extent"))
            case _:
                ends = bounds(w, axis.dom.min, axis.dom.extent, where + ".dom")
                dom = f"({', '.join(_end(w, text) for text in ends)})"
        name = w.names.declare(axis.var, axis.var.name)
        w.line(w.mark(where, f"{name} = T.axis.{axis.kind}({dom}, {value})"))


def _remaps(w: Writer, axis: loops.IterVar, value: PrimExpr) -> bool:
    """True if the axis is just a loop: same range, bound to its variable."""
    if axis.kind not in ("spatial", "reduce") or not isinstance(value, expr.Var):
        return False
    return w.loops.get(value) == (axis.dom.min, axis.dom.extent)


_WRITERS: dict[type[loops.Stmt], Callable[[Writer, loops.Stmt, str], None]] = {
    loops.LetStmt: _let,
    loops.BufferStore: _store,
    loops.Evaluate: _evaluate,
    loops.AssertStmt: _assert,
    loops.While: _while,
    loops.IfThenElse: _if,
    loops.For: _for,
    loops.BlockRealize: _block,
}  # type: ignore[dict-item]
