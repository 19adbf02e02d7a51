"""Virtual devices of results: a call runs where its arguments are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxlab.ir.node import replace
from relaxlab.ir.op_table import TypeDeductionError
from relaxlab.ir.types import TensorType, TupleType, Type


def on_common_device(op: str, arg_types: Sequence[Type], result: Type) -> Type:
    """`result` with its tensors on the virtual device that the arguments of `R.<op>` name, but for
    those that are on a device already.

    Raises TypeDeductionError for arguments on several devices.
    """
    named = list(dict.fromkeys(t.vdevice for t in _tensors(arg_types) if t.vdevice))
    if not named:
        return result
    if len(named) > 1:
        raise TypeDeductionError(
            f"R.{op}: the arguments are on the devices {' and '.join(named)}",
            suggestion=f'move one of them: R.to_vdevice(…, "{named[0]}")',
        )
    return _placed(result, named[0])


def _tensors(tys: Sequence[Type]) -> Iterator[TensorType]:
    for ty in tys:
        match ty:
            case TensorType():
                yield ty
            case TupleType(fields):
                yield from _tensors(fields)
            case _:
                pass


def _placed(ty: Type, vdevice: str) -> Type:
    match ty:
        case TensorType():
            return ty if ty.vdevice else replace(ty, vdevice=vdevice)
        case TupleType(fields):
            return replace(ty, fields=tuple(_placed(f, vdevice) for f in fields))
        case _:
            return ty
