"""Fusion of cascaded reductions: one pass over the shared axis, with running results.

The blocks of a cascade (`schedule/cascade.py`) each go over all of the shared axis. In one pass,
rows (one of the outer axes) are cut into tiles and the shared axis into chunks, and no more memory
is needed than for a chunk, however long the axis. For the sum and the product of a softmax:

    for each tile of rows:
        top, total, mix = lowest, 0, 0
        for each chunk of positions:
            score = queries @ keys of the chunk, scaled and masked
            fade = exp(top - max(top, max(score)))
            top = max(top, max(score))
            weight = exp(score - top)
            total = total * fade + sum(weight)
            mix = mix * fade + weight @ values of the chunk
        result of mix and total

What was reduced is corrected whenever a result that its terms depend on moves
(`schedule/correction.py`), and once more where the result at the end differs from what took its
place meanwhile. Sources: online softmax (Milakov and Gimelshein, 2018), FlashAttention (Dao et al.,
2022), whose chunks that a mask hides from all rows are left out, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    IterKind,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import replace, walk
from relaxlab.schedule.cascade import Cascade, axes_of, find_cascade, loads_in, require, written
from relaxlab.schedule.correction import (
    Correction,
    Recentring,
    Rescaling,
    Scale,
    correction_of,
    reduction,
)
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.ranges import ZERO, shape_analyzer
from relaxlab.schedule.reduction_tile import (
    Load,
    Local,
    Sizes,
    Tile,
    Values,
    cuts_of,
    nest_of,
    tiles_of,
    with_regions,
)
from relaxlab.schedule.tree import fresh_block_name
from relaxlab.schedule.visible_terms import (
    changes_nothing,
    guarded,
    guarded_along,
    within,
)


def fuse_reductions(
    func: PrimFunc, name: str, axis: int, rows: int, chunk: int, multiple: int, width: int,
    parts: int, workers: int, whole: bool, cuts: str | None,
) -> tuple[PrimFunc, str]:  # fmt: skip
    """Return `func` with the cascade of the reduction `name` in one pass, in tiles of `rows` of its
    spatial axis number `axis`, and the name of the block of the tiles. Raises ScheduleError where
    there is no cascade, or no correction for one of its reductions.

    A tile takes the shared axis in chunks of `chunk`, the last of them rounded up to a multiple of
    `multiple`, which divides `chunk`. The tiles are one block over the outer axes and the tiles,
    with private buffers of constant sizes; inside, the chunks are a block with one axis of kind
    scan. The last further axis of results is rounded up to a multiple of `width`. Results differ
    from those of `func` by rounding: sums have another order.

    A reduction that reads other arrays takes the points of a chunk that exist, or if `whole` all,
    the last point of these arrays in place of those beyond.

    With several `workers`, each step is a chunk for each of them, side by side, and `multiple`
    divides these together; their results are combined behind the last step. With several `parts`,
    they take the steps in turns: the part is one more axis of the tiles, whose results go to main
    memory, where blocks behind the tiles combine them. `cuts` names an index function with the rows
    at which pieces begin: no tile has rows of two, and the piece is an axis before that of tiles.
    """
    cascade = find_cascade(func, name)
    if cascade is None:
        raise ScheduleError(
            "fuse_reductions", f"block {name!r}",
            "a reduction over its axis has terms that depend on another's result", about=(name,),
        )  # fmt: skip
    for block in cascade.reductions:
        require_reassociable("fuse_reductions", func, block)
    last = cascade.reductions[-1]
    positive = min(rows, multiple, chunk, width, parts, workers) >= 1
    if not positive or chunk * workers % multiple:
        sizes = f"{rows} rows, chunks of {chunk} for {workers}, {multiple}, {width} and {parts}"
        require(False, last, f"{sizes} are positive, and chunks are multiples of {multiple}")
    spatial = axes_of(next(b for b in cascade.reductions if b.name == name))
    common = axis in range(len(spatial)) and spatial[axis] in cascade.outer
    require(common, last, f"the reductions have axis {axis} of {name} in common")
    count = cascade.extents[spatial[axis]]
    at = next((b for b in cuts_of(func, count) if b.name == cuts), None)
    require(at or cuts is None, last, f"{cuts} is an index function that rises from 0 to {count}")
    sizes = Sizes(rows, chunk, multiple, width, parts, workers, whole, at)
    tile, outer, chunks = tiles_of(func, cascade, spatial[axis], sizes)
    run = _Run(tile, {b.name: correction_of(cascade, b) for b in cascade.reductions})
    body = loops.seq(*(s for b in cascade.blocks if b not in cascade.results for s in run.step(b)))
    end = cascade.blocks[-1].name
    step = with_regions(Block(f"{end}_chunk", (chunks,), (), (), body), tile.analyzer)
    inside = [*run.start(), nest_of(step)]
    if workers > 1:
        merging, run = run.merged()
        inside += merging
    split = _Split(run, outer[-1], {}) if parts > 1 else None
    inside += run.end() if split is None else split.stored()
    behind = [] if split is None else split.combined(func)
    name = fresh_block_name(func, f"{end}_tile")
    does = loops.seq(*inside)
    used = {n.buffer for n in walk(does) if isinstance(n, BufferStore)}
    private = tuple(b for b in (*tile.private.values(), *run.new) if b in used)
    block = Block(name, outer, (), (), does, alloc_buffers=private)
    new = loops.seq(nest_of(with_regions(block, tile.analyzer)), *behind)
    if split is None:
        return _replaced(func, cascade, new, cascade.dims.keys() - cascade.shared, ()), name
    gone = {written(b) for b in cascade.inside}
    return _replaced(func, cascade, new, gone, tuple(split.buffers.values())), name


@dataclass(frozen=True, slots=True)
class _Run:
    """The running results of a tile. `corrections`: by the names of reductions; `new`: buffers
    besides the tile's own. While chunks are taken, the buffer of a result that terms depend on has
    what takes its place: of a maximum at least the lowest finite number, so that `exp(x - maximum)`
    is 0 for an x of minus infinity; the mean of what has been seen. `final` has the buffers of the
    results themselves, where these are needed as well."""

    tile: Tile
    corrections: Mapping[str, Correction]
    new: list[Buffer] = field(default_factory=list[Buffer])
    fades: dict[Scale, Buffer] = field(default_factory=dict[Scale, Buffer])
    means: dict[Buffer, tuple[Buffer, Buffer]] = field(
        default_factory=dict[Buffer, tuple[Buffer, Buffer]]
    )
    final: dict[Buffer, Buffer] = field(default_factory=dict[Buffer, Buffer])

    def __post_init__(self) -> None:
        cascade, private = self.tile.cascade, self.tile.private
        read = {n.buffer for b in cascade.results for n in loads_in(b.body)} | cascade.shared
        for correction in self.corrections.values():
            if isinstance(correction, Recentring):
                like = private[correction.centre]
                self.means[correction.total] = (
                    self.buffer(like, "{}_so_far"),
                    self.buffer(like, "{}_shift"),
                )
                continue
            for scale in correction.scales:
                if scale not in self.fades:
                    self.fades[scale] = self.buffer(private[scale.of], "{}_fade")
                if scale.of not in self.final and not (
                    correction.is_guarded and scale.of not in read
                ):
                    self.final[scale.of] = self.buffer(private[scale.of], "{}_final")

    def buffer(self, like: Buffer, name: str) -> Buffer:
        """A new private buffer of the shape of another, called by its name in place of {}."""
        self.new.append(replace(like, name=name.format(like.name)))
        return self.new[-1]

    def start(self) -> list[Stmt]:
        """Return the initialisation, one block for results over the same axes."""
        values: dict[tuple[Var, ...], list[tuple[Buffer, PrimExpr]]] = {}
        last: dict[tuple[Var, ...], Block] = {}
        for block in self.tile.cascade.reductions:
            made, nothing = written(block), reduction(block).identity
            axes, running = tuple(self.tile.inner(made)), self.tile.private[made]
            begin = values.setdefault(axes, [])
            last[axes] = block
            if made in self.final:
                begin.append((self.final[made], nothing))
            if any(made is scale.of for scale in self.fades):
                info = np.finfo(made.dtype)
                lowest = info.min if reduction(block).op is expr.Max else info.max
                nothing = expr.const(float(lowest), made.dtype)
            begin.append((running, nothing))
            if made in self.means:
                begin.append((self.means[made][0], nothing))
        return [
            self.tile.stores(f"{last[axes].name}_init", written(last[axes]), lambda _, v=v: v)
            for axes, v in values.items()
        ]

    def step(self, block: Block) -> list[Stmt]:
        """Return what a block of the cascade becomes for a chunk."""
        # The reductions of the chunk write to buffers of their own: the old result is needed for
        # the factor by which sums shrink, and these are multiplied before they grow.
        tile, made = self.tile, written(block)
        private = {**tile.private, **{
            c.centre: self.means[c.total][0]
            for c in self.corrections.values() if isinstance(c, Recentring)
        }}  # fmt: skip
        for axis in tile.padded(block):
            block = guarded_along(block, axis, tile.cascade.extents[axis])
        if block.name not in self.corrections:
            exact = tile.extents[tile.cascade.axis] is tile.exact
            terms = block if exact else guarded(tile.cascade, block)
            return [tile.step(terms, private)]
        new = self.buffer(tile.private[made], "new_{}")
        exact, terms = not changes_nothing(tile.cascade, block, reads=False), block
        if exact and tile.whole:
            exact, terms = False, within(tile.cascade, block)
        does = tile.step(terms, {**private, made: new}, new.name, exact=exact)
        return [does, tile.stores(block.name, made, lambda load: self.grown(block, new, load))]

    def grown(self, block: Block, new: Buffer, load: Load) -> list[tuple[Buffer, PrimExpr]]:
        """The stores that take the results of a chunk into the running ones."""
        made, correction = written(block), self.corrections[block.name]
        running, combined = self.tile.private[made], reduction(block).combined
        now = load(running)
        if isinstance(correction, Recentring):
            _, shift = self.means[correction.total]
            seen = expr.Cast(running.dtype, self.tile.seen)
            now = now + seen * load(shift) * load(shift)
        else:
            now = _scaled(now, (load(self.fades[scale]) for scale in correction.scales))
        now = combined(now, load(new))
        stores: list[tuple[Buffer, PrimExpr]] = []
        if made in self.means:
            mean, shift = self.means[made]
            seen = expr.Cast(made.dtype, self.tile.seen + self.tile.exact)
            stores += [(shift, now / seen - load(mean)), (mean, now / seen)]
        stores += [
            (fade, scale.factor(load(running), now))
            for scale, fade in self.fades.items() if scale.of is made
        ]  # fmt: skip
        if made in self.final:
            final = self.final[made]
            stores.append((final, combined(load(final), load(new))))
        return [*stores, (running, now)]

    def merged(self) -> tuple[list[Stmt], _Run]:
        """Return the statements that combine the results of the workers, and the run with what
        they are combined to."""
        tile, cascade = self.tile, self.tile.cascade
        made = {b: tile.private[b] for b in map(written, (*cascade.reductions, *cascade.results))
                if b in tile.private}  # fmt: skip
        reduced = [written(b) for b in cascade.reductions]
        private = {b: self.buffer(_without_workers(p), "{}_merged") for b, p in made.items()}
        final = {b: self.buffer(_without_workers(p), "{}_merged") for b, p in self.final.items()}
        parts = {b: self.buffer(tile.private[b], "{}_parts") for b in reduced}
        last = {b: self.buffer(p, "{}_parts") for b, p in self.final.items()}
        found: list[Stmt] = []
        for b in reduced:
            copies = [(parts[b], tile.private[b])]
            copies += [(last[b], self.final[b])] if b in self.final else []
            found += [
                tile.stores(to.name, b, lambda load, to=to, p=p: [(to, load(p))])
                for to, p in copies
            ]
        for block in cascade.reductions:
            b = written(block)
            targets = [(private[b], parts)] + ([(final[b], last)] if b in final else [])
            found += [self._merging(block, to, own, parts, private) for to, own in targets]
        whole = dataclasses.replace(tile, worker=None, private=private)
        return found, dataclasses.replace(self, tile=whole, final=final)

    def _merging(
        self, block: Block, to: Buffer, own: Mapping[Buffer, Buffer],
        parts: Mapping[Buffer, Buffer], whole: Mapping[Buffer, Buffer],
    ) -> Stmt:  # fmt: skip
        """The reduction of the workers' results `own` into the buffer `to`."""
        tile, made = self.tile, written(block)
        kinds: dict[Var, IterKind] = {a: "spatial" for a in tile.inner(made) if a != tile.worker}
        for a in tile.workers:
            kinds[a] = "reduce"

        def body(local: Local) -> tuple[Stmt, Stmt]:
            def at(b: Buffer) -> tuple[PrimExpr, ...]:
                return tuple(local[a] for a in tile.inner(b))

            value = self.moved_on(
                block, BufferLoad(own[made], at(made)), lambda b: BufferLoad(parts[b], at(b)),
                lambda b: BufferLoad(whole[b], at(b)[1:]),
            )  # fmt: skip
            return _accumulating(block, to, at(made)[1:], value)

        return tile.block(to.name, kinds, body)

    def moved_on(self, block: Block, value: PrimExpr, old: Load, new: Load) -> PrimExpr:
        """The partial result of a reduction, after moves of the results that its terms depend
        on."""
        correction = self.corrections[block.name]
        require(isinstance(correction, Rescaling), block,
                "partial results are combined by factors, as those of a softmax")  # fmt: skip
        assert isinstance(correction, Rescaling)
        return _scaled(value, (scale.factor(old(scale.of), new(scale.of))
                               for scale in correction.scales))  # fmt: skip

    def end(self) -> list[Stmt]:
        """Return the last corrections, and the results of the rows and features that exist."""
        tile, cascade = self.tile, self.tile.cascade
        private, found = {**tile.private, **self.final}, list[Stmt]()
        for block in cascade.blocks:
            made = written(block)
            if block in cascade.inside:
                continue
            if block in cascade.results and not tile.is_stored(made):
                for axis in tile.padded(block):
                    block = guarded_along(block, axis, cascade.extents[axis])  # noqa: PLW2901
                found.append(tile.step(block, private))
            if block.name in self.corrections and (now := self.corrected(block)):
                found.append(tile.stores(f"{block.name}_end", made, now))
            if made in cascade.shared:
                found.append(self.stored(block, private))
        return found

    def corrected(self, block: Block) -> Values | None:
        """The store of the last correction of a reduction, if it needs one."""
        correction, private = self.corrections[block.name], self.tile.private
        running = private[written(block)]
        count = self.tile.cascade.extents[self.tile.cascade.axis]
        if isinstance(correction, Rescaling) and correction.is_guarded:
            return None

        def values(load: Load) -> list[tuple[Buffer, PrimExpr]]:
            now = load(running)
            if isinstance(correction, Recentring):
                shift = load(private[correction.centre]) - load(self.means[correction.total][0])
                moved = now + expr.Cast(running.dtype, count) * shift * shift
            else:
                factors = [
                    scale.factor(load(private[scale.of]), load(self.final[scale.of]))
                    for scale in correction.scales
                ]
                moved = _scaled(now, factors)
            if self.tile.analyzer.prove(expr.LT(ZERO, count)):
                return [(running, moved)]
            return [(running, expr.Select(expr.LT(ZERO, count), moved, now))]

        return values

    def stored(self, block: Block, private: Mapping[Buffer, Buffer]) -> Stmt:
        """Return the store of a result that is used after the tile, where it exists."""
        tile, made, store = self.tile, written(block), block.body
        assert isinstance(store, BufferStore)

        def body(local: Local) -> tuple[Stmt, None]:
            value = BufferLoad(made, store.indices) if made in private else store.value
            target = tile.moved(replace(store, value=expr.const(0, made.dtype)), local, {})
            moved = replace(target, value=tile.moved(value, local, private))
            return tile.where_there(moved, block, local), None

        kinds: dict[Var, IterKind] = dict.fromkeys(tile.inner(made), "spatial")
        name = f"{block.name}_out" if made in private else block.name
        return tile.block(name, kinds, body)


@dataclass(frozen=True, slots=True)
class _Split:
    """The results of the parts of the shared axis, which `run` has in a tile, in main memory.
    `part`: the axis of the tiles; `buffers`: by the private buffers of the run."""

    run: _Run
    part: IterVar
    buffers: dict[Buffer, Buffer]

    def stored(self) -> list[Stmt]:
        """Return the stores of a tile's results."""
        run, found = self.run, list[Stmt]()
        for block in run.tile.cascade.reductions:
            made = written(block)
            own = [run.tile.private[made], *([run.final[made]] if made in run.final else [])]
            found += [self._store(block, private) for private in own]
        return found

    def _at(self, made: Buffer, place: Mapping[Var, PrimExpr], part: PrimExpr) -> list[PrimExpr]:
        """The indices of an element of the parts' results."""
        cascade = self.run.tile.cascade
        further = (a for a in cascade.dims[made] if a not in cascade.outer)
        return [*(place[a] for a in cascade.outer), part, *(place[a] for a in further)]

    def _store(self, block: Block, private: Buffer) -> Stmt:
        tile, made = self.run.tile, written(block)
        shape = self._at(made, tile.cascade.extents, self.part.dom.extent)
        whole = Buffer(f"{made.name}_{'final_' if private in self.run.final.values() else ''}split",
                       tuple(shape), made.dtype)  # fmt: skip
        self.buffers[private] = whole

        def body(local: Local) -> tuple[Stmt, None]:
            place = {**tile.place, **local}
            place[tile.row] = tile.place[tile.row] + local[tile.row]
            at = tuple(local[a] for a in tile.inner(made))
            store = BufferStore(
                whole, BufferLoad(private, at), tuple(self._at(made, place, self.part.var))
            )
            return tile.where_there(store, block, local), None

        kinds: dict[Var, IterKind] = dict.fromkeys(tile.inner(made), "spatial")
        return tile.block(f"{whole.name}_out", kinds, body)

    def combined(self, func: PrimFunc) -> list[Stmt]:
        """Return the blocks that combine the results of all parts, and those that read what comes
        of it."""
        cascade, an, found = self.run.tile.cascade, shape_analyzer(func), list[Stmt]()
        for block in cascade.blocks:
            if block in cascade.inside:
                continue
            if block in cascade.results:
                found.append(nest_of(block))
                continue
            found.append(nest_of(with_regions(self._combining(func, block, an), an)))
        return found

    def _combining(self, func: PrimFunc, block: Block, an: Analyzer) -> Block:
        run, cascade, made = self.run, self.run.tile.cascade, written(block)
        axes = {it.var: Var(it.var.name) for it in block.iter_vars if it.kind == "spatial"}
        part = Var("vpart")

        def partial(b: Buffer, private: Buffer) -> PrimExpr:
            return BufferLoad(self.buffers[private], tuple(self._at(b, axes, part)))

        def now(b: Buffer) -> PrimExpr:
            return BufferLoad(b, tuple(axes[a] for a in cascade.dims[b]))

        private = run.tile.private
        own = partial(made, run.final.get(made, private[made]))
        value = run.moved_on(block, own, lambda b: partial(b, private[b]), now)
        some = expr.LT(ZERO, cascade.extents[cascade.axis])
        if value is not own and not an.prove(some):
            value = expr.Select(some, value, own)
        at = tuple(axes[a] for a in cascade.dims[made])
        body, init = _accumulating(block, made, at, value)
        iter_vars = (
            *(replace(it, var=axes[it.var]) for it in block.iter_vars if it.kind == "spatial"),
            IterVar(part, self.part.dom, "reduce"),
        )
        name = fresh_block_name(func, f"{block.name}_combined")
        return Block(name, iter_vars, (), (), body, init)


def _without_workers(buffer: Buffer) -> Buffer:
    return replace(buffer, shape=buffer.shape[1:])


def _accumulating(
    block: Block, to: Buffer, at: tuple[PrimExpr, ...], value: PrimExpr
) -> tuple[Stmt, Stmt]:
    """The store that takes a value into an element as the reduction does, and the first one."""
    form = reduction(block)
    body = BufferStore(to, form.combined(BufferLoad(to, at), value), at)
    return body, BufferStore(to, form.identity, at)


def _scaled(value: PrimExpr, factors: Iterable[PrimExpr]) -> PrimExpr:
    """The value times factors of any dtype."""
    for f in factors:
        value = value * (f if f.dtype == value.dtype else expr.Cast(value.dtype, f))
    return value


def _replaced(
    func: PrimFunc, cascade: Cascade, new: Stmt, gone: Collection[Buffer], more: tuple[Buffer, ...]
) -> PrimFunc:
    """`func` with the nests of the cascade, which are in its root block, replaced; `gone` are the
    buffers that nothing uses any more, `more` the new ones."""
    root = func.body
    assert isinstance(root, BlockRealize) and isinstance(root.block.body, SeqStmt)
    last = cascade.place[-1]
    stmts = [new if i == last else s for i, s in enumerate(root.block.body.stmts)
             if i == last or i not in cascade.place]  # fmt: skip
    kept = tuple(b for b in root.block.alloc_buffers if b not in gone)
    block = replace(root.block, body=loops.seq(*stmts), alloc_buffers=(*kept, *more))
    return replace(func, body=replace(root, block=block))
