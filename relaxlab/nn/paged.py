"""Attention over a paged KV cache: many sequences of any lengths in one call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relaxlab.ir import expr
from relaxlab.nn import paged_loops, spec
from relaxlab.nn.attention import Heads, RotaryEmbedding
from relaxlab.nn.builder import Tensor
from relaxlab.nn.loop_functions import Scores
from relaxlab.nn.paged_loops import PoolShape


@dataclass(frozen=True, slots=True)
class Ragged:
    """The rows of a batch by sequence, and the sequences' pages; int32 (see `paged_loops`).

    positions (t,): of each row in its sequence. slots (t,): where its key and value go. tiles (w,
    2): sequence and first row. row_ends, page_ends (sequences + 1,): where the rows and the pages
    of each sequence end. pages (n,).
    """

    positions: Tensor
    slots: Tensor
    tiles: Tensor
    row_ends: Tensor
    page_ends: Tensor
    pages: Tensor

    @staticmethod
    def spec(rows: spec.Dim) -> list[spec.Tensor]:
        """The parameters in order, for `Module.export`; `rows` is the number of rows."""
        shapes: list[tuple[spec.Dim, ...]] = [
            (rows,), (rows,), ("tiles", 2), ("ends",), ("ends",), ("pages",),
        ]  # fmt: skip
        return [spec.Tensor(shape, "int32") for shape in shapes]


@dataclass(frozen=True, slots=True)
class PagedKVCache:
    """Keys (pages, kv_heads, head_dim, PAGE) and values (pages, kv_heads, PAGE, head_dim) of one
    layer, shared by all sequences; a `Cache`.

    Tensors of heads are (1, t, heads, head_dim): the rows of all sequences below each other. New
    ones are written in place. `tile` rows of a sequence are worked on at once.
    """

    keys: Tensor
    values: Tensor
    rows: Ragged
    tile: int

    @staticmethod
    def spec(shape: PoolShape) -> list[spec.Tensor]:
        """The two parameters, for `Module.export`; any number of pages."""
        return [spec.Tensor(("pool", *s[1:]), shape.dtype) for s in shape.of(0)]

    @property
    def dtype(self) -> str:
        """The dtype of the keys and values."""
        return self.keys.dtype

    @property
    def shape(self) -> PoolShape:
        """Heads, features per head, dtype."""
        _, heads, _, head_dim = self.values.shape
        assert isinstance(heads, expr.IntImm) and isinstance(head_dim, expr.IntImm)
        return PoolShape(heads.value, head_dim.value, self.dtype)

    def rotate(self, rotary: RotaryEmbedding, x: Heads) -> Heads:
        """The heads of the new rows, turned by the angles of their positions."""
        builder = x.tensor.builder
        func = paged_loops.paged_rotary(
            x.total, x.first, x.count, x.head_dim, rotary.dims, rotary.interleaved
        )
        tables = [builder.weight(rotary.cos), builder.weight(rotary.sin)]
        (y,) = builder.call_loops("rotary", func, [x.tensor, *tables, self.rows.positions])
        return Heads(y, 0, x.count)

    def append(self, k: Heads, v: Heads) -> PagedKVCache:
        """The cache with the keys and values of the new rows."""
        func = paged_loops.append_pages(
            k.total, k.first, v.total, v.first, self.shape, k.tensor.dtype
        )
        keys, values = k.tensor.builder.call_loops(
            "append_pages",
            func,
            [k.tensor, v.tensor, self.rows.slots, self.keys, self.values],
            inplace=(3, 4),
        )
        return replace(self, keys=keys, values=values)

    def attend(self, q: Heads, scores: Scores) -> Tensor:
        """The values (1, t, heads, head_dim) mixed for each query of the new rows, which the cache
        has already."""
        rows = self.rows
        func = paged_loops.paged_attention(
            q.total, q.first, q.count, self.shape, self.tile, scores, q.tensor.dtype
        )
        return q.tensor.builder.call_loops(
            "paged_attention",
            func,
            [
                q.tensor, self.keys, self.values,
                rows.tiles, rows.row_ends, rows.page_ends, rows.pages, rows.positions,
            ],
        )[0]  # fmt: skip
