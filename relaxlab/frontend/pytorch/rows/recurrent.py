"""Recurrent layers, which an export keeps whole."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of
from relaxlab.frontend.pytorch.rows.elementwise import dropout
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.recurrences import recurrence, row_of


def gates(b: Emitter, x: Tensor, weight: Tensor, bias: Tensor | None, count: int) -> Any:
    """`x @ weight.T + bias`, a tensor for each gate."""
    whole = b.linear(x, weight) if bias is None else b.linear(x, weight, bias)
    return b.fields(b.split(whole, count, axis=-1)) if count > 1 else (whole,)


def lstm_step(
    b: Emitter, x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Any, projection: Any
) -> Any:
    whole = b.add(x, b.linear(h, weight) if bias is None else b.linear(h, weight, bias))
    i, f, g, o = b.fields(b.split(whole, 4, axis=-1))
    c = b.add(b.multiply(b.sigmoid(f), c), b.multiply(b.sigmoid(i), b.tanh(g)))
    h = b.multiply(b.sigmoid(o), b.tanh(c))
    return (h if projection is None else b.linear(h, projection)), c


def gru_step(b: Emitter, x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Any, _: Any) -> Any:
    xr, xz, xn = b.fields(b.split(x, 3, axis=-1))
    hr, hz, hn = gates(b, h, weight, bias, 3)
    r, z = b.sigmoid(b.add(xr, hr)), b.sigmoid(b.add(xz, hz))
    n = b.tanh(b.add(xn, b.multiply(r, hn)))
    return b.add(n, b.multiply(z, b.subtract(h, n))), c


def plain_step(activation: str) -> Any:
    def step(b: Emitter, x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Any, _: Any) -> Any:
        (gate,) = gates(b, h, weight, bias, 1)
        return getattr(b, activation)(b.add(x, gate)), c

    return step


STEPS = {
    "lstm": lstm_step, "gru": gru_step, "rnn_tanh": plain_step("tanh"),
    "rnn_relu": plain_step("relu"),
}  # fmt: skip


def layers(kind: str) -> None:
    step = STEPS[kind]

    def network(
        b: Emitter, x: Tensor, states: list[Tensor], weights: list[Tensor], has_biases: bool,
        num_layers: int, dropped: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        x = dropout(x, dropped, train)
        runs = 2 if bidirectional else 1
        each = len(weights) // (num_layers * runs)
        last: list[list[Tensor]] = [[] for _ in states]
        x = b.permute_dims(x, axes=(1, 0, 2)) if batch_first else x
        for layer in range(num_layers):
            outputs: list[Tensor] = []
            for n in range(layer * runs, (layer + 1) * runs):
                wi, wh, *more = weights[n * each : (n + 1) * each]
                bi, bh = more[:2] if has_biases else (None, None)
                projection = more[-1] if len(more) % 2 else None
                found = [row_of(b, s, n) for s in states]
                h, c = found if kind == "lstm" else (found[0], b.zeros((1,), dtype=dtype_of(x)))
                gated = b.linear(x, wi) if bi is None else b.linear(x, wi, bi)
                own = (wh, bh, projection)
                y, *ends = recurrence(
                    b, lambda *v: step(b, *v), gated, h, c, own, n % runs == 1
                )
                outputs.append(y)
                for kept, end in zip(last, ends, strict=False):
                    kept.append(end)
            x = outputs[0] if runs == 1 else b.concat(outputs, axis=-1)
        y = b.permute_dims(x, axes=(1, 0, 2)) if batch_first else x
        return y, *(b.stack(ends, axis=0) for ends in last)

    row(f"relaxlab.{kind}.default", network)


for _kind in STEPS:
    layers(_kind)
