"""The type of a ragged parameter of an exported method."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relaxlab.ir import types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.expr import Var
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.nn.spec import Ragged
from relaxlab.script import parse


def ragged_type(
    name: str,
    what: Ragged,
    lengths: Mapping[str, types.LengthsType],
    symbol: Callable[[str], Var],
) -> types.TensorType:
    """The type that `what` says for the parameter `name`, by the lengths of the parameters
    before it and symbols. Raises ValueError for a shape that no ragged tensor has."""
    if not 2 <= len(what.shape) <= len(types.DIMENSIONS):
        raise ValueError(f"{name!r} needs two dimensions or more, not {what.shape}")
    # Extents mean what they mean in a script, and are refused where a script's are.
    dims = dict(zip(types.DIMENSIONS, what.shape, strict=False))
    params = [f"{n}: {_annotation(ty)}" for n, ty in lengths.items()]
    this = "x" * (1 + max(map(len, lengths), default=0))  # a name that none of them has
    params.append(f"{this}: R.Ragged({dims!r}, {what.dtype!r})")
    text = f"@R.function\ndef shape({', '.join(params)}):\n    return {this}\n"
    try:
        func = parse(text, check=False).graph_functions()["shape"]
    except DiagnosticError as error:
        known = [str(ty.each) for ty in lengths.values()]
        raise ValueError(
            f"{name!r} cannot have the shape {what.shape}: {error.diagnostics[0].message}; the "
            f"arguments before it have the lengths {', '.join(known) or 'of no sequences'}"
        ) from error
    ty = func.params[-1].ty
    assert isinstance(ty, types.TensorType)
    each = {str(t.each): t.each for t in lengths.values()}
    return substitute(ty, {v: each.get(v.name) or symbol(v.name) for v in symbols_in(ty)})


def _annotation(ty: types.LengthsType) -> str:
    """The annotation of a parameter with lengths, its symbols as strings."""
    assert ty.shape is not None
    most = "" if ty.most is None else f", at_most={ty.most}"
    return f'R.Lengths("{ty.shape[0]}", "{ty.total}"{most}, at_least={ty.least})'
