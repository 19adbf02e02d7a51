"""Reading expressions: Python's syntax tree to IR nodes and constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.data import Constructor
from relaxlab.ir.dtypes import is_float, is_int, lanes_of
from relaxlab.ir.errors import counted, kind_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module
from relaxlab.script import advice, function_calls, graph_calls, loop_calls
from relaxlab.script.annotations import GLOBAL_INFOS, length_of_each
from relaxlab.script.convert import (
    constant_int,
    is_number,
    is_scalar,
    literal,
    promote,
    scalar_of,
    string_of,
)
from relaxlab.script.core import BUILTINS, Arguments, Context, Failure
from relaxlab.script.foreign import IN_TVM, call_python, foreign_of, python_callee, read_attribute
from relaxlab.script.index_maps import WITH_LAMBDA, read_lambda
from relaxlab.script.index_types import comparands, index_of, range_of
from relaxlab.script.macros import Macro
from relaxlab.script.members import SHORT_DTYPES
from relaxlab.script.ragged_buffers import place_of
from relaxlab.script.ranges import extent_between
from relaxlab.script.values import (
    Arg,
    Foreign,
    Meta,
    Method,
    ModuleRef,
    RaggedBuffer,
    Ref,
    SliceAccess,
    TypeParam,
    Value,
    View,
    describe,
    element_text,
    is_array,
    is_dict,
    is_sequence,
    longer_sequence,
)
from relaxlab.script.views import call_member, member, seen, view_access

DEEPEST = 100  # levels of nested expressions, so that Python's own limit is not met


def evaluate(cx: Context, node: ast.expr) -> Value:
    """The value of an expression. Raises Failure with a diagnostic."""
    reader = _READERS.get(type(node))
    if reader is None:
        what, help = advice.unsupported(node)
        cx.fail(node, "E0104", f"{what} is not part of the script", help=help)
    if cx.depth >= DEEPEST:
        cx.fail(node, "E0116", f"this expression is more than {DEEPEST} levels deep")
    cx.depth += 1
    try:
        return reader(cx, node)
    finally:
        cx.depth -= 1


def evaluate_all(cx: Context, nodes: Iterable[ast.expr]) -> list[Value]:
    """The values of several expressions; an error in one does not hide those in others."""
    out: list[Value] = []
    failed = False
    for node in nodes:
        try:
            if isinstance(node, ast.Starred):
                out += _iterable(cx, evaluate(cx, node.value), node)
            else:
                out.append(evaluate(cx, node))
        except Failure as failure:
            failed = True
            cx.report(failure.diagnostic)
    if failed:
        raise Failure(None)
    return out


def scalar(cx: Context, node: ast.expr, like: str | None = None) -> PrimExpr:
    """The scalar expression at `node`."""
    return scalar_of(cx, evaluate(cx, node), node, like)


def _constant(cx: Context, node: ast.Constant) -> Value:
    value = node.value
    if value is None or isinstance(value, str) or is_number(value):
        if isinstance(value, int) and abs(value) >= 2**64:
            cx.fail(node, "E0121", "this number does not fit into 64 bits")
        return value
    cx.fail(node, "E0104", f"{kind_of(value)} literal is not part of the script")


def _attribute(cx: Context, node: ast.Attribute, call: ast.Call | None = None) -> Value:
    """`base.attr`; `call` is what calls it, for the advice where a tensor has no methods."""
    outer = foreign_of(cx, node.value)
    if outer is not None:
        return read_attribute(cx, outer, node, call)
    base = evaluate(cx, node.value)
    match base:
        case Ref("python", path):
            inner = f"{path}.{node.attr}" if path else node.attr
            return IN_TVM.get(inner, Ref("python", inner))
        case Ref("T", ""):
            return Ref("T", SHORT_DTYPES.get(node.attr, node.attr))
        case Ref(namespace, path) if namespace != "builtins":
            return Ref(namespace, f"{path}.{node.attr}" if path else node.attr)
        case ModuleRef():
            made = cx.constructors.get(node.attr)
            return made or global_var(cx, node.attr, node)
        case Module():
            return graph_calls.import_function(cx, base.get(node.attr), node.attr, node)
        case _ if (found := member(cx, base, node.attr, node)) is not None:
            return found
        case graph.Expr() | PrimExpr() if node.attr == "astype" and call is not None:
            return Method(base, node.attr)
        case graph.Expr():
            cx.fail(
                node, "E0104", f"{describe(base)} has no attribute {node.attr!r}: tensors have no "
                "methods in the script",
                help=advice.as_dimensions(base, node.attr) or advice.as_operator(node, call),
            )  # fmt: skip
        case _:
            cx.fail(
                node,
                "E0104",
                f"{describe(base)} has no attribute {node.attr!r} in the script",
                help=f"bind it to a name before the program: `{node.attr} = ...`",
            )


def global_var(cx: Context, name: str, node: ast.AST) -> graph.GlobalVar:
    """A reference to the module's function `name`."""
    if name not in cx.functions:
        cx.fail(
            node,
            "E0102",
            f"the module has no function {name!r}",
            help=cx.suggest(name, cx.functions),
            notes=(f"it has: {', '.join(cx.functions) or 'none'}",),
        )
    return graph.GlobalVar(name, span=cx.span(node))


# --- Subscripts ---------------------------------------------------------------------------------


def _subscript(cx: Context, node: ast.Subscript) -> Value:
    each = length_of_each(cx, node)
    if each is not None:
        return each
    base = evaluate(cx, node.value)
    match base:
        case loops.Buffer() | View() | RaggedBuffer():
            return seen(base, access(cx, base, node))
        case Ref():
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            call = ast.Call(node.value, list(parts), [])
            return _call(cx, ast.copy_location(call, node))
        case graph.Expr():
            return _tuple_item(cx, base, node)
        case _ if is_sequence(base) or is_dict(base):
            index = evaluate(cx, node.slice)
            try:
                return base[index]
            except (LookupError, TypeError):
                cx.fail(node, "E0113", f"{describe(base)} has no item {describe(index)}")
        case _:
            cx.fail(node, "E0106", f"{describe(base)} cannot be indexed")


def access(
    cx: Context, buffer: loops.Buffer | View | RaggedBuffer, node: ast.Subscript
) -> loops.BufferLoad | SliceAccess:
    """`A[i, j]`, an element, or `A[i, 0:4]`, a region."""
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    parts: list[Any] = []
    for k, item in enumerate(items):
        if isinstance(item, ast.Slice):
            if isinstance(buffer, RaggedBuffer):
                what, help = f"a slice of ragged {buffer.name} is no box", "index each element"
                cx.fail(item, "E0104", what, help=help)
            parts.append(_slice(cx, buffer, k, item))
        elif isinstance(item, ast.Starred):
            values = evaluate(cx, item.value)
            parts += [scalar_of(cx, v, item) for v in _iterable(cx, values, item)]
        else:
            parts.append(index_of(cx, scalar(cx, item)))
    rank = len(buffer.shape)
    if isinstance(buffer, RaggedBuffer) and buffer.buffer.facts and len(parts) == 1:
        # An index function is one of all slices, too: prefix sums of lengths are over these.
        buffer = buffer.buffer
    elif len(parts) != rank:
        shape = ", ".join(map(str, buffer.shape))
        help = f"give an index for each: `{element_text(buffer.name, rank)}`"
        what = f"buffer {buffer.name} has {counted(rank, 'dimension')} ({shape})"
        cx.fail(node, "E0113", f"{what} and is indexed with {len(parts)}", help=help)
    if isinstance(buffer, RaggedBuffer):
        places = place_of(buffer, tuple(parts))
        return loops.BufferLoad(buffer.buffer, places, span=cx.span(node))
    if isinstance(buffer, View):
        return view_access(cx, buffer, tuple(parts), node)
    if any(isinstance(p, tuple) for p in parts):
        return SliceAccess(buffer, tuple(parts), cx.span(node))
    return loops.BufferLoad(buffer, tuple(parts), span=cx.span(node))


def _slice(
    cx: Context, buffer: loops.Buffer | View, axis: int, node: ast.Slice
) -> tuple[PrimExpr, PrimExpr, int]:
    size = buffer.shape[axis] if axis < len(buffer.shape) else expr.const(0)
    lower = None if node.lower is None else evaluate(cx, node.lower)
    upper = size if node.upper is None else evaluate(cx, node.upper)
    start, stop = promote(cx, 0 if lower is None else lower, upper, node, "slice")
    step = 1
    if node.step is not None:
        step = constant_int(cx, Arg(evaluate(cx, node.step), node.step), "the step of a slice")
    if step < 1:
        cx.fail(node, "E0104", "the step of a slice must be positive")
    span = loops.Range(start, extent_between(start, stop))
    if index_of(cx, start) is not start or index_of(cx, span.extent) is not span.extent:
        span = range_of(cx, span)
    return span.min, span.extent, step


def _tuple_item(cx: Context, base: graph.Expr, node: ast.Subscript) -> graph.Expr:
    ty = base.ty if isinstance(base, graph.Var) else None
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    sliced = any(isinstance(item, ast.Slice) for item in items)
    if sliced or isinstance(ty, types.TensorType):
        cx.fail(
            node,
            "E0104",
            f"{describe(base)} is no tuple: only tuples are indexed in graph functions",
            help=advice.as_slice(node.value, items),
        )
    index = evaluate(cx, node.slice)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        cx.fail(node, "E0106", "the index of a tuple must be a constant integer, 0 or more")
    if isinstance(ty, types.TupleType) and not 0 <= index < len(ty.fields):
        cx.fail(node, "E0113", f"{describe(base)} has {len(ty.fields)} fields, not [{index}]")
    return graph.TupleGetItem(base, index, span=cx.span(node))


# --- Operators ----------------------------------------------------------------------------------

_PYTHON: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
    ast.BitAnd: lambda a, b: a & b, ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b, ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b, ast.Pow: lambda a, b: a**b,
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}  # fmt: skip
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: lambda a: -a, ast.UAdd: lambda a: +a,
    ast.Not: lambda a: not a, ast.Invert: lambda a: ~int(a),
}  # fmt: skip
_SCALAR: dict[type[ast.AST], type[expr.BinaryOp]] = {
    ast.Add: expr.Add, ast.Sub: expr.Sub, ast.Mult: expr.Mul, ast.Div: expr.Div,
    ast.FloorDiv: expr.FloorDiv, ast.Mod: expr.FloorMod, ast.BitAnd: expr.BitAnd,
    ast.BitOr: expr.BitOr, ast.BitXor: expr.BitXor, ast.LShift: expr.ShiftLeft,
    ast.RShift: expr.ShiftRight, ast.Eq: expr.EQ, ast.NotEq: expr.NE, ast.Lt: expr.LT,
    ast.LtE: expr.LE, ast.Gt: expr.GT, ast.GtE: expr.GE,
}  # fmt: skip
_GRAPH: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "mod", ast.Pow: "power", ast.MatMult: "matmul",
    ast.Eq: "equal", ast.NotEq: "not_equal", ast.Lt: "less", ast.LtE: "less_equal",
    ast.Gt: "greater", ast.GtE: "greater_equal", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "left_shift", ast.RShift: "right_shift",
    ast.USub: "negative", ast.Not: "logical_not", ast.Invert: "bitwise_not",
}  # fmt: skip


def _bin_op(cx: Context, node: ast.BinOp) -> Value:
    # A long sum is a deep left spine: walk it without recursion.
    spine = [node]
    while isinstance(spine[-1].left, ast.BinOp):
        spine.append(spine[-1].left)
    spine.reverse()
    value, *operands = evaluate_all(cx, [spine[0].left, *(part.right for part in spine)])
    for part, right in zip(spine, operands, strict=True):
        value = combine(cx, type(part.op), value, right, part, (part.left, part.right))
    return value


Sides = tuple[ast.AST, ast.AST]


def combine(
    cx: Context, op: type[ast.AST], a: Value, b: Value, node: ast.AST, sides: Sides
) -> Value:
    """`a op b` at whichever level the operands are; `sides` are their places."""
    if is_number(a) and is_number(b):
        return _fold(cx, op, a, b, node)
    if a is None or b is None:
        cx.fail(sides[a is not None], "E0106", "a value is needed, not None")
    if is_array(a) or is_array(b):
        if not isinstance(a, graph.Expr) and not isinstance(b, graph.Expr):
            cx.fail(node, "E0104", "compute with arrays before the program, not inside it")
        return graph_calls.operator_call(cx, _GRAPH.get(op), a, b, node)
    is_graph = isinstance(a, graph.Expr) or isinstance(b, graph.Expr)
    if is_graph and not all(is_number(v) or is_scalar(v) for v in (a, b)):
        return graph_calls.operator_call(cx, _GRAPH.get(op), a, b, node)
    if is_sequence(a) and (joined := longer_sequence(op, a, b)) is not None:
        return joined
    if op not in _SCALAR:
        cx.fail(node, "E0104", advice.no_operator(op))
    return binary(cx, _SCALAR[op], a, b, node, sides)


def binary(
    cx: Context, cls: type[expr.BinaryOp], a: Value, b: Value, node: ast.AST, sides: Sides
) -> PrimExpr:
    """A scalar operation, its operands promoted to one dtype."""
    left, right = promote(cx, a, b, node, cls.__name__, sides)
    if cls is expr.Div and cx.computable and not is_float(left.dtype):
        cx.fail(
            node,
            "E0110",
            "`/` of integers is ambiguous",
            help="write `//` (rounds down) or `T.truncdiv(a, b)` (rounds toward zero)",
        )
    if issubclass(cls, expr.CmpOp):
        left, right = comparands(cx, left, right)
    if issubclass(cls, expr.BitOp) and is_float(left.dtype):
        cx.fail(node, "E0110", f"{cls.__name__} needs integers, got {left.dtype}")
    return cls(left, right, span=cx.span(node))


def _fold(cx: Context, op: type[ast.AST], a: Any, b: Any, node: ast.AST) -> Any:
    if op not in _PYTHON:
        cx.fail(node, "E0104", f"the operator {op.__name__} is not part of the script")
    fits = op not in (ast.Pow, ast.LShift) or (abs(b) <= 64 and abs(a) < 2**64)
    try:
        value = _PYTHON[op](a, b) if fits else None
    except (ArithmeticError, TypeError, ValueError) as error:
        cx.fail(node, "E0106", f"this cannot be computed: {error}")
    if not fits or isinstance(value, complex) or (isinstance(value, int) and abs(value) >= 2**64):
        cx.fail(node, "E0121", "this number does not fit into 64 bits")
    return value


def _unary(cx: Context, node: ast.UnaryOp) -> Value:
    value = evaluate(cx, node.operand)
    if is_number(value):
        if isinstance(node.op, ast.Invert) and isinstance(value, float):
            cx.fail(node, "E0106", "`~` needs an integer")
        return _UNARY[type(node.op)](value)
    if isinstance(value, graph.Expr) and not is_scalar(value):
        return graph_calls.operator_call(cx, _GRAPH.get(type(node.op)), value, None, node)
    e, span = scalar_of(cx, value, node), cx.span(node)
    match node.op:
        case ast.UAdd():
            return e
        case ast.Not():
            return expr.Not(_condition(cx, e, node), span=span)
        case ast.Invert() if is_float(e.dtype):
            cx.fail(node, "E0110", f"`~` needs an integer, not {describe(e)}")
        case ast.Invert():
            return expr.Call(e.dtype, "bitwise_not", (e,), span=span)
        case _ if is_float(e.dtype):  # 0 - x would lose the sign of zero
            return expr.Mul(e, literal(cx, -1.0, e.dtype, node), span=span)
        case _:
            return expr.Sub(literal(cx, 0, e.dtype, node), e, span=span)


def _condition(cx: Context, e: PrimExpr, node: ast.AST) -> PrimExpr:
    if e.dtype.partition("x")[0] != "bool":
        cx.fail(node, "E0110", f"a condition (bool) is needed here, not {describe(e)}")
    return e


def condition(cx: Context, node: ast.expr) -> PrimExpr:
    """A bool expression; an integer holds where it is not 0."""
    value = evaluate(cx, node)
    e = scalar_of(cx, value, node)
    if is_int(e.dtype) and lanes_of(e.dtype) == 1 and not is_number(value):
        return expr.NE(e, literal(cx, 0, e.dtype, node), span=cx.span(node))
    return _condition(cx, e, node)


def _bool_op(cx: Context, node: ast.BoolOp) -> Value:
    values = evaluate_all(cx, node.values)
    if all(is_number(v) for v in values):
        results = [bool(v) for v in values]
        return all(results) if isinstance(node.op, ast.And) else any(results)
    if any(isinstance(v, graph.Expr) and not is_scalar(v) for v in values):
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        cx.fail(
            node,
            "E0104",
            "`and`, `or` are not defined on tensors",
            help=f"write `R.{name}(a, b)`",
        )
    cls = expr.And if isinstance(node.op, ast.And) else expr.Or
    parts = [
        _condition(cx, scalar_of(cx, v, n), n) for v, n in zip(values, node.values, strict=True)
    ]
    result = parts[0]
    for part in parts[1:]:
        result = cls(result, part, span=cx.span(node))
    return result


def _compare(cx: Context, node: ast.Compare) -> Value:
    values = evaluate_all(cx, (node.left, *node.comparators))
    results: list[Any] = []
    nodes = (node.left, *node.comparators)
    for op, a, b, *sides in zip(node.ops, values, values[1:], nodes, nodes[1:], strict=False):
        if type(op) not in _SCALAR:
            cx.fail(node, "E0104", f"the operator {type(op).__name__} is not part of the script")
        if isinstance(a, str) and isinstance(b, str):
            results.append(_PYTHON[type(op)](a, b))
        else:
            results.append(combine(cx, type(op), a, b, node, (sides[0], sides[1])))
    if len(results) == 1:
        return results[0]
    if all(isinstance(r, bool) for r in results):
        return all(results)
    if any(isinstance(r, graph.Expr) for r in results):
        cx.fail(node, "E0104", "comparisons of tensors cannot be chained")
    parts = [scalar_of(cx, r, node) for r in results]
    joined = parts[0]
    for part in parts[1:]:
        joined = expr.And(joined, part, span=cx.span(node))
    return joined


def _if_exp(cx: Context, node: ast.IfExp) -> Value:
    test = evaluate(cx, node.test)
    if is_number(test):
        return evaluate(cx, node.body if test else node.orelse)
    if not isinstance(test, PrimExpr) or test.dtype != "bool":
        cx.fail(
            node.test,
            "E0104",
            f"the condition of `a if c else b` is a constant or a bool, not {describe(test)}",
            help="write `T.if_then_else(c, a, b)` for scalars, `R.where(c, a, b)` for tensors",
        )
    yes, no = evaluate(cx, node.body), evaluate(cx, node.orelse)
    parts = (test, *promote(cx, yes, no, node, "`a if c else b`"))
    return expr.Call(parts[1].dtype, "if_then_else", parts, span=cx.span(node))


# --- Displays -----------------------------------------------------------------------------------


def _iterable(cx: Context, value: Value, node: ast.AST) -> list[Value]:
    if not is_sequence(value):
        cx.fail(node, "E0106", f"{describe(value)} cannot be unpacked")
    return list(value)


def _tuple(cx: Context, node: ast.Tuple) -> Value:
    return tuple(evaluate_all(cx, node.elts))


def _list(cx: Context, node: ast.List) -> Value:
    return evaluate_all(cx, node.elts)


def _dict(cx: Context, node: ast.Dict) -> Value:
    out: dict[Any, Value] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            cx.fail(node, "E0104", "`**` in a dictionary is not part of the script")
        name = evaluate(cx, key)
        if not isinstance(name, str | int | expr.Var):
            cx.fail(key, "E0106", f"{describe(name)} cannot be a key")
        out[name] = evaluate(cx, value)
    return out


# --- Calls --------------------------------------------------------------------------------------


def arguments(cx: Context, node: ast.Call, name: str) -> Arguments:
    """The evaluated arguments of a call; an error in one does not hide those in others."""
    args: list[Arg] = []
    kwargs: dict[str, Arg] = {}
    failed = False
    for item in node.args:
        try:
            if isinstance(item, ast.Starred):
                args += [Arg(v, item) for v in _iterable(cx, evaluate(cx, item.value), item)]
            else:
                args.append(Arg(evaluate(cx, item), item))
        except Failure as failure:
            failed = True
            cx.report(failure.diagnostic)
    for keyword in node.keywords:
        if keyword.arg == "layout" and name.startswith("T."):
            continue  # of memory: no value depends on it
        try:
            kwargs.update(_keyword(cx, keyword))
        except Failure as failure:
            failed = True
            cx.report(failure.diagnostic)
    if failed:
        raise Failure(None)
    return Arguments(cx, node, name, args, kwargs)


def _keyword(cx: Context, keyword: ast.keyword) -> dict[str, Arg]:
    if keyword.arg == "index_map" and isinstance(keyword.value, ast.Lambda):
        return {keyword.arg: Arg(read_lambda(cx, keyword.value), keyword.value)}
    value = evaluate(cx, keyword.value)
    if keyword.arg is not None:
        return {keyword.arg: Arg(value, keyword.value)}
    if is_dict(value):
        return {str(k): Arg(v, keyword.value) for k, v in value.items()}
    cx.fail(keyword.value, "E0106", f"{describe(value)} cannot follow `**`")


_SHAPED = {"Tensor", "Shape", "shape", "Buffer", "match_buffer", "alloc_buffer", "reshape"}


@contextmanager
def _shaped(cx: Context, path: str) -> Generator[None]:
    """Parse a part of a shape: there, an undefined name is probably a symbol."""
    outer, cx.in_shape = cx.in_shape, path in _SHAPED
    try:
        yield
    finally:
        cx.in_shape = outer


def _callee(cx: Context, node: ast.Call) -> Value:
    """Return the callee of a call. If it does not exist, the arguments are read all the same: a
    program's errors are reported together."""
    if (outside := python_callee(cx, node.func)) is not None:
        return outside
    try:
        if isinstance(node.func, ast.Attribute):
            callee = _attribute(cx, node.func, node)
        else:
            callee = evaluate(cx, node.func)
        match callee:
            case Ref("T", path) if path not in WITH_LAMBDA:
                loop_calls.check_known(cx, path, node.func)
            case Ref("R", path):
                graph_calls.check_known(cx, path, node.func)
            case _:
                pass
    except Failure as failure:
        cx.report(failure.diagnostic)
        arguments(cx, node, "")
        raise Failure(None) from None
    return callee


def _call(cx: Context, node: ast.Call) -> Value:
    callee = _callee(cx, node)
    match callee:
        case Ref("T", path) if path in WITH_LAMBDA:
            return WITH_LAMBDA[path](cx, node)
        case Ref("T" | "R" as module, path):
            with _shaped(cx, path):
                args = arguments(cx, node, f"{module}.{path}")
            return (loop_calls if module == "T" else graph_calls).call(cx, path, args)
        case Constructor():
            return graph_calls.construct(cx, callee, arguments(cx, node, callee.name))
        case Macro() if cx.expand is not None:
            return cx.expand(callee, arguments(cx, node, callee.node.name))
        case Ref("I", "GlobalVar"):
            name = arguments(cx, node, "I.GlobalVar").bind()["name"]
            assert name is not None
            return graph.GlobalVar(str(name.value), span=cx.span(node))
        case Ref("typing", "TypeVar"):
            given = arguments(cx, node, "TypeVar").bind({"name": False})["name"]
            assert given is not None
            return TypeParam(string_of(cx, given, "the name"))
        case Ref("builtins", name):
            return _builtin(cx, name, arguments(cx, node, name))
        case Method(graph.Expr() as base, name):
            given = arguments(cx, node, f"R.{name}")
            given.args.insert(0, Arg(base, node.func))
            return graph_calls.call(cx, name, given)
        case Method(loops.Buffer() | View() | PrimExpr() as base, name):
            return call_member(cx, base, name, arguments(cx, node, name))
        case Foreign():
            return call_python(cx, callee, arguments(cx, node, ast.unparse(node.func)))
        case Ref("python", "runtime.tensor" | "nd.array"):
            return _only(arguments(cx, node, ast.unparse(node.func))).value
        case Ref("I", path) if path in GLOBAL_INFOS:
            return GLOBAL_INFOS[path](cx, arguments(cx, node, f"I.{path}"))
        case Ref("I", "meta_var"):
            return Meta(_only(arguments(cx, node, "I.meta_var")).value)
        case graph.Expr():
            return function_calls.call_of(cx, callee, arguments(cx, node, describe(callee)))
        case loops.PrimFunc() | graph.Function():
            name = node.func.id if isinstance(node.func, ast.Name) else "function"
            target = graph_calls.import_function(cx, callee, name, node)
            return graph_calls.call_value(cx, target, arguments(cx, node, name))
        case _:
            cx.fail(
                node,
                "E0104",
                f"{describe(callee)} cannot be called in the script",
                help=advice.as_number(callee, node.args, cx.namespace),
            )


def _only(c: Arguments) -> Arg:
    """The one argument of a call."""
    if len(c.args) != 1 or c.kwargs:
        c.wrong("takes one argument", c.node)
    return c.args[0]


def _builtin(cx: Context, name: str, c: Arguments) -> Value:
    values = [a.value for a in c.no_keywords()]
    sized = name == "len" and all(isinstance(v, tuple | list | str) for v in values)
    numbers = all(is_number(v) or (isinstance(v, str) and name == "float") for v in values)
    if not sized and not numbers:
        cx.fail(
            c.node,
            "E0104",
            f"Python's {name} works on constants only",
            help=f"write `T.{name}(...)`" if name in ("min", "max", "abs") else None,
        )
    try:
        return BUILTINS[name](*values)
    except (TypeError, ValueError, OverflowError) as error:
        cx.fail(c.node, "E0106", f"{name}: {error}")


_READERS: dict[type[ast.expr], Callable[[Context, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: Context.lookup,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BinOp: _bin_op,
    ast.UnaryOp: _unary,
    ast.BoolOp: _bool_op,
    ast.Compare: _compare,
    ast.IfExp: _if_exp,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Dict: _dict,
    ast.Call: _call,
}
