"""merge: one loop in place of loops that follow each other."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir.expr import Var
from relaxlab.ir.loops import For, PrimFunc, SeqStmt, seq
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.dependence import require_order_free
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import analyzer_at
from relaxlab.schedule.scope import axes_bound_to, written
from relaxlab.schedule.split_fuse_reorder import require_plain
from relaxlab.schedule.tree import LoopPlace, describe_loop, find_loop, realizes_under

PRIMITIVE = "merge"


def merge(func: PrimFunc, variables: Sequence[Var]) -> tuple[PrimFunc, Var]:
    """Replace loops of one extent, which follow each other, by one loop that does in each iteration
    what each of them did there. Perfect nests around the loops are merged with them.

    Raises ScheduleError unless it is proved that no iteration needs what another makes.
    """
    places = [find_loop(func, v, PRIMITIVE) for v in variables]
    if len(set(variables)) < 2:
        raise ScheduleError(PRIMITIVE, "the arguments", "there are two or more different loops")
    depth = _common_depth(places)
    nests = [_nest(p, depth) for p in places]
    around = places[0].path[depth]
    assert isinstance(around, SeqStmt)
    at = [next(i for i, s in enumerate(around.stmts) if s is n[0]) for n in nests]
    if at != list(range(at[0], at[0] + len(at))):
        raise ScheduleError(
            PRIMITIVE, describe_loop(places[0].loop),
            "the loops follow each other in the order in which they are given",
        )  # fmt: skip
    merged = [Var(f"{loop.loop_var.name}_m") for loop in nests[0]]
    nests = [_renamed(n, merged) for n in nests]
    _require_one_extent(places[0], nests)
    body = seq(*(n[-1].body for n in nests))
    for loop, var in reversed(list(zip(nests[0], merged, strict=True))):
        body = replace(loop, loop_var=var, body=body)
    stmts = (*around.stmts[: at[0]], body, *around.stmts[at[-1] + 1 :])
    new = places[0].replaced(seq(*stmts), depth)
    _require_own_results(places, nests)
    for var in merged:
        _require_spatial(find_loop(new, var, PRIMITIVE))
        require_order_free(PRIMITIVE, find_loop(new, var, PRIMITIVE))
    return new, merged[-1]


def _common_depth(places: Sequence[LoopPlace]) -> int:
    """The index in the paths of the sequence that the nests are statements of."""
    depth = 0
    while all(p.path[depth] is places[0].path[depth] for p in places):
        depth += 1
        if any(depth == len(p.path) for p in places):
            raise ScheduleError(
                PRIMITIVE, describe_loop(places[0].loop), "none of the loops is inside another"
            )
    if len({id(p.scope) for p in places}) > 1:
        raise ScheduleError(
            PRIMITIVE, describe_loop(places[0].loop), "the loops are in the same block"
        )
    return depth - 1


def _nest(place: LoopPlace, depth: int) -> list[For]:
    """The loops from the statement of the sequence to the loop at `place`, one in the other."""
    found: list[For] = []
    for outer, inner in zip(place.path[depth + 1 :], [*place.path[depth + 2 :], None], strict=True):
        if not isinstance(outer, For) or (inner is not None and outer.body is not inner):
            raise ScheduleError(
                PRIMITIVE, describe_loop(place.loop),
                "the loops outside of it, which are merged with it, are perfectly nested",
            )  # fmt: skip
        require_plain(PRIMITIVE, outer)
        found.append(outer)
    return found


def _renamed(nest: list[For], merged: list[Var]) -> list[For]:
    """The loops of a nest as if they were over the merged variables."""
    values = {loop.loop_var: var for loop, var in zip(nest, merged, strict=False)}
    return [
        replace(
            loop,
            min=substitute(loop.min, values),
            extent=substitute(loop.extent, values),
            body=substitute(loop.body, values),
        )
        for loop in nest
    ]


def _require_one_extent(place: LoopPlace, nests: list[list[For]]) -> None:
    if len({len(n) for n in nests}) > 1:
        raise ScheduleError(
            PRIMITIVE, describe_loop(place.loop), "the loops are at the same depth of their nests"
        )
    an = analyzer_at(place)
    for first, *others in zip(*nests, strict=True):
        for loop in others:
            same = an.prove_equal(loop.extent, first.extent)
            if not (same and an.prove_equal(loop.min, first.min)):
                raise ScheduleError(
                    PRIMITIVE, describe_loop(first),
                    f"the loops have one range; {describe_loop(loop)} has another",
                    about=(loop.loop_var,),
                )  # fmt: skip


def _require_own_results(places: Sequence[LoopPlace], nests: list[list[For]]) -> None:
    """Raise unless each buffer is written in one of the nests alone."""
    makers: dict[object, int] = {}
    for i, nest in enumerate(nests):
        for r in realizes_under(nest[-1].body):
            for buffer in written(r.block):
                if makers.setdefault(buffer, i) != i:
                    raise ScheduleError(
                        PRIMITIVE, describe_loop(places[i].loop),
                        f"each buffer is written under one of the loops; {buffer.name} is under "
                        "two", about=(buffer,),
                    )  # fmt: skip


def _require_spatial(place: LoopPlace) -> None:
    """Raise where the loop is for an axis that is not spatial: what one block reads of another is
    complete in each iteration."""
    for realize, axis in axes_bound_to(place.loop.loop_var, place.loop.body):
        if axis.kind != "spatial":
            raise ScheduleError(
                PRIMITIVE, describe_loop(place.loop),
                f"the loop is over spatial axes; {axis.var.name} of block "
                f"{realize.block.name!r} is not one",
                about=(realize.block.name,),
            )  # fmt: skip
