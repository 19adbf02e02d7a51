"""The primitives of `Schedule` that copy buffers, or store them in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.graph import GlobalVar
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.schedule import annotate as _annotate
from relaxlab.schedule import cache as _cache
from relaxlab.schedule import layout as _layout
from relaxlab.schedule import reindex as _reindex
from relaxlab.schedule import scope
from relaxlab.schedule import stage_at as _stage_at
from relaxlab.schedule import stated_regions as _stated
from relaxlab.schedule.bind_expr import bind_expr as _bind_expr
from relaxlab.schedule.cache_index import cache_index as _cache_index
from relaxlab.schedule.cache_inplace import cache_inplace as _cache_inplace
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.fast_math import unsafe_fast_math as _unsafe_fast_math
from relaxlab.schedule.pad_axis import pad_axis as _pad_axis
from relaxlab.schedule.primitive import primitive, step
from relaxlab.schedule.rolling_buffer import rolling_buffer as _rolling_buffer
from relaxlab.schedule.set_dtype import unsafe_set_dtype as _unsafe_set_dtype
from relaxlab.schedule.state import BlockRV, LoopRV, ScheduleState
from relaxlab.schedule.zero_beyond import unsafe_zero_beyond as _unsafe_zero_beyond


@methods_name_arguments
class DataPrimitives(ScheduleState):
    """A loop function being scheduled, with the primitives about its buffers."""

    @step(by_axes=True)
    def cache_read(
        self, block: BlockRV, read_buffer_index: int, storage_scope: str,
        consumer_blocks: Sequence[BlockRV] = (),
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block reads; returns the copying block."""
        return self._cached(_cache.cache_read, block, read_buffer_index, storage_scope,
                            consumer_blocks)  # fmt: skip

    @step(by_axes=True)
    def cache_write(
        self, block: BlockRV, write_buffer_index: int, storage_scope: str,
        consumer_blocks: Sequence[BlockRV] = (),
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block writes; returns the copying block."""
        return self._cached(_cache.cache_write, block, write_buffer_index, storage_scope,
                            consumer_blocks)  # fmt: skip

    def _cached(
        self, fn: Callable[..., tuple[PrimFunc, str]], block: BlockRV, index: int, scope: str,
        consumers: Sequence[BlockRV],
    ) -> BlockRV:  # fmt: skip
        names = [self._name(c) for c in consumers]
        self.func, copy = fn(self.func, self._name(block), index, scope, names)
        return self._new_block(copy)

    @step(by_axes=True)
    def cache_inplace(
        self, block: BlockRV, read_buffer_index: int, storage_scope: str
    ) -> list[BlockRV]:
        """Stage a buffer that the block updates: each of its instances reads and writes a copy.
        Returns the block that makes the copy and the one that copies back."""
        self.func, *names = _cache_inplace(
            self.func, self._name(block), read_buffer_index, storage_scope
        )
        return [self._new_block(n) for n in names]

    @step(by_axes=True)
    def cache_index(
        self, block: BlockRV, storage_scope: str, cse_thresh: int = 0
    ) -> list[BlockRV]:
        """Keep indices that the block computes for its loads in tables, those that occur at least
        `cse_thresh` times. Returns the blocks that fill them."""
        self.func, names = _cache_index(self.func, self._name(block), storage_scope, cse_thresh)
        return [self._new_block(n) for n in names]

    @step(by_axes=True)
    def read_at(
        self, loop: LoopRV, block: BlockRV, read_buffer_index: int, storage_scope: str
    ) -> BlockRV:
        """Stage what one iteration of the loop reads of a buffer of the block, copied as a whole;
        returns the copying block."""
        self.func, copy = _stage_at.read_at(
            self.func, self._var(loop), self._name(block), read_buffer_index, storage_scope
        )
        return self._new_block(copy)

    @step(by_axes=True)
    def write_at(
        self, loop: LoopRV, block: BlockRV, write_buffer_index: int, storage_scope: str
    ) -> BlockRV:
        """Stage what one iteration of the loop writes to a buffer of the block, copied as a whole;
        returns the copying block."""
        self.func, copy = _stage_at.write_at(
            self.func, self._var(loop), self._name(block), write_buffer_index, storage_scope
        )
        return self._new_block(copy)

    @step()
    def set_scope(self, block: BlockRV, buffer_index: int, storage_scope: str) -> None:
        """Change the scope of an intermediate buffer that the block writes."""
        self.func = _cache.set_scope(self.func, self._name(block), buffer_index, storage_scope)

    @step()
    def storage_align(
        self, block: BlockRV, buffer_index: int, axis: int, factor: int, offset: int
    ) -> None:
        """Ask for an aligned stride of a buffer that the block writes."""
        self.func = _annotate.storage_align(
            self.func, self._name(block), buffer_index, axis, factor, offset
        )

    @step()
    def pad_axis(self, block: BlockRV, axis: int, multiple: int, beside: int = 0) -> None:
        """Let a block that fills an intermediate buffer go on along its axis number `axis`, storing
        zeros, until the buffer has `beside` elements more than a multiple of `multiple`: then whole
        tiles of its readers, and windows that reach so far beyond them, find elements there."""
        self.func = _pad_axis(self.func, self._name(block), axis, multiple, beside)

    @step()
    def swizzle(self, block: BlockRV, buffer_index: int, bits: int, base: int, shift: int) -> None:
        """Store a shared or private buffer that the block writes by an XOR swizzle: `bits` bits of
        the offset of an element, from number `base` on, are xored with those `shift` above."""
        layout = _annotate.Swizzle(bits, base, shift)
        self.func = _annotate.swizzle(self.func, self._name(block), buffer_index, layout)

    @primitive(by_axes=True)
    def reindex(self, block: BlockRV, buffer: tuple[str, int] | str | Buffer) -> BlockRV:
        """Let the block read or write a copy of a buffer whose indices are the block's axes;
        returns the copying block. `buffer` is as for `transform_layout`."""
        kind, index = _layout.region_number(self._place(block).block, buffer)

        def run() -> BlockRV:
            self.func, copy = _reindex.reindex(self.func, self._name(block), kind, index)
            return self._new_block(copy)

        return self._step("reindex", {"block": block, "buffer": (kind, index)}, run)

    @primitive(by_axes=True)
    def reindex_cache_read(
        self, block: BlockRV, read_buffer_index: int, storage_scope: str,
        index_map: _layout.MapLike, place: int | None = None,
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block reads, in a copy whose indices `index_map` makes of the
        block's axes; returns the copying block. Of a buffer that is read at several places,
        `place` says which of them reads the copy, from 0 on in the order of the block's text."""
        return self._reindexed("read", block, read_buffer_index, storage_scope, index_map, place)

    @primitive(by_axes=True)
    def reindex_cache_write(
        self, block: BlockRV, write_buffer_index: int, storage_scope: str,
        index_map: _layout.MapLike,
    ) -> BlockRV:  # fmt: skip
        """Stage a buffer that the block writes, in a copy whose indices `index_map` makes of the
        block's axes; returns the copying block."""
        return self._reindexed("write", block, write_buffer_index, storage_scope, index_map)

    def _reindexed(
        self, kind: str, block: BlockRV, index: int, storage_scope: str,
        index_map: _layout.MapLike, place: int | None = None,
    ) -> BlockRV:  # fmt: skip
        imap = _layout.as_index_map(index_map, len(self._place(block).block.iter_vars))
        args = {
            "block": block, f"{kind}_buffer_index": index, "storage_scope": storage_scope,
            "index_map": imap, **({} if place is None else {"place": place}),
        }  # fmt: skip

        def run() -> BlockRV:
            self.func, copy = _reindex.reindex_cache(
                self.func, self._name(block), kind, index, storage_scope, imap, place
            )
            return self._new_block(copy)

        return self._step(f"reindex_cache_{kind}", args, run)

    @primitive(by_axes=True)
    def bind_expr(
        self, block: BlockRV, axes: Sequence[int], storage_scope: str, number: int | None = None
    ) -> BlockRV:
        """Compute the part of a block that depends on some of its axes alone, those of the numbers
        `axes`, in a block of its own before it; returns the new block. Of `a[i, k] / r[i] * b[k,
        j]`, the axes i and k alone make the quotient, which is computed once for all j then.
        `number`: which one, where there are several such parts."""
        axes = tuple(axes)

        def run() -> BlockRV:
            name = self._name(block)
            self.func, made = _bind_expr(self.func, name, axes, storage_scope, number)
            return self._new_block(made)

        args = {"block": block, "axes": axes, "storage_scope": storage_scope, "number": number}
        return self._step("bind_expr", args, run)

    @step()
    def rolling_buffer(self, block: BlockRV, write_buffer_index: int) -> None:
        """Keep of a buffer that the block writes what one iteration of the loops around it and its
        readers touches, in a circle, and compute only what the iteration before did not."""
        self.func = _rolling_buffer(self.func, self._name(block), write_buffer_index)

    @primitive()
    def annotate_buffer_access(
        self, block: BlockRV, buffer: tuple[str, int], begin: _layout.MapLike, end: _layout.MapLike
    ) -> None:
        """State the region that the block accesses of a buffer, given as ("read" or "write",
        number): from the indices that `begin` makes of its axes to those before `end`.

        Indices that come from data, or from arithmetic of floats, are taken to be inside, as where
        a resized image is read; all others have to be.
        """
        count = len(self._place(block).block.iter_vars)
        first, after = (_layout.as_index_map(m, count) for m in (begin, end))
        args = {"block": block, "buffer": tuple(buffer), "begin": first, "end": after}

        def run() -> None:
            self.func = _stated.annotate_buffer_access(
                self.func, self._name(block), *buffer, first, after
            )

        self._step("annotate_buffer_access", args, run)

    @step()
    def unsafe_hide_buffer_access(
        self, block: BlockRV, buf_type: str, buf_index_array: Sequence[int]
    ) -> None:
        """Leave regions, by number, out of those that the block declares to "read" or to "write",
        so that a pattern without them matches. Steps do not see these accesses until one computes
        the regions of the block anew."""
        self.func = _stated.unsafe_hide_buffer_access(
            self.func, self._name(block), buf_type, tuple(buf_index_array)
        )

    @step()
    def unsafe_set_dtype(self, block: BlockRV, buffer_index: int, dtype: str) -> None:
        """Store an intermediate buffer that the block writes as another dtype, by conversions: a
        narrower one changes what is computed."""
        self.func = _unsafe_set_dtype(self.func, self._name(block), buffer_index, dtype)

    @step()
    def unsafe_fast_math(self, block: BlockRV) -> None:
        """Compute exponentials and quotients of float32 in a block by the approximations of the
        hardware, and `exp(x - y)` without a case of its own for minus infinity."""
        self.func = _unsafe_fast_math(self.func, self._name(block))

    @step()
    def unsafe_zero_beyond(self, block: BlockRV) -> None:
        """Let a copy store zeros where it goes beyond the end of an array, in place of the last
        elements that it stores there now: it changes what is computed, unless nothing depends on
        these."""
        self.func = _unsafe_zero_beyond(self.func, self._name(block))

    @primitive()
    def transform_layout(
        self,
        block: BlockRV,
        buffer: tuple[str, int] | str | Buffer,
        index_map: _layout.MapLike,
        pad_value: float | PrimExpr | None = None,
    ) -> None:
        """Store a buffer in another order; `buffer` is ("read" | "write", index), or a buffer of
        the block or its name. `index_map` is an IndexMap or a function of the old indices;
        `pad_value` has the buffer's dtype, or is a number that it can hold.

        A parameter of a function that is compiled by itself is then passed in the new layout.
        """
        found = self._place(block).block
        kind, index = _layout.region_number(found, buffer)
        target = _cache.buffer_of(found, kind, index, "transform_layout")
        imap = _layout.as_index_map(index_map, target.ndim)
        pad = None if pad_value is None else _layout.padding_of(pad_value, target, found)
        args = {"block": block, "buffer": (kind, index), "index_map": imap, "pad_value": pad}

        def run() -> None:
            self._require_no_callers(target)
            self.func = _layout.transform_layout(self.func, found.name, kind, index, imap, pad)

        self._step("transform_layout", args, run)

    def _require_no_callers(self, buffer: Buffer) -> None:
        """Raise ScheduleError if the buffer is a parameter that the module's functions pass."""
        if not scope.is_output(buffer, self.func):
            return
        me = GlobalVar(self.name)
        for caller, func in self._module.graph_functions().items():
            if any(node == me for node in walk(func)):
                raise ScheduleError(
                    "transform_layout", f"parameter {buffer.name}",
                    f"no function of the module passes {buffer.name} in the layout it has now; "
                    f"`{caller}` calls `{self.name}`",
                    suggestion="cache_read or cache_write it first, and transform the copy",
                    about=(buffer,),
                )  # fmt: skip
