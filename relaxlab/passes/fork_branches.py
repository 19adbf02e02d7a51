"""Let conditionals that may wait for tensors wait side by side, as calls do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relaxlab.ir import recording as rec
from relaxlab.passes.order_steps import reads, results
from relaxlab.tracing import remark


def fork_branches(
    functions: Mapping[str, rec.RecordingFunction],
) -> dict[str, rec.RecordingFunction]:
    """Outline conditionals in whose arms an instance may wait, where they stand beside other steps
    that may: calls of functions that wait become fibers of their own."""
    state = _Outliner(rec.waiting_functions(functions), {})
    found = {n: replace(f, steps=state.steps(f, f.steps)) for n, f in functions.items()}
    return found | state.made


@dataclass(slots=True)
class _Outliner:
    waiting: frozenset[str]
    made: dict[str, rec.RecordingFunction]

    def may_wait(self, step: rec.Step) -> bool:
        return any(
            isinstance(s, rec.ReadTensor)
            or (isinstance(s, rec.Call) and s.function in self.waiting)
            for s in rec.walk_steps((step,))
        )

    def steps(
        self, within: rec.RecordingFunction, steps: tuple[rec.Step, ...]
    ) -> tuple[rec.Step, ...]:
        return tuple(self.step(within, s) for s in steps)

    def step(self, within: rec.RecordingFunction, step: rec.Step) -> rec.Step:
        match step:
            case rec.Branch(then_steps=yes, else_steps=no):
                yes, no = self.steps(within, yes), self.steps(within, no)
                return replace(step, then_steps=yes, else_steps=no)
            case rec.Together(members):
                several = sum(map(self.may_wait, members)) > 1
                inner = self.steps(within, members)
                return rec.Together(tuple(
                    self.call(within, new)
                    if several and isinstance(new, rec.Branch) and self.may_wait(old) else new
                    for old, new in zip(members, inner, strict=True)
                ))  # fmt: skip
            case _:
                return step

    def call(self, within: rec.RecordingFunction, branch: rec.Branch) -> rec.Call:
        """The call of a new function that runs the branch: it takes what is read there, and the
        arrays of the function around."""
        inner = (s for s in rec.walk_steps((branch,)) if s is not branch)
        made_inside = {v for s in inner for v in results(s)}
        read = dict.fromkeys(v for v in reads(branch) if v not in made_inside)
        params = tuple(dict.fromkeys((*read, *(a.record for a in within.arrays))))
        name = f"{within.name}.branch{len(self.made)}"
        self.made[name] = rec.RecordingFunction(
            name, params, within.arrays, (branch,), branch.results
        )
        remark("fork_branches", name, "may wait beside other steps: a fiber of its own")
        return rec.Call(name, params, branch.results)
