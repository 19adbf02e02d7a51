"""Structural equality as TVM has it: of programs whose variables have their types."""

from __future__ import annotations

from typing import Any, TypeGuard

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import in_normal_form
from relaxlab.ir import equal, expr, graph, loops, types
from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.module import GLOBAL_INFOS, Module
from relaxlab.ir.node import Attrs, Node, replace, rewrite
from relaxlab.ir.op_table import op_row
from relaxlab.ir.types import vdevice_named
from relaxlab.ops.define import attr
from relaxlab.tvm.script.normal import normalized

SPATIAL = {"strides": 1, "dilation": 1, "pool_size": 1, "output_padding": 1, "padding": 2}
"""Attributes of convolutions and pooling, and how many numbers they have for a spatial axis."""
ALLOCATIONS = {
    "builtin.alloc_tensor": (),
    "memory.alloc_storage": (),
    "memory.alloc_tensor": (4, graph.PrimValue(expr.const(0))),
    "vm.alloc_storage": (3, graph.StringImm("global")),
    "vm.alloc_tensor": (4, graph.PrimValue(expr.const(0))),
}
"""Operators that allocate memory, with the place and the default of their last argument."""


def _stated(n: Node) -> Node | None:
    """A call as TVM's builders write it: windows with a number for each axis, layouts of results
    and dtypes of allocations stated, and devices by their whole names; attributes of loop functions
    under their older names; blocks without names, which TVM does not compare."""
    match n:
        case graph.Call(graph.Op(name)) if name in ALLOCATIONS:
            return _allocation(n)
        case graph.Call(graph.Op("to_vdevice")):
            return replace(
                n, attrs=n.attrs.with_(dst_vdevice=vdevice_named(attr(n, "dst_vdevice")))
            )
        case graph.Call(graph.Op(name)):
            options = {p.name for p in op_row(name).params}
            layout = next((k for k in ("data_layout", "layout") if k in options), None)
            if layout is None or not options & {*SPATIAL}:
                return None
            axes = sum(c.isupper() for c in attr(n, layout)) - 2
            found = {k: _numbers(attr(n, k), axes, c) for k, c in SPATIAL.items() if k in options}
            result = attr(n, "out_layout") or attr(n, layout)
            return replace(n, attrs=n.attrs.with_(**found, out_layout=result))
        case loops.PrimFunc(attrs=attrs) if any(k.startswith("tirx.") for k in attrs):
            return replace(n, attrs=Attrs({k.replace("tirx.", "tir."): attrs[k] for k in attrs}))
        case loops.Block():
            return replace(n, name="")
        case _:
            return None


def _numbers(value: Any, axes: int, count: int) -> tuple[int, ...]:
    given = value if isinstance(value, tuple) else (value,)
    return tuple(given) * max(1, axes * count // max(1, len(given)))


def _allocation(call: graph.Call) -> graph.Call:
    args = [graph.DataTypeImm(a.value) if _is_dtype(a) else a for a in call.args]
    assert isinstance(call.op, graph.Op)
    default = ALLOCATIONS[call.op.name]
    if default and len(args) == default[0]:
        args.append(default[1])
    return replace(call, args=tuple(args), ty_args=())


def _is_dtype(e: graph.Expr) -> TypeGuard[graph.StringImm]:
    return isinstance(e, graph.StringImm) and is_dtype(e.value)


def _normal(program: Any) -> Any:
    """A program in normal form, as TVM's parser gives it; itself where it has none."""
    if isinstance(program, types.Type):
        return in_normal_form(program, Analyzer.for_shapes(program))
    if isinstance(program, graph.Function):
        return _normal(Module.of({"main": program}))["main"]
    if isinstance(program, loops.PrimFunc):
        return rewrite(program, _stated)
    if not isinstance(program, Module):
        return program
    program = normalized(program)
    stated = {k: rewrite(f, _stated) for k, f in program.items()}
    return replace(program.with_functions(stated), attrs=_by_kinds(program.attrs))


def _by_kinds(attrs: Attrs) -> Attrs:
    """A module's attributes with the kinds of targets in the place of their descriptions."""
    infos = attrs.get(GLOBAL_INFOS)
    if infos is None:
        return attrs
    named = {
        key: [e and (e[0] if isinstance(e[0], str) else e[0]["kind"], *e[1:]) for e in entries]
        for key, entries in infos.items()
    }
    return attrs.with_(**{GLOBAL_INFOS: named})


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """True if two programs are the same up to the names of variables."""
    return equal.structural_equal(_normal(lhs), _normal(rhs), map_free_vars=map_free_vars)


class StructuralMismatch(equal.StructuralMismatch, ValueError):
    """Two programs differ. TVM raises a ValueError."""


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise where two programs differ, with the path to the first difference."""
    try:
        equal.assert_structural_equal(_normal(lhs), _normal(rhs), map_free_vars=map_free_vars)
    except equal.StructuralMismatch as error:
        raise StructuralMismatch(str(error)) from None


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A number that is equal for equal programs."""
    return int(equal.structural_key(_normal(node))[:15], 16)
