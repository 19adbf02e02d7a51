"""`relaxlab.from_jax`: functions of JAX as modules, one for all values of their symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from relaxlab.frontend.complex import (
    PARTS,
    Complex,
    array_of_complex,
    array_of_parts,
    stacked,
    unstacked,
)
from relaxlab.frontend.emitter import Emitter
from relaxlab.frontend.jaxpr import (
    control,
    elementwise,
    factors,
    folds,
    indexing,
    products,
    shapes,
)
from relaxlab.frontend.jaxpr.complex import is_complex
from relaxlab.frontend.jaxpr.rows import TABLE
from relaxlab.frontend.jaxpr.walk import constant_of, dim_of, evaluate, missing, type_of
from relaxlab.frontend.known import tensor
from relaxlab.frontend.packages import package
from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.table import UnsupportedOperators
from relaxlab.ir import expr
from relaxlab.ir.types import TensorType

ROWS = (control, elementwise, factors, folds, indexing, products, shapes)
"""The modules that fill the table."""


def from_jax(fn: Callable[..., Any], *specs: Any, **named: Any) -> ImportedProgram:
    """Import a function of JAX, such as a model or the gradient of a loss.

        x = jax.ShapeDtypeStruct(("n", 16), "float32")
        program = rl.from_jax(lambda x: jax.nn.softmax(x @ x.T), x)
        y = program.compile()(array)

    `specs` and `named` are arguments to trace with: trees (tuples, dicts, ...) of arrays or of
    `jax.ShapeDtypeStruct`, whose dimensions may be names (`"n"`), expressions of names (`"2*n"`),
    or dimensions of `jax.export.symbolic_shape`. One compilation serves all their values from 1 on.
    Arrays that the function closes over become parameters of `main` with values, `program.params`.

    Raises UnsupportedOperators, which lists all primitives that cannot be imported with the lines
    that they are from.
    """
    jax = package("jax")
    flat, tree = jax.tree_util.tree_flatten_with_path((specs, named))
    jaxpr, result = traced(fn, specs, named)
    unsupported = list(missing(jaxpr.jaxpr))
    if unsupported:
        raise UnsupportedOperators(TABLE.source, unsupported)
    b = Emitter(TABLE.source)
    names = [_name(fn, path, i) for i, (path, _) in enumerate(flat)]
    operands = _inputs(b, names, jaxpr)
    constants = [constant_of(b, c, f"const_{i}") for i, c in enumerate(jaxpr.consts)]
    found = evaluate(b, jaxpr, operands, constants)
    paired = [isinstance(v, Complex) for v in found]
    values = [stacked(b, v) if isinstance(v, Complex) else tensor(b, v) for v in found]
    out_tree = jax.tree_util.tree_structure(result)

    def flatten(given: Sequence[Any], by_name: Any) -> Sequence[Any]:
        leaves, found = jax.tree_util.tree_flatten((tuple(given), dict(by_name)))
        if found != tree:
            raise TypeError(f"the program was imported with arguments {tree}, not {found}")
        return [array_of_parts(np.asarray(x)) if str(x.dtype) in PARTS else x for x in leaves]

    def unflatten(results: Sequence[Any]) -> Any:
        each = zip(results, paired, strict=True)
        leaves = [array_of_complex(np.asarray(r)) if is_pair else r for r, is_pair in each]
        return jax.tree_util.tree_unflatten(out_tree, leaves)

    whole = values[0] if len(values) == 1 else tuple(values)
    return ImportedProgram(b.finish(whole), b.params, flatten, unflatten)


def traced(
    fn: Callable[..., Any], specs: Sequence[Any], named: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Any, Any]:
    """The jaxpr of a function for arguments as `from_jax` takes them, and the form of its
    results."""
    jax = package("jax")
    leaves, tree = jax.tree_util.tree_flatten((tuple(specs), dict(named)))
    args, kwargs = jax.tree_util.tree_unflatten(tree, _symbolic(leaves))
    return jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)


def _inputs(b: Emitter, names: Sequence[str], jaxpr: Any) -> list[Any]:
    """A parameter for each input. JAX takes for granted that symbols are at least 1, and what the
    user stated about them."""
    found: list[Any] = []
    for name, v in zip(names, jaxpr.jaxpr.invars, strict=True):
        ty = type_of(b.symbols, v.aval)
        if not is_complex(v.aval):
            found.append(b.input(name, ty))
            continue
        parts = TensorType((*(ty.shape or ()), expr.const(2)), ty.dtype)
        found.append(unstacked(b, b.input(name, parts)))
    scopes: dict[int, Any] = {}
    for v in jaxpr.jaxpr.invars:
        for d in v.aval.shape:
            if hasattr(d, "scope"):
                scopes[id(d.scope)] = d.scope
    for name in b.symbols.names:
        b.symbols.constrain(name, 1)
    for scope in scopes.values():
        for constraint in getattr(scope, "_explicit_constraints", ()):
            left = dim_of(b.symbols, constraint.diff)
            equal = constraint.cmp.name == "EQ"
            kind = expr.EQ if equal else expr.GE
            b.symbols.require(kind(left, expr.const(0)))
    return found


def _name(fn: Callable[..., Any], path: Sequence[Any], index: int) -> str:
    """The name of an argument: that of the parameter, and the keys within it."""
    where, first, *rest = path
    keys = [str(_key(k)) for k in rest]
    if _key(where) == 0:
        code = getattr(fn, "__code__", None)
        given = list(code.co_varnames[: code.co_argcount]) if code is not None else []
        place = _key(first)
        keys.insert(0, given[place] if place < len(given) else f"arg{place}")
    else:
        keys.insert(0, str(_key(first)))
    text = "_".join(keys)
    return text if text.isidentifier() else f"arg{index}"


def _key(entry: Any) -> Any:
    for name in ("key", "idx", "name"):
        if hasattr(entry, name):
            return getattr(entry, name)
    return str(entry)


def _symbolic(leaves: Sequence[Any]) -> list[Any]:
    """The leaves with the names of dimensions as dimensions of JAX, all of one scope."""
    jax, export = package("jax"), package("jax.export")
    scope = next((d.scope for x in leaves for d in getattr(x, "shape", ()) if hasattr(d, "scope")),
                 None) or export.SymbolicScope()  # fmt: skip

    def leaf(x: Any) -> Any:
        shape = getattr(x, "shape", ())
        if not any(isinstance(d, str) for d in shape):
            return x
        text = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        return jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), x.dtype)

    return [leaf(x) for x in leaves]
