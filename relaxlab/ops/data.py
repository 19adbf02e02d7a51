"""Operators on values of algebraic data types.

The script writes `cls.Node(a, b)` for `adt.construct`, and `match` for the others, which
`lower_match` makes of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.subtype import Verdict, check_subtype
from relaxlab.ir import graph
from relaxlab.ir.data import Constructor, DataDef, DataValue, data_types
from relaxlab.ir.errors import counted
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import REQUIRED, OpRow, register_op
from relaxlab.ir.types import DataType, TensorType, Type
from relaxlab.ops.define import TypesOf, attr, fail, params


def _declared(call: graph.Call, name: str, mod: Module | None) -> DataDef:
    found = data_types(mod).get(name)
    if found is None:
        raise fail(call, f"the module declares no data type `{name}`")
    return found


def _constructor(call: graph.Call, data: DataDef) -> Constructor:
    name = attr(call, "constructor")
    found = data.constructor(name)
    if found is None:
        names = ", ".join(f"`{c.name}`" for c in data.constructors)
        raise fail(call, f"`{data.name}` has no constructor `{name}`; it has {names}")
    return found


def _data_arg(call: graph.Call, tys: TypesOf, mod: Module | None) -> DataDef:
    if len(tys) != 1 or not isinstance(tys[0], DataType):
        raise fail(call, f"takes a value of a data type, not {', '.join(map(str, tys))}")
    return _declared(call, tys[0].name, mod)


def _infer_construct(call: graph.Call, tys: TypesOf, mod: Module | None) -> Type:
    data = _declared(call, attr(call, "data"), mod)
    of = _constructor(call, data)
    if len(tys) != len(of.fields):
        takes = counted(len(of.fields), "field")
        raise fail(call, f"`{of.name}` of `{data.name}` has {takes}, got {len(tys)}")
    for i, (given, wanted) in enumerate(zip(tys, of.fields, strict=True)):
        if check_subtype(given, wanted, Analyzer()) is not Verdict.PASS:
            raise fail(call, f"field {i} of `{of.name}` is {wanted}, got {given}")
    return DataType(data.name)


def _infer_tag(call: graph.Call, tys: TypesOf, mod: Module | None) -> Type:
    _data_arg(call, tys, mod)
    return TensorType((), "int64")


def _infer_field(call: graph.Call, tys: TypesOf, mod: Module | None) -> Type:
    of = _constructor(call, _data_arg(call, tys, mod))
    index = attr(call, "index")
    if not 0 <= index < len(of.fields):
        raise fail(call, f"`{of.name}` has no field {index}")
    return of.fields[index]


def _own(value: Any) -> Any:
    """A field that shares no memory with what it was made of."""
    return value.copy() if isinstance(value, np.ndarray) else value


def _construct(*fields: Any, data: str, constructor: str, tag: int) -> DataValue:
    return DataValue(data, constructor, tag, tuple(map(_own, fields)))


def _field(value: DataValue, *, constructor: str, index: int) -> Any:
    if value.constructor != constructor:
        raise ValueError(f"field {index} of `{constructor}` is read of a `{value.constructor}`")
    return _own(value.fields[index])


register_op(
    OpRow(
        "adt.construct",
        params("*fields", data=REQUIRED, constructor=REQUIRED, tag=REQUIRED),
        _infer_construct,
        _construct,
    )
)
register_op(
    OpRow("adt.tag", params("value"), _infer_tag, lambda value: np.asarray(value.tag, np.int64))
)
register_op(
    OpRow("adt.field", params("value", constructor=REQUIRED, index=REQUIRED), _infer_field, _field)
)
