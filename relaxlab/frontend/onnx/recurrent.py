"""Rows of recurrent networks."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.onnx.rows import ints, number, row, static
from relaxlab.frontend.recurrences import recurrence, row_of
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr

ACTIVATIONS = {"Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu"}


def _gates(b: Emitter, x: Any, w: Any, bias: Any) -> Any:
    """`x @ w.T + bias`."""
    return b.linear(x, w) if bias is None else b.linear(x, w, bias)


def _columns(b: Emitter, x: Any, count: int) -> tuple[Any, ...]:
    return b.fields(b.split(x, count, axis=-1)) if count > 1 else (x,)


def _rnn_step(b: Emitter, f: Any, x: Any, h: Any, c: Any, r: Any, rb: Any, **_: Any) -> Any:
    return f[0](b.add(x, _gates(b, h, r, rb))), c


def _gru_step(
    b: Emitter, f: Any, x: Any, h: Any, c: Any, r: Any, rb: Any, linear_before_reset: int = 0,
    **_: Any,
) -> Any:  # fmt: skip
    xz, xr, xh = _columns(b, x, 3)
    rz, rr, rh = b.fields(b.split(r, 3, axis=0))
    bz, br, bh = b.fields(b.split(rb, 3, axis=0)) if rb is not None else (None,) * 3
    z = f[0](b.add(xz, _gates(b, h, rz, bz)))
    reset = f[0](b.add(xr, _gates(b, h, rr, br)))
    if linear_before_reset:
        inner = b.multiply(reset, _gates(b, h, rh, bh))
    else:
        inner = _gates(b, b.multiply(reset, h), rh, bh)
    new = f[1](b.add(xh, inner))
    return b.add(b.multiply(b.subtract(number(b, 1, z), z), new), b.multiply(z, h)), c


def _lstm_step(
    b: Emitter, f: Any, x: Any, h: Any, c: Any, r: Any, rb: Any, peepholes: Any = None, **_: Any
) -> Any:
    i, o, forget, new = _columns(b, b.add(x, _gates(b, h, r, rb)), 4)
    pi, po, pf = b.fields(b.split(peepholes, 3, axis=0)) if peepholes is not None else (None,) * 3

    def peeking(gate: Any, weight: Any, state: Any) -> Any:
        return gate if weight is None else b.add(gate, b.multiply(weight, state))

    i, forget = f[0](peeking(i, pi, c)), f[0](peeking(forget, pf, c))
    c = b.add(b.multiply(forget, c), b.multiply(i, f[1](new)))
    return b.multiply(f[0](peeking(o, po, c)), f[2](c)), c


RECURRENT = {
    "RNN": (_rnn_step, 1, ("Tanh",)), "GRU": (_gru_step, 3, ("Sigmoid", "Tanh")),
    "LSTM": (_lstm_step, 4, ("Sigmoid", "Tanh", "Tanh")),
}  # fmt: skip
"""The step, the number of gates, the functions of each."""


def _are_whole(lengths: Any, length: PrimExpr) -> bool:
    """True unless sequences of a batch have lengths of their own."""
    return lengths is None or {expr.as_expr(n) for n in ints(lengths, "the lengths")} <= {length}


def _recurrent(kind: str) -> Any:
    step, gates, usual = RECURRENT[kind]

    @static(4)
    def network(
        b: Emitter, x: Any, w: Any, r: Any, bias: Any = None, lengths: Any = None, h0: Any = None,
        c0: Any = None, peepholes: Any = None, *, direction: str = "forward", hidden_size: int,
        activations: Any = None, layout: int = 0, clip: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        x = b.permute_dims(x, axes=(1, 0, 2)) if layout else x
        length = shape_of(x)[0]
        if not _are_whole(lengths, length) or clip is not None:
            raise Refused("sequences of different lengths, or a clip")
        functions = [getattr(b, ACTIVATIONS[a]) for a in activations or ()] or None
        batch, runs = shape_of(x)[1], 2 if direction == "bidirectional" else 1
        ys: list[Any] = []
        last: list[tuple[Any, Any]] = []
        for d in range(runs):
            given = (w, r, bias, peepholes)
            wd, rd, bd, pd = (None if v is None else row_of(b, v, d) for v in given)
            f = functions[d * len(usual) :] if functions else [getattr(b, a.lower()) for a in usual]
            zeros = b.zeros((batch, hidden_size), dtype=dtype_of(x))
            h, c = (zeros if v is None else _state(b, v, d, layout) for v in (h0, c0))
            wb, rb = b.fields(b.split(bd, 2, axis=0)) if bd is not None else (None, None)

            def one(x: Any, h: Any, c: Any, r: Any, rb: Any, p: Any, f: Any = f) -> Any:
                return step(b, f, x, h, c, r, rb, peepholes=p, **options)

            backward = direction == "reverse" or d == 1
            y, h, c = recurrence(b, one, _gates(b, x, wd, wb), h, c, (rd, rb, pd), backward)
            ys.append(y)
            last.append((h, c))
        whole = b.stack(ys, axis=1)
        finals = [b.stack([s[k] for s in last], axis=1 if layout else 0) for k in (0, 1)]
        if layout:  # (batch, length, runs, features)
            whole = b.permute_dims(whole, axes=(2, 0, 1, 3))
        return (whole, *finals) if kind == "LSTM" else (whole, finals[0])

    return network


def _state(b: Emitter, x: Any, i: int, layout: int) -> Any:
    return row_of(b, b.permute_dims(x, axes=(1, 0, 2)) if layout else x, i)


for _kind in RECURRENT:
    row(_kind, _recurrent(_kind))
