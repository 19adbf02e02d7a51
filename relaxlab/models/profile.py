"""A profile of a model: the time of each kernel of reading a prompt and of writing one token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import pipeline_for
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.profile import Profile, profile

MOST_ROWS = 20
"""Kernels that are listed one by one; the others are one row, so that a table fits a screen."""


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The fastest of some runs of either function: `prefill` reads `tokens` ids, `decode` one more
    after them."""

    tokens: int
    prefill: Profile
    decode: Profile

    def __str__(self) -> str:
        return "\n\n".join([
            f"prefill, {self.tokens} tokens: {self.prefill.seconds * 1e3:.2f} ms\n"
            + table(self.prefill),
            f"decode, one token after {self.tokens}: {self.decode.seconds * 1e3:.2f} ms\n"
            + table(self.decode),
        ])  # fmt: skip

    __repr__ = __str__


def table(made: Profile) -> str:
    """The kernels of a run by the time that all calls of each take together, longest first."""
    totals: dict[str, tuple[float, int]] = {}
    for call in made.calls:
        seconds, count = totals.get(call.name, (0.0, 0))
        totals[call.name] = seconds + call.seconds, count + 1
    ordered = sorted(totals.items(), key=lambda item: -item[1][0])
    rows = [(name, seconds, str(count)) for name, (seconds, count) in ordered[:MOST_ROWS]]
    rest = ordered[MOST_ROWS:]
    if rest:
        calls = sum(count for _, (_, count) in rest)
        rows.append((f"{len(rest)} other kernels", sum(s for _, (s, _) in rest), str(calls)))
    inside = sum(seconds for seconds, _ in totals.values())
    rows.append(("between kernels", max(0.0, made.seconds - inside), ""))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{'kernel':{width}}  {'calls':>5}  {'ms':>9}  {'share':>6}"]
    for name, seconds, count in rows:
        share = f"{seconds / made.seconds:.1%}"
        lines.append(f"{name:{width}}  {count:>5}  {seconds * 1e3:9.3f}  {share:>6}")
    return "\n".join(lines)


def profile_model(exe: Executable, ids: list[int]) -> ModelProfile:
    """Measure both functions of a model, its weights bound, on the ids of a prompt.

    The program is compiled once more, with marks around its kernels.
    """
    assert exe.compiled_from is not None
    mod, pipeline = exe.compiled_from
    program = lower_shapes(pipeline_for(exe.target, pipeline).run(mod).result)
    found: dict[str, Profile] = {}
    for name, tokens, past in (("prefill", ids, 0), ("decode", ids[-1:], len(ids) - 1)):
        args = (np.array([tokens], np.int32), (past,), *exe[name].bound)
        found[name] = profile(program, exe.target, name, args, exe.threads)
    return ModelProfile(len(ids), found["prefill"], found["decode"])
