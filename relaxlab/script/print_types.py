"""Printing annotations and attribute values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, loops, types
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import Attrs
from relaxlab.ir.substitute import symbols_in
from relaxlab.script.print_expr import scalar
from relaxlab.script.writer import Writer, string


def annotation(w: Writer, ty: types.Type, path: str = "", *, quoted: bool = False) -> str:
    """`ty` as script text. `quoted`: symbolic dimensions are strings, as signatures need them."""
    match ty:
        case types.LengthsType(shape=shape, total=total) if shape and total is not None:
            sizes = dims(w, (*shape, total), path + ".shape", quoted)
            limits = [f"{name}={n}" for name, n in types.limits_of(ty)]
            text = f"R.Lengths({', '.join([*sizes, *limits])})"
        case types.TensorType():
            text = _tensor(w, ty, path, quoted)
        case types.ShapeType(values, ndim):
            if values is not None:
                text = f"R.Shape([{', '.join(dims(w, values, path + '.values', quoted))}])"
            else:
                text = f"R.Shape(ndim={ndim})" if ndim >= 0 else "R.Shape"
        case types.PrimType(dtype, None):
            text = f'R.Prim("{dtype}")'
        case types.PrimType(_, value):
            assert value is not None
            inner = scalar(w, value, path + ".value")
            text = f"R.Prim(value={_quote(inner) if quoted else inner})"
        case types.TupleType(fields):
            text = f"R.Tuple({', '.join(_all(w, fields, path + '.fields', quoted))})"
        case types.DataType(name):
            text = name
        case types.FuncType():
            text = _callable(w, ty, path, quoted)
        case _:
            text = "R.Object"
    return w.mark(path, text)


def _all(w: Writer, tys: Iterable[types.Type], path: str, quoted: bool) -> list[str]:
    return [annotation(w, t, f"{path}[{i}]", quoted=quoted) for i, t in enumerate(tys)]


def dims(w: Writer, values: tuple[PrimExpr, ...], path: str, quoted: bool) -> list[str]:
    """Dimensions; with `quoted`, those that are not plain numbers as strings."""
    texts: list[str] = []
    for i, value in enumerate(values):
        text = scalar(w, value, f"{path}[{i}]")
        plain = isinstance(value, expr.IntImm)
        texts.append(text if plain or not quoted else _quote(text))
    return texts


def _quote(text: str) -> str:
    mark = next(q for q in ('"', "'", '"""') if q not in text)
    return f"{mark}{text}{mark}"


def _tensor(w: Writer, ty: types.TensorType, path: str, quoted: bool) -> str:
    args: list[str] = []
    if ty.shape is not None and types.is_ragged(ty) and not types.is_part(ty):
        first = _outer_name(w, ty.shape)
        w.outer = expr.OuterIndex(ty.shape[0]), first
        texts = dims(w, ty.shape, path + ".shape", True)
        w.outer = None
        named = zip((first, *types.DIMENSIONS[1:]), texts, strict=False)
        return f'R.Ragged({{{", ".join(f"{string(n)}: {t}" for n, t in named)}}}, "{ty.dtype}")'
    if ty.shape is not None:
        args.append(f"({sequence(dims(w, ty.shape, path + '.shape', quoted))})")
        if ty.dtype is not None:
            args.append(f'"{ty.dtype}"')
    else:
        if ty.dtype is not None:
            args.append(f'dtype="{ty.dtype}"')
        if ty.ndim >= 0:
            args.append(f"ndim={ty.ndim}")
    if ty.vdevice:
        args.append(f"vdevice={string(ty.vdevice)}")
    return f"R.Tensor({', '.join(args)})" if args else "R.Tensor"


def _outer_name(w: Writer, shape: tuple[PrimExpr, ...]) -> str:
    """The name of the first dimension of a ragged shape, which no symbol of the others has."""
    symbols = {w.names.of(s, s.name) for s in symbols_in(shape[1:])}
    return fresh_name(types.DIMENSIONS[0], symbols.__contains__)


def sequence(texts: list[str]) -> str:
    """The inside of a tuple display: one element keeps its comma."""
    return f"{texts[0]}," if len(texts) == 1 else ", ".join(texts)


def _callable(w: Writer, ty: types.FuncType, path: str, quoted: bool) -> str:
    ret = annotation(w, ty.ret, path + ".ret", quoted=quoted)
    if ty.params is None:
        return f"R.Callable(ret={ret}, purity={ty.is_pure})"
    params = sequence(_all(w, ty.params, path + ".params", quoted))
    return f"R.Callable(({params}), {ret}, {ty.is_pure})"


def attribute(w: Writer, value: Any, path: str) -> str:
    """An attribute value: numbers, strings, lists, dictionaries, scalar expressions."""
    match value:
        case str():
            return string(value)
        case None | bool() | np.bool_():
            return str(value)
        case int() | np.integer():
            return str(int(value))  # type: ignore[reportUnknownArgumentType]
        case float() | np.floating():
            number = float(value)  # type: ignore[reportUnknownArgumentType]
            text = repr(number)
            return text if np.isfinite(number) else f'float("{text}")'
        case tuple() | list():
            items = [attribute(w, v, f"{path}[{i}]") for i, v in enumerate(value)]  # type: ignore
            return f"[{', '.join(items)}]"
        case Attrs() | Mapping():
            items = (f"{string(k)}: {attribute(w, v, f'{path}[{k!r}]')}" for k, v in value.items())  # type: ignore
            return f"{{{', '.join(items)}}}"
        case expr.IntImm(v, "int64"):  # a bare number would come back as a Python number
            return f"T.int64({v})"
        case PrimExpr():
            return scalar(w, value, path)
        case types.Type():
            return annotation(w, value, path)
        case IndexMap():
            return _index_map(w, value, path)
        case loops.Reducer():
            return _reducer(w, value, path)
        case _:
            kind = type(value).__name__
            raise TypeError(f"an attribute of type {kind} cannot be written in a script: {value!r}")


def _reducer(w: Writer, r: loops.Reducer, path: str) -> str:
    identities = attribute(w, r.identities, path + ".identities")
    with w.names.scope():
        names = [w.names.declare(v, v.name) for v in (*r.lhs, *r.rhs)]
        results = [scalar(w, e, f"{path}.results[{i}]") for i, e in enumerate(r.results)]
        combined = results[0] if len(results) == 1 else f"({sequence(results)})"
        return f"T.comm_reducer(lambda {', '.join(names)}: {combined}, {identities})"


def _index_map(w: Writer, m: IndexMap, path: str) -> str:
    with w.names.scope():
        names = [w.names.declare(v, v.name) for v in m.initial_indices]
        finals = dims(w, m.final_indices, path + ".final_indices", False)
        return f"T.index_map(lambda {', '.join(names)}: ({sequence(finals)}))"
