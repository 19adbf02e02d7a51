"""A decoder over a paged KV cache: one call for rows of many sequences."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab import nn
from relaxlab.ir.module import Module as IRModule
from relaxlab.models.decoder import Decoder
from relaxlab.nn import paged_loops
from relaxlab.nn.layers import FEW_ROWS
from relaxlab.nn.paged import PagedKVCache, Ragged
from relaxlab.nn.paged_loops import PoolShape

TILE = 4
"""Rows of a sequence per tile of attention, if there are several: they share the loads of keys and
values."""

Pools = Sequence[Sequence[nn.Tensor]]


class PagedDecoder(Decoder):
    """`extend` takes any number of new rows of each sequence, `step` one row of each; so does
    `few_steps` for at most `FEW_ROWS` sequences, in the precision for few rows.

    They take ids int32 (1, t), the arrays of `Ragged`, and per layer the keys and values of the
    pool (see `PagedKVCache`), to which the new rows are written in place.
    """

    def extend(self, ids: nn.Tensor, rows: Sequence[nn.Tensor], pools: Pools) -> nn.Tensor:
        """Logits float32 (sequences, vocab_size) of each sequence's last row."""
        ragged = Ragged(*rows)
        x = self.hidden(ids, [PagedKVCache(k, v, ragged, TILE) for k, v in pools])
        last = paged_loops.last_rows(self.config.hidden_size)
        (x,) = ids.builder.call_loops("last_rows", last, [x, ragged.row_ends])
        return self.logits(x)

    def step(self, ids: nn.Tensor, rows: Sequence[nn.Tensor], pools: Pools) -> nn.Tensor:
        """Logits float32 (t, vocab_size)."""
        ragged = Ragged(*rows)
        return self.logits(self.hidden(ids, [PagedKVCache(k, v, ragged, 1) for k, v in pools]))

    few_steps = step

    def build_paged(self, *, max_rows: int, max_sequences: int) -> tuple[IRModule, list[str]]:
        """Return the graph functions `extend` and `step` for at most `max_rows` rows and
        `max_sequences` sequences, `few_steps` where few rows have a precision of their own, and
        the weights' names in order."""
        config = self.config
        pool = PagedKVCache.spec(PoolShape(config.num_kv_heads, config.head_dim, self.kv_dtype))

        def arguments(rows: str) -> dict[str, nn.spec.Spec]:
            return {
                "ids": nn.spec.Tensor((1, rows), "int32"),
                "rows": Ragged.spec(rows),
                "pools": [pool] * config.num_layers,
            }

        bounds = {"t": max_rows, "b": max_sequences, "ends": max_sequences + 1, "tiles": max_rows}
        methods = {"extend": arguments("t"), "step": arguments("b")}
        if self.precision.few is not None:
            methods["few_steps"] = arguments("few")
            bounds["few"] = FEW_ROWS
        return self.export(methods, bounds)
