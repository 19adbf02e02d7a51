"""Advice on methods and slices of arrays: the same in the script language."""

from __future__ import annotations

import ast

from relaxlab.ir.op_table import find_op, op_names
from relaxlab.script.core import Context

_METHODS = {
    "T": "permute_dims", "transpose": "permute_dims", "view": "reshape", "dot": "matmul",
    "mm": "matmul", "var": "variance", "unsqueeze": "expand_dims", "float": "astype",
    "shape": "shape_of",
}  # fmt: skip
"""Methods and attributes of arrays elsewhere whose operator has another name."""


def as_operator(node: ast.Attribute, call: ast.Call | None) -> str | None:
    """Return a method of a tensor in the script language: `R.sum(x, axis=0)` for
    `x.sum(axis=0)`."""
    names = (node.attr, f"nn.{node.attr}", _METHODS.get(node.attr, ""))
    found = next((n for n in names if find_op(n) is not None), None)
    if found is None:
        return Context.suggest(node.attr, op_names())
    given = [] if call is None else [*call.args, *call.keywords]
    return f"write `R.{found}({', '.join(map(ast.unparse, [node.value, *given]))})`"


def as_slice(base: ast.expr, items: list[ast.expr]) -> str:
    """Return a slice of a tensor, in Python `x[0:2, 1]`, in the script language."""
    name = ast.unparse(base)
    slices = [(axis, s) for axis, s in enumerate(items) if isinstance(s, ast.Slice)]
    bounded = [(axis, s) for axis, s in slices if s.lower or s.upper or s.step]
    if len(slices) == len(items) and bounded and all(s.upper for _, s in bounded):
        begin = [ast.unparse(s.lower) if s.lower else "0" for _, s in bounded]
        end = [ast.unparse(s.upper) for _, s in bounded if s.upper]
        steps = [ast.unparse(s.step) if s.step else "1" for _, s in bounded]
        lists = {"axes": [str(axis) for axis, _ in bounded], "begin": begin, "end": end}
        lists |= {"strides": steps} if set(steps) != {"1"} else {}
        given = ", ".join(f"{k}=[{', '.join(v)}]" for k, v in lists.items())
        return f"write `R.strided_slice({name}, {given})`"
    if len(items) == 1 and not slices:
        return f"write `R.take({name}, R.const({ast.unparse(items[0])}), axis=0)`"
    return "use R.take or R.strided_slice"
