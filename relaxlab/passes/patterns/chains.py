"""Matching sequences: calls of which each reads the value before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from relaxlab.ir import graph
from relaxlab.passes.patterns.language import Chain, Pattern
from relaxlab.passes.patterns.match import BlockScope, Env, Match, Matcher, NearestMiss


def find_chains(
    chains: Sequence[Chain], scope: BlockScope, miss: NearestMiss, name: str
) -> Iterator[Match]:
    """The ways to give each pattern of the chains a variable of the block, such that the edges
    between them hold. The first pattern's place decides the order."""
    search = _Search(chains, Matcher(scope, miss, name))
    start = chains[0].patterns[0]
    for b in scope.bindings:
        yield from search.extend({}, {}, [(start, b.var)])


class _Search:
    """Backtracking over the places of patterns."""

    def __init__(self, chains: Sequence[Chain], matcher: Matcher) -> None:
        self.matcher = matcher
        self.scope = matcher.scope
        self.patterns = list(dict.fromkeys(p for c in chains for p in c.patterns))
        self.edges = [
            (a, b, only)
            for c in chains
            for a, b, only in zip(c.patterns, c.patterns[1:], c.only, strict=False)
        ]

    def extend(
        self, places: dict[Pattern, graph.Var], env: Env, todo: list[tuple[Pattern, graph.Var]]
    ) -> Iterator[Match]:
        """Yield all ways to complete `places`, beginning with those in `todo`."""
        for pattern, var in todo:
            if var in places.values():
                continue
            for found in self.matcher.all_at(pattern, var, env):
                here = {**places, pattern: var}
                if not self._edges_hold(here):
                    continue
                yield from self._next(here, found)

    def _next(self, places: dict[Pattern, graph.Var], found: Match) -> Iterator[Match]:
        open_edges = [e for e in self.edges if (e[0] in places) != (e[1] in places)]
        if not open_edges:
            apart = [p for p in self.patterns if p not in places]
            if not apart:
                yield self._complete(places, found)
                return
            every = [(apart[0], b.var) for b in self.scope.bindings]
            yield from self.extend(places, found.values, every)
            return
        a, b, _ = open_edges[0]
        if a in places:
            readers = self.scope.readers.get(places[a], [])
            yield from self.extend(places, found.values, [(b, r) for r in readers])
        else:
            reads = [v for v in self.scope.position if places[b] in self.scope.readers.get(v, ())]
            yield from self.extend(places, found.values, [(a, v) for v in reads])

    def _edges_hold(self, places: dict[Pattern, graph.Var]) -> bool:
        for a, b, only in self.edges:
            if a not in places or b not in places:
                continue
            readers = self.scope.readers.get(places[a], [])
            if places[b] not in readers:
                return False
            if only and (readers != [places[b]] or self.scope.escapes(places[a])):
                return False
        return True

    def _complete(self, places: dict[Pattern, graph.Var], found: Match) -> Match:
        members = {*found.members, *places.values()}
        # Members of the parts matched before: whatever their calls looked through.
        order = sorted(members, key=lambda v: self.scope.position[v])
        return replace(found, root=order[-1], members=tuple(order))
