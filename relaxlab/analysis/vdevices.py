"""Virtual devices of results: a call runs where its arguments are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxlab.ir.node import replace
from relaxlab.ir.op_table import TypeDeductionError
from relaxlab.ir.target import target_kinds
from relaxlab.ir.types import TensorType, TupleType, Type


def on_common_device(op: str, arg_types: Sequence[Type], result: Type) -> Type:
    """`result` with its tensors on the virtual device that the arguments of `R.<op>` name, but for
    those that are on a device already.

    Raises TypeDeductionError for arguments on several devices.
    """
    places: dict[str, str] = {}
    for t in _tensors(arg_types):
        if t.vdevice:
            places.setdefault(place_of(t.vdevice), t.vdevice)
    named = list(places.values())
    if not named:
        return result
    if len(named) > 1:
        raise TypeDeductionError(
            f"R.{op}: the arguments are on the devices {' and '.join(named)}",
            suggestion=f'move one of them: R.to_vdevice(…, "{named[0]}")',
        )
    return _placed(result, named[0])


def place_of(vdevice: str) -> str:
    """The name of a virtual device with the kind of its target: "cpu:0:global" and
    "llvm:0:global" are the same one."""
    kind, _, place = vdevice.partition(":")
    kinds = {name: k.name for k in target_kinds() for name in k.devices}
    return f"{kinds.get(kind, kind)}:{place}"


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
