"""Control flow, and calls that wrap a graph."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused
from relaxlab.ir import graph


@row("cond")
def cond(b: Emitter, condition: Any, true: Any, false: Any, operands: Any = ()) -> Any:
    if isinstance(condition, bool):
        return (true if condition else false)(*operands)
    if not isinstance(condition, graph.Expr):
        raise Refused("its condition depends on sizes alone")
    return b.cond(condition, lambda: true(*operands), lambda: false(*operands))


@row("while_loop")
def while_loop(
    b: Emitter, condition: Any, body: Any, carried: list[Tensor], captured: list[Tensor]
) -> Any:
    return b.while_loop(lambda *values: condition(*values)[0], body, carried, captured)


row("wrap_with_set_grad_enabled", lambda b, enabled, body, *operands: body(*operands))


@row("wrap_with_autocast")
def wrap_with_autocast(
    b: Emitter, device: str, dtype: Any, enabled: bool, cache: Any, body: Any, *operands: Any
) -> Any:
    if enabled:
        raise Refused("automatic mixed precision is not supported; convert the model instead")
    return body(*operands)
