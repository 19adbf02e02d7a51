"""Advice on what people write out of habit from Python, NumPy and PyTorch: the same in the script
language."""

from __future__ import annotations

import ast

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.op_table import op_names
from relaxlab.script.core import Context
from relaxlab.script.members import members_of
from relaxlab.script.values import Value

_ELSEWHERE = {
    "T": "permute_dims", "transpose": "permute_dims", "permute": "permute_dims", "view": "reshape",
    "dot": "matmul", "mm": "matmul", "bmm": "matmul", "var": "variance", "float": "astype",
    "unsqueeze": "expand_dims", "newaxis": "expand_dims", "shape": "shape_of", "cat": "concat",
    "concatenate": "concat", "amax": "max", "amin": "min", "mul": "multiply", "sub": "subtract",
    "div": "divide", "pow": "power", "neg": "negative", "expand": "broadcast_to",
    "array": "const", "tensor": "const", "clamp": "clip", "gather": "gather_elements",
}  # fmt: skip
"""Functions, methods and attributes of arrays elsewhere whose operator has another name."""
_SYNTAX: dict[type[ast.AST], tuple[str, str | None]] = {
    ast.JoinedStr: ("an f-string", "make the string before the program, and use its name"),
    ast.Lambda: ("a lambda", "write a function of the module, and call it by `cls.NAME(...)`"),
    ast.ListComp: ("a comprehension", "write the items, or make the list before the program"),
    ast.NamedExpr: ("`:=`", "write the assignment on a line of its own"),
    ast.Delete: (
        "`del`",
        "leave it out: values end with their last use",
    ),
    ast.Import: ("`import`", "import before the program"),
    ast.AugAssign: ("an assignment such as `+=`", None),
}
"""Python that is not part of the script: what it is called, and what to write."""
_SYNTAX.update({ast.SetComp: _SYNTAX[ast.ListComp], ast.GeneratorExp: _SYNTAX[ast.ListComp]})
_SYNTAX.update({ast.DictComp: _SYNTAX[ast.ListComp], ast.ImportFrom: _SYNTAX[ast.Import]})


_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/"}
_SCALARS = {"maximum": "max", "minimum": "min", "absolute": "abs", "fmax": "max", "fmin": "min"}
"""Functions of NumPy on single numbers: the operators and the functions of `T`."""


def no_operator(op: type[ast.AST]) -> str:
    """Return what is wrong with an operator that scalars do not have, and what to write."""
    if op is ast.Pow:
        return "`**` is not defined on scalars: write T.pow(x, y), or x * x"
    if op is ast.MatMult:
        return "`@` is not defined on scalars: it multiplies tensors; write x * y"
    return f"the operator {op.__name__} is not defined on scalars"


def unsupported(node: ast.AST) -> tuple[str, str | None]:
    """Return what a Python statement or expression that is not part of the script is called, and
    advice."""
    return _SYNTAX.get(type(node), (f"`{type(node).__name__.lower()}`", None))


def known_elsewhere(name: str) -> str | None:
    """Return the operator that NumPy or PyTorch calls `name`: itself, one of `R.nn`, or another."""
    names = (_ELSEWHERE.get(name, ""), name, f"nn.{name}")
    known = {*op_names(), *members_of("R")}
    return next((n for n in names if n in known), None)


def as_operator(node: ast.Attribute, call: ast.Call | None) -> str | None:
    """Return a method of a tensor in the script language: `R.sum(x, axis=0)` for
    `x.sum(axis=0)`."""
    found = known_elsewhere(node.attr)
    if found is None:
        return Context.suggest(node.attr, op_names())
    given = [] if call is None else [*call.args, *call.keywords]
    return f"write `R.{found}({', '.join(map(ast.unparse, [node.value, *given]))})`"


def as_call(name: str, call: ast.Call, namespace: str) -> str | None:
    """Return what the script has for a call of a function of Python that `name` is the last part
    of: `R.maximum(x, 0)`, `T.max(A[i], 0)`, `A[i] * s[i]`."""
    given = [ast.unparse(a) for a in [*call.args, *call.keywords]]
    if namespace == "T" and name in _SYMBOLS:
        return f" {_SYMBOLS[name]} ".join(given)
    found = known_elsewhere(name) if namespace == "R" else _SCALARS.get(name, name)
    known = found in members_of("T") or found in INTRINSICS if namespace == "T" else found
    return f"{namespace}.{found}({', '.join(given)})" if known else None


def as_dimensions(base: graph.Expr, attribute: str) -> str | None:
    """Return advice for the `shape` of a variable whose dimensions are known."""
    if attribute != "shape" or not isinstance(base, graph.Var):
        return None
    shape = base.ty.shape if isinstance(base.ty, types.TensorType) else None
    if shape is None:
        return None
    return f"{base.name} has the shape ({', '.join(map(str, shape))}): write its dimensions"


def as_number(dtype: Value, args: list[ast.expr], namespace: str) -> str | None:
    """Return what the script has for `np.float32(2)`, where `np.float32` is a dtype."""
    if not isinstance(dtype, str) or not is_dtype(dtype):
        return None
    given = ", ".join(map(ast.unparse, args))
    return (
        f'write `R.const({given}, "{dtype}")`'
        if namespace == "R"
        else f"write `T.{dtype}({given})`"
    )


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
