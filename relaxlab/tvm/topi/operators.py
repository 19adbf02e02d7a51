"""Operators on tensor expressions, made of the rows of the core's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from relaxlab.ir.op_table import find_op, op_names
from relaxlab.ops.define import expression_of
from relaxlab.ops.te import Tensor

RENAMED = {
    "cast": "astype", "concatenate": "concat", "transpose": "permute_dims",
    "reinterpret": "bitcast", "collapse_sum": "collapse_sum_to", "div": "divide",
    "floordiv": "floor_divide", "floormod": "floor_mod",
    "fast_exp": "exp", "fast_tanh": "tanh", "fast_erf": "erf", "nn.fast_softmax": "nn.softmax",
    "nn.flatten": "nn.batch_flatten", "nn.leaky_relu": "nn.leakyrelu", "nn.add": "add",
    "nn.concatenate": "concat",
}  # fmt: skip
"""TVM's names of operators on tensor expressions, and those of the core's rows."""
PARAMETERS = {
    "newshape": "shape", "a_min": "min", "a_max": "max", "lhs": "x1", "rhs": "x2",
    "target_shape": "shape", "a": "x", "x": "data", "data": "x", "slope": "alpha",
    "a_tuple": "tensors", "reps": "repeats", "ary": "x",
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


_OTHERWISE = {"": "tensors", "nn.": "neural", "image.": "images"}
"""The modules of the functions whose arguments are not those of an operator, by prefix."""


def lookup(prefix: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module of the operators whose names begin so."""
    package = __name__.rpartition(".")[0]

    def written() -> dict[str, Any]:
        """The functions that take other arguments than an operator, by name."""
        if prefix not in _OTHERWISE:
            return {}
        home = import_module(f"{package}.{_OTHERWISE[prefix]}")
        return {
            k: v for k, v in vars(home).items() if getattr(v, "__module__", "") == home.__name__
        }

    def get(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if not prefix and name in ("nn", "image", "vision"):
            return import_module(f"{package}.{name}")
        return written().get(name) or operator(prefix + name)

    def listing() -> list[str]:
        found = {*op_names(), *RENAMED, *(prefix + name for name in written())}
        mine = {n.removeprefix(prefix) for n in found if n.startswith(prefix)}
        return sorted(n for n in mine if "." not in n and not n.startswith("_"))

    return get, listing
