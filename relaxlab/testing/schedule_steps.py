"""Random uses of the primitives of `Schedule`, one rule per primitive."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from relaxlab.ir.expr import IntImm, Var
from relaxlab.ir.loops import Block, For, Permutation
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.primitive import leaves_unchanged
from relaxlab.schedule.schedule import BlockRV, LoopRV
from relaxlab.schedule.tree import all_blocks

LONG = 64
"""Iterations up to which a loop is unrolled or vectorized: four vectors of bytes' width."""
NESTED = 3
"""Primitives that are tried in a schedule inside of another one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A schedule, and what of its function a primitive is tried on: a block, the loops around it,
    one of them (None if there is none), and a second block. depth: of nested schedules."""

    sch: Schedule
    rng: random.Random
    block: BlockRV
    loops: list[LoopRV]
    loop: LoopRV | None
    other: BlockRV
    depth: int

    @staticmethod
    def drawn(sch: Schedule, rng: random.Random, depth: int = 0) -> Place | None:
        """A random place; None in a function without blocks."""
        names = [b.name for b in all_blocks(sch.func) if b.name != "root"]
        if not names:
            return None
        block = sch.get_block(rng.choice(names))
        loops = sch.get_loops(block)
        loop = rng.choice(loops) if loops else None
        return Place(sch, rng, block, loops, loop, sch.get_block(rng.choice(names)), depth)

    @property
    def found(self) -> Block:
        """The block itself."""
        found = self.sch.get(self.block)
        assert isinstance(found, Block)
        return found

    @property
    def extent(self) -> int | None:
        """The loop's extent if there is a loop, of a constant extent."""
        found = self.sch.get(self.loop) if self.loop is not None else None
        extent = found.extent if isinstance(found, For) else None
        return extent.value if isinstance(extent, IntImm) else None

    def scope(self) -> str:
        """A storage scope that CPUs have."""
        return self.rng.choice(["global", "local"])

    def read(self) -> int:
        """The number of a buffer that the block reads; mostly one that there is."""
        return self.rng.randrange(max(len(self.found.reads), 1))

    def nested(self, sch: Schedule) -> Schedule:
        """A schedule in which some more primitives were tried."""
        for _ in range(NESTED if self.depth == 0 else 0):
            try:
                random_step(sch, self.rng, depth=self.depth + 1)
            except ScheduleError:
                continue
        return sch


Rule: TypeAlias = Callable[[Place], Any]


def random_step(
    sch: Schedule, rng: random.Random, name: str | None = None, depth: int = 0
) -> str:
    """Try a random primitive, or that of a name, at a random place. Returns its
    name, an empty one if it left the function as it was. Raises ScheduleError."""
    before, place = sch.func, Place.drawn(sch, rng, depth)
    compact = any("compact_buffers()" in str(step) for step in sch.trace)
    name = name or rng.choice(LAST if compact else _DRAWN)
    if place is None or (compact and name not in LAST):
        name = "form_blocks" if place is None else "annotate"
    steps = len(sch.trace)
    try:
        if place is None:
            sch.form_blocks()
        else:
            RULES[name][1](place)
    except ScheduleError:
        if all(leaves_unchanged(s.name) for s in sch.trace[steps:]):
            raise
        return ""  # some steps of a rule were made
    return name if sch.func is not before else ""


def _on_block(name: str) -> Rule:
    return lambda p: getattr(p.sch, name)(p.block)


def _on_function(name: str) -> Rule:
    return lambda p: getattr(p.sch, name)()


def _on_loop(name: str, *options: tuple[Any, ...]) -> Rule:
    """Try a primitive on the loop, with one of each of the options."""

    def rule(p: Place) -> None:
        if p.loop is not None:
            getattr(p.sch, name)(p.loop, *map(p.rng.choice, options))

    return rule


def _on_short_loop(name: str) -> Rule:
    """As `_on_loop`, unless LLVM would take long for all iterations of the loop at once."""
    return lambda p: None if (p.extent or 0) > LONG else _on_loop(name)(p)


def _move(name: str) -> Rule:
    def rule(p: Place) -> None:
        if places := p.sch.get_loops(p.other):
            unit, index = p.rng.random() < 0.3, p.rng.choice([-1, -2])
            getattr(p.sch, name)(p.block, p.rng.choice(places), unit, index)

    return rule


def _rolling_buffer(p: Place) -> None:
    """Keep what is computed under a loop of a reader, where it is computed already or now."""
    readers = p.sch.get_consumers(p.block)
    if readers and (places := p.sch.get_loops(readers[0])) and p.rng.random() < 0.7:
        p.sch.compute_at(p.block, places[0])
    p.sch.rolling_buffer(p.block, 0)


def _split(p: Place) -> None:
    if p.loop is not None:
        m = p.rng.choice([2, 3, 4, 8])
        p.sch.split(p.loop, p.rng.choice([[None, m], [m, None], [None, 2, m]]))


def _deciding(p: Place) -> Schedule:
    """The schedule, which decides at random."""
    p.sch.decider = lambda _, candidates: p.rng.choice(candidates)
    return p.sch


def _sample_tile(name: str, *inner: int) -> Rule:
    """Split by tiles that are decided on."""

    def rule(p: Place) -> None:
        if p.loop is not None and p.extent is not None and 0 < p.extent <= LONG:
            step, decision = getattr(_deciding(p), name), _name(p, "tile")
            p.sch.split(p.loop, step(decision, p.loop, 2, *inner, (p.extent, 1)))

    return rule


def _sample_categorical(p: Place) -> None:
    name, scopes = _name(p, "scope"), ("global", "local")
    p.sch.cache_write(p.block, 0, _deciding(p).sample_categorical(name, scopes, "global"))


def _name(p: Place, of: str) -> str:
    """A name for a decision, which no other one has: not even in versions of the function."""
    return f"{of}{p.rng.getrandbits(40)}"


def _sample_compute_location(p: Place) -> None:
    at = _deciding(p).sample_compute_location(_name(p, "location"), p.block)
    if at is not None:
        p.sch.compute_at(p.block, at)


def _fuse(p: Place) -> None:
    if len(p.loops) > 1:
        first = p.rng.randrange(len(p.loops) - 1)
        p.sch.fuse(*p.loops[first : first + p.rng.choice([2, 3])])


def _two_loops(name: str) -> Rule:
    """Try a primitive on the outermost loops around two blocks, or on others."""

    def rule(p: Place) -> None:
        others = p.sch.get_loops(p.other)
        if p.loops and others:
            at = p.rng.choice([0, 0, -1])
            getattr(p.sch, name)(p.loops[at], others[at])

    return rule


def _reorder(p: Place) -> None:
    if len(p.loops) > 1:
        p.sch.reorder(*p.rng.sample(p.loops, p.rng.randint(2, len(p.loops))))


def _reorder_axes(p: Place) -> None:
    count = len(p.found.iter_vars)
    p.sch.reorder_block_iter_var(p.block, p.rng.sample(range(count), count))


def _rectangularize(p: Place) -> None:
    if p.loop is not None:
        p.sch.rectangularize(p.loop, p.rng.choice(p.loops))


def _balance(p: Place) -> None:
    if p.loop is not None:
        after = p.loops[p.loops.index(p.loop) + 1 :]
        p.sch.balance(p.loop, *after[: p.rng.randint(0, 1)])


def _privatize(p: Place) -> None:
    if p.loop is not None:
        p.sch.privatize(p.block, p.loop, p.rng.choice([None, p.loops[-1]]))


def _pack(p: Place) -> None:
    if p.loop is not None:
        p.sch.pack(p.block, p.read(), p.loop)


def _remap(p: Place) -> None:
    facts = [(b.name, f) for b in p.sch.func.buffers for f in b.facts]
    orders = [name for name, f in facts if isinstance(f, Permutation)]
    if p.loop is not None and orders:
        p.sch.remap(p.loop, p.rng.choice(orders))


def _pad_dim(p: Place) -> None:
    p.sch.pad_dim(p.block, 0, p.rng.randrange(3), p.rng.choice([2, 4, 8]))


def _copy(name: str) -> Rule:
    return lambda p: getattr(p.sch, name)(p.block, 0 if "write" in name else p.read(), p.scope())


def _copy_at(name: str) -> Rule:
    def rule(p: Place) -> None:
        if p.loop is not None:
            number = 0 if name == "write_at" else p.read()
            getattr(p.sch, name)(p.loop, p.block, number, p.scope())

    return rule


def _reindex(p: Place) -> None:
    p.sch.reindex(p.block, p.rng.choice([("write", 0), ("read", p.read())]))


def _bind_expr(p: Place) -> None:
    count = len(p.found.iter_vars)
    axes = [i for i in range(count) if p.rng.random() < 0.6]
    p.sch.bind_expr(p.block, axes, p.scope())


def _reindex_cache(name: str) -> Rule:
    def rule(p: Place) -> None:
        number = 0 if name == "reindex_cache_write" else p.read()
        shift = p.rng.choice([0, 0, 0, 1])
        spatial = [iv.kind == "spatial" for iv in p.found.iter_vars]
        kept = [i for i, s in enumerate(spatial) if s or "read" in name]
        p.rng.shuffle(kept)
        place = {"place": p.rng.choice([0, 1])} if "read" in name and p.rng.random() < 0.3 else {}
        getattr(p.sch, name)(
            p.block, number, p.scope(), lambda *v: [v[i] + shift for i in kept], **place
        )

    return rule


def _random_layout(p: Place) -> None:
    target = p.found.writes[0].buffer if p.found.writes else None
    if target is None or not target.ndim or any(b is target for b in p.sch.func.params):
        return
    tile = p.rng.choice([2, 4])
    if target.ndim == 1:
        fn = p.rng.choice([lambda i: (i // tile, i % tile), lambda i: (i % tile, i // tile)])
    else:
        fn = p.rng.choice([
            lambda i, j, *r: (j, i, *r), lambda i, j, *r: (i, j // tile, *r, j % tile),
        ])  # fmt: skip
    p.sch.transform_layout(p.block, ("write", 0), fn, pad_value=p.rng.choice([None, 0.0]))


def _block_layout(p: Place) -> None:
    count = len(p.found.iter_vars)
    if not count:
        return
    order = p.rng.sample(range(count), count)
    tile = p.rng.choice([1, 2, 4])

    def fn(*v: Any) -> list[Any]:
        first, *rest = (v[i] for i in order)
        return [*rest, first] if tile == 1 else [first // tile, *rest, first % tile]

    p.sch.transform_block_layout(p.block, fn)


def _pad_axis(p: Place) -> None:
    if axes := len(p.found.iter_vars):
        multiple, beside = p.rng.choice([2, 3, 8]), p.rng.choice([0, 2])
        p.sch.pad_axis(p.block, p.rng.randrange(axes), multiple, beside)


def _swizzle(p: Place) -> None:
    bits = p.rng.choice([1, 2])
    p.sch.swizzle(p.block, 0, bits, p.rng.choice([0, 1]), bits + p.rng.choice([0, 1]))


def _fuse_reductions(p: Place) -> None:
    multiple = p.rng.choice([1, 2])
    rows, chunk = p.rng.choice([1, 3, 4]), multiple * p.rng.choice([1, 2, 5])
    width, parts, workers = (p.rng.choice([1, 1, 1, 2]) for _ in range(3))
    p.sch.fuse_reductions(p.block, 0, rows, chunk, multiple, width, parts, workers)


def _annotate(p: Place) -> None:
    p.sch.annotate(p.rng.choice([p.block, p.loop or p.block]), "note", "drawn")


def _unannotate(p: Place) -> None:
    target = p.rng.choice([p.block, p.loop or p.block])
    p.sch.annotate(target, "note", "drawn")
    p.sch.unannotate(target, "note")


def _round_up(name: str) -> Rule:
    """Compute tails of tiles whole, where there are private tiles, or of some made now."""

    def rule(p: Place) -> None:
        if p.loop is not None and p.rng.random() < 0.7:
            copy = p.sch.cache_write(p.block, 0, "local")
            outer, inner = p.sch.split(p.loop, [None, p.rng.choice([2, 4, 8])])
            p.sch.reverse_compute_at(copy, outer)
            if p.rng.random() < 0.5:
                p.sch.vectorize(inner)
            p.sch.compact_buffers()
        getattr(p.sch, name)()

    return rule


def _apart(p: Place) -> None:
    blocks = p.rng.choice([[p.block], [p.block, p.other]])
    p.sch.schedule_apart(blocks, p.nested)


def _versions(declared: Callable[[Schedule, Var, int], None] | None = None) -> Rule:
    """Try versions for the sizes of a symbol, with what is `declared` of the bound in each."""

    def rule(p: Place) -> None:
        sizes = [d for b in p.sch.func.buffers for d in b.shape if isinstance(d, Var)]
        if p.depth or not sizes:
            return
        size = p.rng.choice(sizes)
        bounds = p.rng.choice([[1], [4], [1, 8], [2, 5]])

        def version(sch: Schedule, bound: int | None) -> Schedule:
            if declared is not None and bound is not None and bound > 1:
                declared(sch, size, bound)
            return p.nested(sch)

        p.sch.guarded_versions(size, bounds, version)

    return rule


def _bound_storage(sch: Schedule, size: Var, most: int) -> None:
    for block in all_blocks(sch.func):
        if block.name != "root" and block.writes:
            try:
                sch.set_scope(sch.get_block(block.name), 0, "local")
            except ScheduleError:
                continue
    sch.bound_storage(size, most)


RULES: dict[str, tuple[int, Rule]] = {
    "split": (6, _split),
    "fuse": (2, _fuse),
    "reorder": (4, _reorder),
    "merge": (1, _two_loops("merge")),
    "add_unit_loop": (2, _on_block("add_unit_loop")),
    "parallel": (2, _on_loop("parallel")),
    "vectorize": (2, _on_short_loop("vectorize")),
    "unroll": (2, _on_short_loop("unroll")),
    "unroll_and_jam": (2, _on_short_loop("unroll_and_jam")),
    "pad_loop": (2, _on_loop("pad_loop", (2, 3, 4, 8))),
    "rectangularize": (1, _rectangularize),
    "partition": (2, _on_loop("partition", (2, 3, 4, 8))),
    "loop_partition": (2, _on_loop("loop_partition", ([2, None], [None, 1], [1]))),
    "remap": (1, _remap),
    "horizontal_fuse": (1, _two_loops("horizontal_fuse")),
    "balance": (2, _balance),
    "privatize": (1, _privatize),
    "pack": (1, _pack),
    "pad_dim": (1, _pad_dim),
    "compute_at": (4, _move("compute_at")),
    "reverse_compute_at": (4, _move("reverse_compute_at")),
    "compute_inline": (2, _on_block("compute_inline")),
    "reverse_compute_inline": (2, _on_block("reverse_compute_inline")),
    "rolling_buffer": (1, _rolling_buffer),
    "cache_read": (2, _copy("cache_read")),
    "cache_write": (2, _copy("cache_write")),
    "cache_inplace": (2, _copy("cache_inplace")),
    "cache_index": (2, lambda p: p.sch.cache_index(p.block, p.scope(), p.rng.choice([0, 2]))),
    "read_at": (1, _copy_at("read_at")),
    "write_at": (1, _copy_at("write_at")),
    "bind_expr": (1, _bind_expr),
    "canonicalize_reduction": (1, _on_block("canonicalize_reduction")),
    "reindex": (1, _reindex),
    "reindex_cache_read": (1, _reindex_cache("reindex_cache_read")),
    "reindex_cache_write": (1, _reindex_cache("reindex_cache_write")),
    "set_scope": (2, lambda p: p.sch.set_scope(p.block, 0, "local")),
    "storage_align": (1, lambda p: p.sch.storage_align(p.block, 0, 0, 8, p.rng.choice([0, 1]))),
    "swizzle": (1, _swizzle),
    "transform_layout": (2, _random_layout),
    "transform_block_layout": (1, _block_layout),
    "reorder_block_iter_var": (1, _reorder_axes),
    "pad_einsum": (
        2, lambda p: p.sch.pad_einsum(p.block, [p.rng.choice([1, 2, 4]) for _ in p.found.iter_vars])
    ),
    "pad_axis": (2, _pad_axis),
    "decompose_padding": (
        1, lambda p: p.sch.decompose_padding(p.block, p.loop) if p.loop else None
    ),
    "decompose_reduction": (
        2, lambda p: p.sch.decompose_reduction(p.block, p.loop) if p.loop else None
    ),
    "rfactor": (2, _on_loop("rfactor", (0, -1))),
    "fuse_reductions": (1, _fuse_reductions),
    "fuse_reduction_epilogue": (1, lambda p: p.sch.fuse_reduction_epilogue(p.block, p.other)),
    "assume_finite": (1, _on_block("assume_finite")),
    "blockize": (2, _on_loop("blockize")),
    "form_blocks": (1, _on_function("form_blocks")),
    "compact_buffers": (1, _round_up("compact_buffers")),
    "round_up_tails": (1, _round_up("round_up_tails")),
    "round_up_vectors": (1, _round_up("round_up_vectors")),
    "join_axes": (1, lambda p: p.sch.join_axes(p.nested)),
    "schedule_apart": (1, _apart),
    "guarded_versions": (1, _versions()),
    "declare_upper_bound": (1, _versions(Schedule.declare_upper_bound)),
    "bound_storage": (1, _versions(_bound_storage)),
    "annotate": (1, _annotate),
    "unannotate": (1, _unannotate),
    "sample_categorical": (1, _sample_categorical),
    "sample_compute_location": (1, _sample_compute_location),
    "sample_perfect_tile": (1, _sample_tile("sample_perfect_tile", LONG)),
    "sample_partitioned_tile": (1, _sample_tile("sample_partitioned_tile", 1, 1)),
}  # fmt: skip
"""Per primitive: how often it is drawn, and a rule that tries it."""

LAST = (
    "annotate", "cache_read", "cache_write", "compute_at", "fuse", "pack", "parallel", "reindex",
    "reorder", "reverse_compute_at", "round_up_tails", "round_up_vectors", "split", "unannotate",
    "unroll", "vectorize",
)  # fmt: skip
"""Primitives that may follow `compact_buffers`, which lets blocks mention the loops around them."""

NOT_DRAWN = {
    "bind": "binds to threads of a GPU, which code for CPUs does not have",
    "tensorize": "takes the loops of an instruction, which no loop functions have by chance",
    "annotate_buffer_access": "takes a region on trust",
    "unsafe_hide_buffer_access": "takes it on trust that accesses may be left out",
    "unsafe_set_dtype": "changes results",
    "unsafe_fast_math": "changes results",
    "unsafe_zero_beyond": "changes results",
}
"""Primitives that no rule tries, and why; those that only look (`get_…`) change nothing."""

_DRAWN = tuple(name for name, (often, _) in RULES.items() for _ in range(often))
