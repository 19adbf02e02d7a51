"""Operators on tensor expressions, made of the rows of the core's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.op_table import find_op, op_names
from relaxlab.ops import te
from relaxlab.ops.define import expression_of
from relaxlab.ops.te import Tensor

RENAMED = {
    "cast": "astype", "concatenate": "concat", "transpose": "permute_dims",
    "nn.flatten": "nn.batch_flatten", "nn.leaky_relu": "nn.leakyrelu",
    "nn.matmul": "matmul", "nn.fast_softmax": "nn.softmax",
}  # fmt: skip
"""TVM's names of operators on tensor expressions, and those of the core's rows."""
PARAMETERS = {
    "newshape": "shape", "a_min": "min", "a_max": "max", "lhs": "x1", "rhs": "x2",
}  # fmt: skip
"""TVM's names of parameters, and the core's."""
_UNREAD = ("name", "tag", "auto_scheduler_rewritten_layout", "meta_schedule_original_shape")
"""Parameters about names and layouts of other systems."""


def _renamed(options: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    kept = {k: v for k, v in options.items() if k not in _UNREAD}
    return {k if k in known else PARAMETERS.get(k, k): v for k, v in kept.items()}


def operator(name: str) -> Callable[..., Tensor | tuple[Tensor, ...]]:
    """The function that applies an operator of the core to tensor expressions. Raises
    AttributeError where there is none."""
    core = RENAMED.get(name, name)
    row = find_op(core)
    if row is None:
        raise AttributeError(f"tvm.topi.{name} is not among the names of TVM that relaxlab has")
    known = {p.name.lstrip("*") for p in row.params}

    def apply(*args: Any, **options: Any) -> Tensor | tuple[Tensor, ...]:
        return expression_of(core, *args, **_renamed(options, known))

    apply.__name__ = name.rpartition(".")[2]
    return apply


def batch_matmul(x: Tensor, y: Tensor, *args: Any, transpose_b: bool = True, **options: Any) -> Any:
    """The products of matrices, the second transposed unless `transpose_b` is False."""
    other = expression_of("permute_dims", y, axes=(0, 2, 1)) if transpose_b else y
    return expression_of("matmul", x, other)


def dense(data: Tensor, weight: Tensor, bias: Tensor | None = None, *_: Any, **__: Any) -> Any:
    """The product with transposed weights, and a bias."""
    product = expression_of("matmul", data, expression_of("permute_dims", weight))
    return product if bias is None else expression_of("add", product, bias)


def full(shape: Any, dtype: str, fill_value: Any) -> Any:
    """A tensor of one value."""
    return te.compute(tuple(shape), lambda *_: expr.const(fill_value, dtype), "full")


_SPECIAL = {"nn.batch_matmul": batch_matmul, "nn.dense": dense, "full": full}


def lookup(prefix: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module of the operators whose names begin so."""

    def get(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if not prefix and name == "nn":
            return import_module("relaxlab.tvm.topi.nn")
        return _SPECIAL.get(prefix + name) or operator(prefix + name)

    def listing() -> list[str]:
        found = {*op_names(), *RENAMED, *_SPECIAL}
        mine = {n.removeprefix(prefix) for n in found if n.startswith(prefix)}
        return sorted(n for n in mine if "." not in n)

    return get, listing
