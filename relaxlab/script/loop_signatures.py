"""Reading loop functions: the signature, the handles it matches, the implied root block."""

from __future__ import annotations

import ast
from typing import Any

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.node import Attrs, replace, walk
from relaxlab.ir.span import Span
from relaxlab.ir.substitute import symbols_in
from relaxlab.script.convert import pointer_of
from relaxlab.script.core import Context, Failure
from relaxlab.script.expressions import evaluate
from relaxlab.script.loop_functions import LoopReader
from relaxlab.script.returns import check_returns
from relaxlab.script.roots import TRUE, has_own_root
from relaxlab.script.values import POISON, BufferDecl, Handle, Ref, Value, describe


def read_prim_func(cx: Context, node: ast.FunctionDef, *, s_tir: bool | None) -> loops.PrimFunc:
    """The loop function that `node` defines. `s_tir`: as the decorator says, None if silent."""
    reader = LoopReader(cx)
    with cx.function("T"):
        for p in getattr(node, "type_params", ()):  # def f[n](...) of newer Python
            cx.string_symbols = True
            cx.symbol(p.name, node)
        params = _params(cx, node)
        cx.string_symbols = False
        reader.ret_dtype = _annotated_dtype(cx, node.returns)
        body = reader.statements(node.body)
        check_returns(cx, body)
    resolved = tuple(_resolve(cx, reader, p) for p in params)
    attrs = Attrs(reader.attrs)
    requires, body = _required(body)
    wrapped = _with_root(reader, body, s_tir, cx.span(node))
    func = loops.PrimFunc(resolved, wrapped, attrs, requires=requires, span=cx.span(node))
    symbols = {v for v in symbols_in(resolved) if v.dtype == "int64"}
    narrow = symbols and symbols <= {*cx.widened.values()}
    dtype = "int64" if _states_int64(node) else "int32" if narrow else ""
    return replace(func, index_dtype=dtype, root="stated" if s_tir else "")


def _states_int64(node: ast.FunctionDef) -> bool:
    """True if the shape of a buffer has an extent such as `T.int64(16)`."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    shapes = [
        a for c in calls if ast.unparse(c.func).lower().endswith("buffer")
        for a in c.args if isinstance(a, ast.Tuple | ast.List)
    ]  # fmt: skip
    extents = (e for shape in shapes for e in shape.elts if isinstance(e, ast.Call))
    return any(ast.unparse(e.func) == "T.int64" and e.args for e in extents)


def _required(body: loops.Stmt) -> tuple[tuple[loops.AssertStmt, ...], loops.Stmt]:
    """The assertions at the top of a body that read no buffer, and the rest of the body."""
    stmts = body.stmts if isinstance(body, loops.SeqStmt) else (body,)
    required: list[loops.AssertStmt] = []
    for s in stmts[:-1]:
        reads = any(isinstance(n, loops.BufferLoad) for n in walk(s))
        if not isinstance(s, loops.AssertStmt) or reads:
            break
        required.append(s)
    return tuple(required), loops.seq(*stmts[len(required) :]) if required else body


def _params(cx: Context, node: ast.FunctionDef) -> list[Any]:
    args = node.args
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
        cx.fail(node, "E0104", "parameters are positional and have no defaults")
    annotated: list[tuple[ast.arg, Value]] = []
    cx.string_symbols = True
    for arg in args.args:  # scalar parameters first: shapes before them may mention them
        dtype = _annotated_dtype(cx, arg.annotation)
        if dtype is not None:
            symbol = cx.declare_symbol(arg.arg, dtype, arg, reuse=False)
            if dtype == "int32":
                cx.narrow_symbols.add(symbol)
    for arg in args.args:
        value: Value = POISON
        with cx.recover(arg):
            if arg.annotation is None:
                cx.fail(
                    arg,
                    "E0109",
                    f"parameter {arg.arg!r} has no annotation",
                    help=f'write `{arg.arg}: T.Buffer((n, m), "float32")`, `T.handle` or `T.int64`',
                )
            value = _param(cx, arg, evaluate(cx, arg.annotation))
        annotated.append((arg, value))
    for arg, value in annotated:
        cx.define(arg.arg, value)
    return [value for _, value in annotated]


def _annotated_dtype(cx: Context, node: ast.expr | None) -> str | None:
    """The dtype of a scalar parameter; None for other annotations."""
    if not isinstance(node, ast.Attribute | ast.Name):
        return None
    try:
        kind = evaluate(cx, node)
    except Failure:
        return None
    is_scalar = isinstance(kind, Ref) and kind.path != "handle" and is_dtype(kind.path)
    return kind.path if is_scalar and kind.namespace == "T" else None


def _param(cx: Context, arg: ast.arg, kind: Value) -> Value:
    match kind:
        case Ref("T", "handle"):
            return Handle(arg.arg, cx.span(arg))
        case Handle(_, _, pointee):
            return Handle(arg.arg, cx.span(arg), pointee)
        case Ref("T", dtype) if is_dtype(dtype):
            return cx.symbols[arg.arg].var
        case BufferDecl("param", fields):
            own: dict[str, Any] = {**fields, "span": cx.span(arg)}
            return loops.Buffer(arg.arg, **own)
        case _:
            assert arg.annotation is not None
            cx.fail(
                arg.annotation,
                "E0109",
                f"{describe(kind)} is not the type of a parameter",
                help='write `T.Buffer((n, m), "float32")`, `T.handle` or a dtype such as `T.int64`',
            )


def _resolve(cx: Context, reader: LoopReader, param: Value) -> loops.Buffer | expr.Var:
    if isinstance(param, expr.Var):
        return cx.widened.get(param, param)
    if not isinstance(param, Handle):
        return param if param is not POISON else expr.Var("_")
    buffer = reader.matched.get(param)
    if buffer is not None:
        return buffer
    if param in cx.pointers or param.pointee is not None or not cx.computable:
        return pointer_of(cx, param)
    assert param.span is not None
    cx.report(
        cx.error(
            param.span,
            "E0117",
            f"no T.match_buffer gives {param.name!r} a shape",
            help=f'add `A = T.match_buffer({param.name}, (n, m), "float32")`',
        )
    )
    return expr.Var(param.name)


def _with_root(reader: LoopReader, body: loops.Stmt, s_tir: bool | None, span: Span) -> loops.Stmt:
    """Add the root block that the script leaves out: always with `s_tir=True`, and without any
    option when there are blocks or allocations."""
    allocs = tuple(reader.block.allocs)
    if not allocs:
        has_blocks = any(isinstance(n, loops.BlockRealize) for n in walk(body))
        wanted = has_blocks if s_tir is None else s_tir
        if not wanted or has_own_root(body):
            return body
    root = loops.Block("root", (), (), (), body, alloc_buffers=allocs, span=span)
    return loops.BlockRealize((), TRUE, root, span=span)
