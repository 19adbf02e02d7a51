"""The arguments of `compile`, as the compilers of the targets get them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relaxlab.ir.brief import Brief
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.batch_blocks import batch_blocks
from relaxlab.schedule.compiled import decisions_of, steps_of
from relaxlab.schedule.decisions import DecisionError, Made, Value, versions_in

Checks: TypeAlias = Literal["default", "all"]
Decisions: TypeAlias = Mapping[str, Mapping[str, Value]]
"""Values of decisions, by kernel and key."""


@dataclass(frozen=True, slots=True, repr=False)
class Request(Brief):
    """The arguments of `compile`. `mod` is the program, with a graph function for each of
    `entries`, the loop functions that are called by themselves. `passes` are those to run, the
    target's default where `pipeline`, the caller's, is None; they have the decisions, and what was
    `tuned`, by `Context.key_of` of the kernel."""

    mod: Module
    entries: Mapping[str, PrimFunc]
    target: Target
    passes: Pipeline
    pipeline: Pipeline | None
    decisions: Decisions
    tuned: Mapping[str, Made]
    threads: int | None
    use_cache: bool
    checks: Checks

    def result(self, passes: Pipeline | None = None) -> Module:
        """The module after the passes, or after others. Raises DecisionError where no schedule
        makes a decision that is given."""
        made = (passes or self.passes).run(self.mod)
        for kernel, values in self.decisions.items():
            known = decisions_of(made, kernel)
            versions = versions_in(steps_of(made, kernel))
            for key in values:
                if key not in known and key not in versions:
                    listed = among(key, known)
                    raise DecisionError(f"{kernel} has no decision `{key}`; it has: {listed}")
        return made.result

    @property
    def is_batched(self) -> bool:
        """True if the passes make a program that runs in batches."""
        return any(p.name == batch_blocks.name for p in self.passes.passes)

    def refuse_batches(self) -> None:
        """Raises ValueError for passes for batches."""
        if self.is_batched:
            raise ValueError(
                f"the pipeline is for batches, which run on CPUs and by CUDA, not on "
                f"{self.target.kind!r}; without a pipeline that target runs the program one "
                "instance at a time"
            )

    def refuse_options_of_cpus(self) -> None:
        """Raises ValueError for threads and a debug build, which are for CPUs alone."""
        if self.threads is not None:
            raise ValueError(
                "threads are of CPUs; a GPU's are chosen by the kernels' schedules, and the "
                "interpreter has one"
            )
        if self.checks == "all":
            raise ValueError(
                "debug builds are for CPUs; CudaExecutable.simulate checks a GPU's kernels for "
                "races and indices out of bounds, and the interpreter always checks indices"
            )
