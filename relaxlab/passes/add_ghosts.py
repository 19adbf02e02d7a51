"""Let branches of unequal length end at the same depth (ACRoBat's ghost operators)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relaxlab.ir import recording as rec
from relaxlab.tracing import may_apply

LONGEST = 4
"""Blocks behind each other in the longest branch that gets ghosts."""


def add_ghosts(functions: dict[str, rec.RecordingFunction]) -> dict[str, rec.RecordingFunction]:
    """Raise the counted depth at the end of the shorter of two branches to that of the longer one,
    so that what follows them is noted at the same depth in all instances, and runs in one batch.

    A ghost is an addition to the counter: nothing is noted. Branches whose lengths depend on
    recursion, or which wait for a tensor, are left alone.
    """
    state = _Ghosts(functions)
    return {n: replace(f, steps=state.steps(n, f.steps)) for n, f in functions.items()}


@dataclass(slots=True)
class _Ghosts:
    functions: dict[str, rec.RecordingFunction]

    def steps(self, name: str, steps: tuple[rec.Step, ...]) -> tuple[rec.Step, ...]:
        return tuple(self.step(name, s) for s in steps)

    def step(self, name: str, step: rec.Step) -> rec.Step:
        match step:
            case rec.Together(members):
                return replace(step, members=self.steps(name, members))
            case rec.Branch(then_steps=yes, else_steps=no):
                yes, no = self.steps(name, yes), self.steps(name, no)
                yes, no = self.level(name, step, yes, no)
                return replace(step, then_steps=yes, else_steps=no)
            case _:
                return step

    def level(
        self, name: str, branch: rec.Branch, yes: tuple[rec.Step, ...], no: tuple[rec.Step, ...]
    ) -> tuple[tuple[rec.Step, ...], tuple[rec.Step, ...]]:
        """The arms of a branch with ghosts."""
        a, b = self.count(yes, ()), self.count(no, ())
        if a is None or b is None or a == b or max(a, b) > LONGEST:
            return yes, no
        subject = f"{name}.{branch.results[0].name if branch.results else branch.condition}"
        if not may_apply("add_ghosts", subject, f"its arms note {a} and {b} blocks in a row"):
            return yes, no
        ghost = (rec.Skip(abs(a - b)),)
        return (yes + ghost, no) if a < b else (yes, no + ghost)

    def count(self, steps: tuple[rec.Step, ...], within: tuple[str, ...]) -> int | None:
        """The blocks that steps note behind each other; None where that differs. `within` are the
        functions that are being counted: those that call themselves have no count."""
        counts = [self.of(s, within) for s in steps]
        known = [c for c in counts if c is not None]
        return sum(known) if len(known) == len(counts) else None

    def of(self, step: rec.Step, within: tuple[str, ...]) -> int | None:
        match step:
            case rec.Record(static_depth=depth):
                return int(depth is None)
            case rec.Skip(count):
                return count
            case rec.Call(name):
                if name in within:
                    return None
                return self.count(self.functions[name].steps, (*within, name))
            case rec.Together(members):
                counts = [self.of(m, within) for m in members]
                known = [c for c in counts if c is not None]
                return max(known) if len(known) == len(counts) else None
            case rec.Branch(then_steps=yes, else_steps=no):
                a, b = self.count(yes, within), self.count(no, within)
                return a if a == b else None
            case rec.ReadTensor() | rec.Phase():
                return None
            case _:
                return 0
